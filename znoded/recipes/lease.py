"""A lease: what acquiring a lock gives. It has the token, says how sure the lock is, and guards writes."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any, Self

from znoded.recipes.clock import Clock, Event
from znoded.recipes.errors import LeaseLost, SessionTimeoutUnknown
from znoded.recipes.guarded import GuardedTransaction
from znoded.recipes.removal import remove_in_background
from znoded.recipes.session import ENDED, LOST, SUSPENDED, session_id, session_timeout_async
from znoded.recipes.tenure import Standing, Tenure

#: How often within a session timeout the holder makes sure that it holds the lock.
CONFIRMATIONS = 4
RELEASE_PATIENCE_S = 5.0

log = logging.getLogger("znoded.recipes")
OnStanding = Callable[["Lease", Standing], object]


class Lease:
    """A lock that is held. Made by the recipes only; as a context manager it releases at the end of the block.

    `token` is the fencing token: greater than that of every holder before. `node` is the znode that holds the lock.
    `on_standing` is called with each new standing, in order, on a thread of the lease; it has to return soon.
    """

    def __init__(
        self,
        client: Any,
        path: str,
        nodes: list[str],
        own_id: str,
        token: int,
        session: int,
        tenure: Tenure,
        confirm_every_s: float,
        on_standing: OnStanding | None,
        clock: Clock,
    ) -> None:
        self.path = path
        self.node = nodes[0]
        self.token = token
        self._client = client
        self._nodes = nodes
        self._own_id = own_id
        self._session = session
        self._tenure = tenure
        self._confirm_every_s = confirm_every_s
        self._on_standing = on_standing
        self._clock = clock
        self._told = Standing.SAFE
        self._is_released = False
        self._wake: Event = client.handler.event_object()
        self._is_over: Event = client.handler.event_object()
        self._confirm_s = clock.now_s() + confirm_every_s
        self._asked: Any = None
        self._granted: Any = None
        self._guard = threading.Lock()
        client.add_listener(self._connection_changed)
        self._learn_timeout()  # at once, unless the connection has changed since it was asked for
        present = session_id(client)  # what happened before there was a listener
        if present is None:
            tenure.contact_lost(clock.now_s())
        elif present != session:
            tenure.end()
        client.handler.spawn(self._keep)

    # ---- for the application

    @property
    def standing(self) -> Standing:
        """Whether the lock is held, as far as can be known at this moment. LOST once it was released."""
        with self._guard:
            return self._tenure.standing(self._clock.now_s())

    @property
    def remaining_s(self) -> float:
        """For how long the lock is certain to be held, whatever happens from here on; 0 if it is not certain."""
        with self._guard:
            now_s = self._clock.now_s()
            is_safe = self._tenure.standing(now_s) is Standing.SAFE
            return self._tenure.ends_s - now_s if is_safe else 0.0

    def guarded(self) -> GuardedTransaction:
        """A transaction whose first operation checks that the lock is held. Raises LeaseLost if it surely is not."""
        if self.standing is Standing.LOST:
            raise LeaseLost(f"the lease of {self.path} with token {self.token} is over")
        return GuardedTransaction(self._client, self.node, self.token)

    def wait_until_over(self, timeout_s: float | None = None) -> bool:
        """Wait until the lease is lost or released; whether it is."""
        self._clock.wait(self._is_over, timeout_s)
        return self._is_over.is_set()

    def release(self) -> None:
        """Give the lock back; without a connection, as soon as there is one. Raises nothing, and does it once."""
        if self._is_released:
            return
        self._is_released = True
        self._end()
        self._wake.set()
        gone = remove_in_background(self._client, self.path, self._own_id, self._nodes)
        self._clock.wait(gone, RELEASE_PATIENCE_S if self._client.connected else 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Lease of {self.path}, token {self.token}, {self.standing.value}>"

    # ---- keeping it

    def _connection_changed(self, state: Any) -> None:
        """On Kazoo's connection thread."""
        if state == LOST:
            self._end()
        elif state == SUSPENDED:
            with self._guard:
                self._tenure.contact_lost(self._clock.now_s())
        else:
            self._learn_timeout()
        self._confirm_s = self._clock.now_s()
        self._wake.set()

    def _learn_timeout(self) -> None:
        """Each connection is granted a timeout of its own: nothing is confirmed before it is known."""
        self._granted = session_timeout_async(self._client, self._session)
        self._granted.rawlink(self._timeout_learnt)

    def _timeout_learnt(self, granted: Any) -> None:
        """On one of Kazoo's threads."""
        if granted.exception is None:
            with self._guard:
                self._tenure.granted(granted.value)
        elif isinstance(granted.exception, SessionTimeoutUnknown) and self.standing is not Standing.LOST:
            log.warning("lease of %s is not confirmed: %s", self.path, granted.exception)
            self._learn_timeout()
        self._wake.set()

    def _keep(self) -> None:
        """On the lease's own thread: make sure of the lock, and tell what it came to, until it is over."""
        try:
            while self._tell() is not Standing.LOST:
                self._clock.wait(self._wake, min(self._changes_in_s(), self._confirm_in_s()))
                self._wake.clear()
        finally:
            self._end()  # whatever it was, as a SystemExit of `on_standing`: nobody keeps the lock any more
            self._client.remove_listener(self._connection_changed)
            if not self._is_released:
                # Lost while the session may go on, as when the grace was over: its place must not block the others.
                remove_in_background(self._client, self.path, self._own_id)
            self._is_over.set()

    def _tell(self) -> Standing:
        standing = self.standing
        if standing is not self._told and not self._is_released:
            self._told = standing
            log.info("lease of %s with token %d is %s", self.path, self.token, standing.value)
            if self._on_standing is not None:
                try:
                    self._on_standing(self, standing)
                except Exception:
                    log.exception("on_standing failed for the lease of %s", self.path)
        return standing

    def _changes_in_s(self) -> float:
        with self._guard:
            return self._tenure.changes_in_s(self._clock.now_s())

    def _confirm_in_s(self) -> float:
        """Ask for the lock's znode if it is time to: how long that is for the next time, if nothing happens before."""
        is_waiting = self._asked is not None and not self._asked.ready()
        if is_waiting or not self._granted.successful() or not self._client.connected:
            return math.inf
        now_s = self._clock.now_s()
        if now_s >= self._confirm_s:
            self._confirm_s = now_s + self._confirm_every_s
            synced = self._client.sync_async(self.node)
            self._asked = self._client.exists_async(self.node)
            self._asked.rawlink(lambda answer: self._confirmed(synced, answer, now_s))
        return self._confirm_s - now_s

    def _confirmed(self, synced: Any, answer: Any, sent_s: float) -> None:
        """On one of Kazoo's threads. A member that is cut off may answer reads, but no sync: that is no contact."""
        if isinstance(answer.exception, ENDED):
            self._end()
        elif answer.exception is None and synced.successful():
            stat = answer.value
            has_another_session = session_id(self._client) not in (self._session, None)
            if stat is None or stat.ephemeralOwner != self._session or has_another_session:
                self._end()
            else:
                with self._guard:
                    self._tenure.heard(sent_s, self._clock.now_s())
        self._wake.set()

    def _end(self) -> None:
        with self._guard:
            self._tenure.end()
