"""Locks whose holders get a fencing token, and that cannot be held without one."""

from __future__ import annotations

import threading
from typing import Any

from kazoo.exceptions import NoNodeError

from znoded.recipes.attempt import Attempt, Wanted
from znoded.recipes.clock import Clock, SystemClock
from znoded.recipes.errors import AcquireCancelled
from znoded.recipes.lease import Lease, OnStanding
from znoded.recipes.names import queue

GRACE_S = 45.0
TRY_PATIENCE_S = 10.0


class FencedLock:
    """An exclusive, fair lock at `path`; it excludes Kazoo's locks and Curator's InterProcessMutex there as well.

    `client` is a started KazooClient. `identifier` is what `contenders` and Kazoo's locks show of this one.
    `grace_s` is how long a holder without contact hopes before its lease is lost; the session timeout bounds it, since
    behind that the lock may be another's. `on_standing(lease, standing)` is told of jeopardy, safe again, and lost.

    One object may be acquired by many threads; each acquire queues for itself, so the lock is not reentrant.
    """

    _is_shared = False

    def __init__(
        self,
        client: Any,
        path: str,
        identifier: str = "",
        *,
        grace_s: float = GRACE_S,
        on_standing: OnStanding | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = path
        self._client = client
        self._wanted = Wanted(
            client, path, identifier.encode(), self._is_shared, grace_s, on_standing, clock or SystemClock()
        )
        self._attempts: set[Attempt] = set()
        self._guard = threading.Lock()
        self._is_closed = False

    def acquire(self, timeout_s: float | None = None) -> Lease:
        """Wait for the lock: its lease, which has the token and is to be released.

        Raises AcquireTimeout after `timeout_s`, AcquireCancelled after `cancel`, and KazooException if the client is
        closed or its rights do not suffice; in each case nothing stays in the queue. Lost connections and sessions are
        waited out.
        """
        lease = self._run(Attempt(self._wanted, timeout_s))
        assert lease is not None, "an attempt that waits has the lock or raises"
        return lease

    def try_acquire(self, timeout_s: float = TRY_PATIENCE_S) -> Lease | None:
        """The lease if the lock is free, else None. Raises AcquireTimeout if that is not known after `timeout_s`."""
        return self._run(Attempt(self._wanted, timeout_s, waits=False))

    def cancel(self) -> None:
        """End every `acquire` that waits, with AcquireCancelled; one that has yet to begin is not among them."""
        with self._guard:
            going_on = list(self._attempts)
        for attempt in going_on:
            attempt.cancel()

    def close(self) -> None:
        """Have every `acquire`, whether it waits or is yet to come, raise AcquireCancelled. Leases stay."""
        with self._guard:
            self._is_closed = True
        self.cancel()

    def contenders(self) -> list[str]:
        """The identifiers of all that hold the lock or wait for it, in order. Raises KazooException."""
        try:
            names = [each.name for each in queue(self._client.get_children(self.path))]
        except NoNodeError:
            return []
        found = [self._identifier_of(f"{self.path}/{name}") for name in names]
        return [identifier for identifier in found if identifier is not None]

    def _identifier_of(self, node: str) -> str | None:
        try:
            data, _ = self._client.get(node)
        except NoNodeError:
            return None
        return str(data.decode(errors="replace"))

    def _run(self, attempt: Attempt) -> Lease | None:
        with self._guard:
            if self._is_closed:
                raise AcquireCancelled(f"waiting for {self.path} was cancelled")
            self._attempts.add(attempt)
        try:
            return attempt.run()
        finally:
            with self._guard:
                self._attempts.discard(attempt)


class FencedWriteLock(FencedLock):
    """The exclusive side of a lock that a FencedReadLock at the same path shares; it is a FencedLock."""


class FencedReadLock(FencedLock):
    """The shared side: any number of readers hold it together, and no writer, whether Kazoo's, Curator's or ours.

    A reader queues behind a writer that waits, which is not starved so. The tokens of readers that hold the lock
    together differ; that of every writer behind them is greater.
    """

    _is_shared = True
