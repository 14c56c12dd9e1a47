"""The time of day, for commands in the log and for people. What is waited for goes by a clock that nobody sets."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)
