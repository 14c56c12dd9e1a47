"""What the API holds in memory for clients that have not read it yet, all together, and who has owed it for longest."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.logger import Logger

log = Logger()


class Debtor(Protocol):
    """A client that has not read everything that was written for it."""

    def cut(self) -> int:
        """Let go of what it has not read, and call `Unread.paid`: how many clients were cut off."""


class Unread:
    """Counts bytes that wait to be read, and cuts off who has kept some waiting for longest when they are too many.

    Streams that watch the same share what they are told, so it counts once, however many have yet to read it.
    """

    def __init__(self, reactor: Any, limit_bytes: int) -> None:
        self._reactor = reactor
        self._limit_bytes = limit_bytes
        self.total_bytes = 0
        #: How many were cut off for it.
        self.cut_count = 0
        self._shared: dict[int, tuple[bytes, int]] = {}
        #: In the order in which they began to owe.
        self._debtors: dict[Debtor, None] = {}
        self._is_enforcing_later = False

    def hold(self, shared: bytes) -> None:
        """These bytes wait for one more reader."""
        _, holders = self._shared.get(id(shared), (shared, 0))
        self._shared[id(shared)] = shared, holders + 1
        if not holders:
            self.add(len(shared))

    def release(self, shared: bytes) -> None:
        """One reader less."""
        _, holders = self._shared.pop(id(shared))
        if holders > 1:
            self._shared[id(shared)] = shared, holders - 1
        else:
            self.total_bytes -= len(shared)

    def add(self, size_bytes: int) -> None:
        """So many bytes wait that are nobody else's; a negative number takes them back."""
        self.total_bytes += size_bytes
        if self.total_bytes > self._limit_bytes and not self._is_enforcing_later:
            self._is_enforcing_later = True
            self._reactor.callLater(0, self._enforce)

    def owe(self, debtor: Debtor) -> None:
        """It has something to read, if it had not before."""
        self._debtors.setdefault(debtor)

    def paid(self, debtor: Debtor) -> None:
        """It has read everything, or is gone."""
        self._debtors.pop(debtor, None)

    def _enforce(self) -> None:
        self._is_enforcing_later = False
        before = self.cut_count
        while self.total_bytes > self._limit_bytes and self._debtors:
            debtor = next(iter(self._debtors))
            self.cut_count += debtor.cut()
            assert debtor not in self._debtors, "who is cut owes nothing any more"
        if self.cut_count > before:
            log.warn(
                "{count} clients of the API were cut off: limits.api_unread_bytes is {limit}, and they had not read"
                " what was written for them for longest",
                count=self.cut_count - before,
                limit=self._limit_bytes,
            )
