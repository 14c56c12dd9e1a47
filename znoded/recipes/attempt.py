"""One attempt to get a lock: from the place in the queue to the lease, or out of the queue again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoNodeError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.protocol.states import KeeperState

from znoded.recipes.clock import Clock, Event
from znoded.recipes.errors import AcquireCancelled, AcquireTimeout
from znoded.recipes.lease import CONFIRMATIONS, Lease, OnStanding
from znoded.recipes.names import Contender, own, predecessor, prefixes
from znoded.recipes.removal import remove_in_background
from znoded.recipes.session import UNANSWERED, session_id, session_timeout_async
from znoded.recipes.tenure import Tenure
from znoded.recipes.watching import watching

#: How long a failed attempt waits for its place in the queue to be gone, which goes on behind its back then.
TIDY_PATIENCE_S = 1.0
#: Kazoo tells no listener that a client is closed that was not connected: one has to look.
CLOSED_POLL_S = 1.0
#: How many znodes one contender has in the queue: see `names`.
CONTENDER_ZNODES = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be acquired, and how. `is_shared`: together with others that share it."""

    client: Any
    path: str
    identifier: bytes
    is_shared: bool
    grace_s: float
    on_standing: OnStanding | None
    clock: Clock


class _PlaceLost(Exception):
    """The place in the queue is gone, as with the session in which it was taken."""


class Attempt:
    """One contender. `run` is called once; `cancel` may be called by any thread."""

    def __init__(self, wanted: Wanted, timeout_s: float | None, waits: bool = True) -> None:
        self._wanted = wanted
        self._client = wanted.client
        self._watching = watching(wanted.client)
        self._timeout_s = timeout_s
        self._ends_s = None if timeout_s is None else wanted.clock.now_s() + timeout_s
        self._waits = waits
        self._wake: Event = wanted.client.handler.event_object()
        self._is_cancelled = False
        self._own_id = ""
        self._create: Any = None
        self._session = 0
        self._nodes: list[str] = []
        self._awaited = ""
        self._is_awaited_gone = False

    def _happened(self, event: Any) -> None:
        """On one of Kazoo's threads: an event of a znode that an attempt waits for, or of the connection."""
        if event.path is None or event.path.rpartition("/")[2] == self._awaited:
            self._is_awaited_gone = True
            self._wake.set()

    def cancel(self) -> None:
        """Have `run` raise AcquireCancelled, unless it has the lock already."""
        self._is_cancelled = True
        self._wake.set()

    def run(self) -> Lease | None:
        """The lease; None if somebody else has the lock and this attempt does not wait. Raises as `acquire` does."""
        self._client.add_listener(self._connection_changed)
        lease: Lease | None = None
        try:
            with self._watching.listening(self._happened):
                lease = self._contend()
            return lease
        finally:
            self._client.remove_listener(self._connection_changed)
            if lease is None and self._create is not None:
                self._wanted.clock.wait(self._leave(), TIDY_PATIENCE_S if self._client.connected else 0.0)

    def _contend(self) -> Lease | None:
        while True:
            try:
                self._await_connection()
                return self._in_this_session()
            except UNANSWERED:
                pass  # the place in the queue is found again by the id in its name
            except ConnectionClosedError:  # a kind of SessionExpiredError for Kazoo, but there will be no new session
                raise
            except (SessionExpiredError, NoNodeError, _PlaceLost):
                self._leave()
                self._create = None

    def _in_this_session(self) -> Lease | None:
        wanted = self._wanted
        place = self._place()
        self._nodes = [f"{wanted.path}/{each.name}" for each in place]
        timeout_s = self._ask(session_timeout_async(self._client, self._session))
        while True:
            asked_s = wanted.clock.now_s()
            children = self._ask(self._client.get_children_async(wanted.path))
            mine = own(children, self._own_id)
            if mine != place:
                raise _PlaceLost
            ahead = predecessor(children, self._own_id, mine[0])
            if ahead is None:
                break
            if not self._waits:
                return None
            self._await_end_of(ahead)
        self._ask(self._client.sync_async(self._nodes[0]))
        stat = self._ask(self._client.exists_async(self._nodes[0]))
        if stat is None or stat.ephemeralOwner != self._session:
            raise _PlaceLost
        return Lease(
            self._client,
            wanted.path,
            self._nodes,
            self._own_id,
            stat.czxid,
            stat.ephemeralOwner,
            Tenure(asked_s, timeout_s, wanted.grace_s),
            timeout_s / CONFIRMATIONS,
            wanted.on_standing,
            wanted.clock,
        )

    def _place(self) -> list[Contender]:
        """This contender's znodes, made now or by an earlier request whose answer was lost."""
        path = self._wanted.path
        session = session_id(self._client)
        if session is None:
            raise ConnectionLoss
        if self._create is not None:
            if session != self._session:
                raise _PlaceLost
            found = self._found(path)
            if len(found) == CONTENDER_ZNODES:
                return found
            if found:
                raise _PlaceLost
        self._own_id = uuid.uuid4().hex
        self._session = session
        while True:
            self._create = self._create_async()
            results = self._ask(self._create)
            failures = [each for each in results if isinstance(each, Exception)]
            if not failures:
                return own((node.rpartition("/")[2] for node in results), self._own_id)
            if not any(isinstance(each, NoNodeError) for each in failures):
                raise next(each for each in failures if not isinstance(each, RolledBackError))
            self._ask(self._client.ensure_path_async(path))

    def _found(self, path: str) -> list[Contender]:
        """This contender's znodes, once a request whose answer was lost has been settled."""
        self._ask(self._client.sync_async(path))
        try:
            return own(self._ask(self._client.get_children_async(path)), self._own_id)
        except NoNodeError:
            return []

    def _leave(self) -> Event:
        """Leave the queue; the event is set once that is done."""
        nodes, self._nodes = self._nodes, []
        return remove_in_background(self._client, self._wanted.path, self._own_id, nodes, self._create)

    def _create_async(self) -> Any:
        transaction = self._client.transaction()
        for prefix in prefixes(self._own_id, self._wanted.is_shared):
            transaction.create(f"{self._wanted.path}/{prefix}", self._wanted.identifier, ephemeral=True, sequence=True)
        return transaction.commit_async()

    # ---- waiting

    def _await_end_of(self, name: str) -> None:
        """Wait until the znode is gone, or something else happens that is worth a look."""
        self._awaited, self._is_awaited_gone = name, False
        try:
            self._ask(self._client.get_async(f"{self._wanted.path}/{name}", watch=self._watching.happened))
        except NoNodeError:
            return
        while not self._is_awaited_gone:
            self._wait()

    def _await_connection(self) -> None:
        while not self._client.connected:
            state = self._client.client_state
            if state == KeeperState.CLOSED:
                raise ConnectionClosedError("the client is closed")
            if state == KeeperState.AUTH_FAILED:
                raise AuthFailedError("the client is not let in")
            self._wait(CLOSED_POLL_S)

    def _ask(self, answer: Any) -> Any:
        """The answer to a request, however long the connection is away, or what it raises."""
        answer.rawlink(lambda _answer: self._wake.set())
        while not answer.ready():
            self._wait()
        return answer.get()

    def _wait(self, most_s: float | None = None) -> None:
        """Wait for whatever happens next. Raises AcquireTimeout or AcquireCancelled."""
        clock = self._wanted.clock
        remaining_s = None if self._ends_s is None else self._ends_s - clock.now_s()
        if self._is_cancelled:
            raise AcquireCancelled(f"waiting for {self._wanted.path} was cancelled")
        if remaining_s is not None and remaining_s <= 0:
            raise AcquireTimeout(f"{self._wanted.path} was not to be had within {self._timeout_s} s")
        clock.wait(self._wake, min((each for each in (remaining_s, most_s) if each is not None), default=None))
        self._wake.clear()

    def _connection_changed(self, state: Any) -> None:
        """On Kazoo's connection thread."""
        self._wake.set()
