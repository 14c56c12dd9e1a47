"""When Python's garbage collector runs: never by itself in the midst of requests, only from a timer.

The automatic collector looks at everything it knows each time enough objects were made; with many sessions that is a
pause of tens of ms at a random moment. Here what was loaded at start is frozen, that is never looked at again, and each
generation has a time of its own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

CHECK_INTERVAL_S = 1.0
GENERATION_INTERVALS_S = (1.0, 10.0, 60.0)
#: Below so many new objects a collection is not worth its call.
YOUNG_OBJECTS_LEAST = 700
#: A generation rests for so many times its last pause, so that collecting takes at most 1 % of the time.
IDLE_TO_PAUSE_RATIO = 100


@dataclass(slots=True)
class Pauses:
    """What the collections of one generation took so far."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0


class GarbageCollection:
    """Runs the collector of this process from `clock`; there is one in a process."""

    def __init__(self, clock: IReactorTime, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.pauses = (Pauses(), Pauses(), Pauses())
        self._clock = clock
        self._now_s = now_s
        self._due_s = [0.0, 0.0, 0.0]
        self._loop = LoopingCall(self._check)
        self._loop.clock = clock

    def start(self) -> None:
        """Switch the automatic collector off: from here on nothing is collected until `freeze`."""
        gc.disable()

    def freeze(self) -> None:
        """Set everything that is there now apart for good, and begin to collect from the timer."""
        gc.freeze()
        self._due_s = [self._clock.seconds() + interval_s for interval_s in GENERATION_INTERVALS_S]
        self._loop.start(CHECK_INTERVAL_S, now=False)

    def stop(self) -> None:
        """Give the collector back to Python."""
        if self._loop.running:
            self._loop.stop()
        gc.unfreeze()
        gc.enable()

    def _check(self) -> None:
        """Collect the oldest generation that is due; that takes the younger ones along."""
        now_s = self._clock.seconds()
        due = [generation for generation, due_s in enumerate(self._due_s) if due_s <= now_s]
        if not due or (due[-1] == 0 and gc.get_count()[0] < YOUNG_OBJECTS_LEAST):
            return
        pause_s = self._collect(due[-1])
        rest_s = pause_s * IDLE_TO_PAUSE_RATIO
        for generation in range(due[-1] + 1):
            self._due_s[generation] = now_s + max(GENERATION_INTERVALS_S[generation], rest_s)

    def _collect(self, generation: int) -> float:
        began_s = self._now_s()
        gc.collect(generation)
        pause_s = self._now_s() - began_s
        pauses = self.pauses[generation]
        pauses.count += 1
        pauses.total_s += pause_s
        pauses.longest_s = max(pauses.longest_s, pause_s)
        return pause_s
