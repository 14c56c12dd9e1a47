"""What is logged about clients that broke a rule or met a limit: enough to find them, never a flood."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

PERIOD_MS = 60_000
#: Of a period each.
LINES_PER_ADDRESS = 5
LINES_IN_ALL = 50

log = Logger()


class Complaints:
    """Logs at most so many lines in each period, from one address and in all; what is left out is counted."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._period_ends_ms = monotonic_ms() + PERIOD_MS
        self._lines_about: dict[str, int] = {}
        self._left_out = 0

    def add(self, host: str, port: int, what: str) -> None:
        """Something to say about the client at an address."""
        self.end_period()
        lines = self._lines_about.get(host, 0)
        if lines >= LINES_PER_ADDRESS or sum(self._lines_about.values()) >= LINES_IN_ALL:
            self._left_out += 1
            return
        self._lines_about[host] = lines + 1
        log.info("closed {host}:{port}: {what}", host=host, port=port, what=what)
        if lines + 1 == LINES_PER_ADDRESS:
            log.info("more about {host} is not logged before the minute is over", host=host)

    def end_period(self) -> None:
        """If the period is over, say what was left out of it, and begin the next."""
        if self._monotonic_ms() < self._period_ends_ms:
            return
        if self._left_out:
            log.info("closed {count} more connections in the last minute, for like reasons", count=self._left_out)
        self._period_ends_ms = self._monotonic_ms() + PERIOD_MS
        self._lines_about.clear()
        self._left_out = 0
