"""What is logged about connections that were refused: each reason once in a while, and never a flood."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger, LogLevel

from znoded.zab_raft.peers.gate import NOT_IN_A_CELL_YET

PERIOD_S = 60.0
#: Of a period.
LINES_LIMIT = 50

log = Logger()


class RefusalLog:
    """Logs each (address, reason) once in a period, and so many in all; what is left out is counted."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._period_ends_s = seconds() + PERIOD_S
        self._said: set[tuple[str, str]] = set()
        self._left_out = 0

    def add(self, host: str, where: str, reason: str) -> None:
        """A connection with `where`, an address on `host`, was refused by either side."""
        if self._seconds() >= self._period_ends_s:
            self._end_period()
        # In each first start of a cell: who is in it dials members that are about to hear of it.
        is_expected = reason.endswith(NOT_IN_A_CELL_YET)
        if (host, reason) in self._said or len(self._said) >= LINES_LIMIT:
            self._left_out += not is_expected
            return
        self._said.add((host, reason))
        level = LogLevel.info if is_expected else LogLevel.warn
        log.emit(level, "peer connection with {where} refused: {reason}", where=where, reason=reason)

    def _end_period(self) -> None:
        if self._left_out:
            log.warn("{count} more peer connections were refused in the last minute", count=self._left_out)
        self._period_ends_s = self._seconds() + PERIOD_S
        self._said.clear()
        self._left_out = 0
