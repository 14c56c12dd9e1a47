"""An election whose leaders have an epoch: the fencing token of their lease."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kazoo.exceptions import NoNodeError

from znoded.recipes.clock import Clock
from znoded.recipes.errors import AcquireCancelled
from znoded.recipes.lease import Lease, OnStanding
from znoded.recipes.lock import GRACE_S, FencedLock
from znoded.recipes.names import queue

#: In front of the name of what a lock-delay keeps of a holder whose session expired.
KEPT = "kept-"

T = TypeVar("T")

log = logging.getLogger("znoded.recipes")


class Leader(NamedTuple):
    """Who leads, by the identifier it gave, and the epoch: greater than that of every leader before."""

    identifier: str
    epoch: int


class FencedElection:
    """One leader at a time among those that run an election at `path`, Kazoo's Election there included.

    The arguments are those of FencedLock.
    """

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
        self._identifier = identifier
        self._lock = FencedLock(client, path, identifier, grace_s=grace_s, on_standing=on_standing, clock=clock)
        self._shadow: Lease | None = None
        self._is_cancelled = False

    def campaign(self, timeout_s: float | None = None) -> Lease:
        """Wait to be elected: the lease of the leadership, whose token is the epoch.

        Raises as `FencedLock.acquire`, and AcquireCancelled after `cancel`.
        """
        return self._lock.acquire(timeout_s)

    def run(self, lead: Callable[[Lease], T], *, observe_only: bool = False) -> T | None:
        """Campaign, call `lead` with the lease when elected, and resign: what it returned, None if it was cancelled.

        With `observe_only` it is elected and resigns as any other, and tells so to the log, but `lead` is not called:
        so that what this election would do can be compared with what another mechanism does. It leads, without acting,
        until its lease is lost or `cancel` is called.
        """
        try:
            lease = self.campaign()
        except AcquireCancelled:
            return None
        with lease:
            if self._is_cancelled:
                return None  # while it was being elected
            if not observe_only:
                return lead(lease)
            log.info("%s: %s would lead with epoch %d", self.path, self._identifier, lease.token)
            self._shadow = lease
            if not self._is_cancelled:
                lease.wait_until_over()
            log.info("%s: %s would lead no more", self.path, self._identifier)
        return None

    def cancel(self) -> None:
        """Campaign no more, with this election, whether it does or is about to. A leader stays one, unless it observes.

        `lead` is not called any more once this was; to campaign again takes another election.
        """
        self._is_cancelled = True
        self._lock.close()
        if self._shadow is not None:
            self._shadow.release()

    def leader(self) -> Leader | None:
        """Who leads, None if nobody does; asked by anybody, who need not campaign. Raises KazooException."""
        while True:
            try:
                contenders = queue(self._client.get_children(self.path))
            except NoNodeError:
                return None
            if not contenders or contenders[0].name.startswith(KEPT):
                return None
            try:
                data, stat = self._client.get(f"{self.path}/{contenders[0].name}")
            except NoNodeError:
                continue  # it went meanwhile
            return Leader(data.decode(errors="replace"), stat.czxid)
