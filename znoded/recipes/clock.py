"""The time, as an argument: recipes take a clock, so that tests can give them another one."""

from __future__ import annotations

import time
from typing import Protocol


class Event(Protocol):
    """What Kazoo's handlers make: threading.Event, or gevent's or eventlet's."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> object: ...


class Clock(Protocol):
    """Seconds that only grow, and a wait."""

    def now_s(self) -> float:
        """The time."""

    def wait(self, event: Event, timeout_s: float | None) -> None:
        """Return when the event is set or the time is over; None: never."""


class SystemClock:
    """The machine's clock since its start. Where there is such a one, it goes on while the machine sleeps."""

    _ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_s(self) -> float:
        return time.clock_gettime(self._ID)

    def wait(self, event: Event, timeout_s: float | None) -> None:
        event.wait(timeout_s)
