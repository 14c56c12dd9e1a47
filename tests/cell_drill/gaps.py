"""When writes were acknowledged, and the longest time in which none was."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence


class Acknowledgements:
    """The moments at which a client of the cell, any of them, had a write acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self._last_s = time.monotonic()
        self._longest_gap_s = 0.0

    def add(self) -> None:
        now_s = time.monotonic()
        self._longest_gap_s = max(self._longest_gap_s, now_s - self._last_s)
        self._last_s = now_s
        self.count += 1

    def begin_gap(self) -> None:
        """Forget gaps that are over."""
        self._longest_gap_s = 0.0

    @property
    def longest_gap_s(self) -> float:
        """The longest since `begin_gap`, one that goes on included."""
        return max(self._longest_gap_s, time.monotonic() - self._last_s)


def told(gaps_s: Sequence[float]) -> str:
    return f"median {statistics.median(gaps_s):.3f} s, longest {max(gaps_s):.3f} s"
