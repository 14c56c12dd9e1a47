"""Simulated time: what happens when, and what the clocks of the processes show meanwhile. All chance is from one seed.

A `Process` is one run of one member. Whatever it does is an event of the world, so that nothing of it happens after its
end, and all that would have happened while it was paused happens when it goes on.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.zab_raft.core.history import require

EPOCH_S = 1_700_000_000.0
TRACE_LINES_SHOWN = 40
EVENTS_LIMIT = 100_000
LEAST_S = 1e-6


class Event:
    """Something that is to happen; nothing does if `call` is None."""

    __slots__ = ("call", "label")

    def __init__(self, label: str, call: Callable[[], object]) -> None:
        self.label = label
        self.call: Callable[[], object] | None = call


class World:
    """All that is to happen, and what happened. Equal seeds give equal worlds."""

    def __init__(self, seed: int, show: bool = False) -> None:
        self.chance = random.Random(seed)
        self.now_s = 0.0
        #: Whose event it is; None: one of the network, the clients or the trouble.
        self.current: Process | None = None
        self.event_count = 0
        #: What the product itself found wrong with it.
        self.fault = ""
        self.digest = hashlib.blake2b(digest_size=16)
        self.trace: deque[str] = deque(maxlen=None if show else TRACE_LINES_SHOWN)
        self._show = show
        #: By their time, and then by when they were planned.
        self._events: list[tuple[float, int, Event]] = []

    def at(self, delay_s: float, label: str, call: Callable[[], object]) -> Event:
        """Have something happen later."""
        return self.at_time(self.now_s + delay_s, label, call)

    def at_time(self, time_s: float, label: str, call: Callable[[], object]) -> Event:
        """Have something happen then; what was to happen at exactly the same time goes first."""
        self.event_count += 1
        event = Event(label, call)
        heapq.heappush(self._events, (time_s, self.event_count, event))
        return event

    def next(self) -> None:
        """Let the next thing happen."""
        while True:
            time_s, _, event = heapq.heappop(self._events)
            if event.call is not None:
                break
        self.now_s = time_s
        self.digest.update(event.label.encode())
        event.call()
        require(not self.fault, "fault", self.fault)
        require(self.event_count < EVENTS_LIMIT, "L1", "it comes to no end")

    def note(self, text: str, data: bytes = b"") -> None:
        """Put down what happened; `data` counts for the run's digest, and is not shown."""
        line = f"{self.now_s:.6f} {text}"
        self.digest.update(line.encode() + data)
        self.trace.append(line)
        if self._show:
            print(line)

    def random_below(self, limit: int) -> int:
        """From 0 to before `limit`."""
        return self.chance.randrange(limit)

    def odds(self, probability: float) -> bool:
        """Whether something of this probability comes to pass."""
        return self.chance.random() < probability

    # ---- what the modules of the product take for the clocks

    def wall_s(self) -> float:
        """`time.time`, as the process sees it whose event this is."""
        return self.current.wall_s() if self.current else EPOCH_S + self.now_s

    def monotonic_s(self) -> float:
        """`time.monotonic`, likewise."""
        return self.current.monotonic_s() if self.current else self.now_s


class Process:
    """One run of one member, with clocks of its own: `rate` is how fast they go."""

    def __init__(
        self, world: World, name: str, rate: float, wall_offset_s: float, looked_at: Callable[[], None]
    ) -> None:
        """`looked_at` is called after each event of the process."""
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.wall_offset_s = wall_offset_s
        self._rate = rate
        self._held: deque[Callable[[], object]] = deque()
        self._looked_at = looked_at

    def run(self, call: Callable[[], object]) -> None:
        """Do this as the process, if it lives; when it goes on, if it is paused."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._held.append(call)
            return
        world = self.world
        before, world.current = world.current, self
        try:
            call()
        finally:
            world.current = before
        if self.is_alive:
            self._looked_at()

    def resume(self) -> None:
        """Go on: all that came meanwhile is done now."""
        self.is_paused = False
        held, self._held = self._held, deque()
        for call in held:
            self.run(call)

    def wall_s(self) -> float:
        return EPOCH_S + self.wall_offset_s + self.world.now_s

    def monotonic_s(self) -> float:
        return self.world.now_s * self._rate

    def at(self, delay_s: float, call: Callable[[], object], label: str) -> Event:
        """Have the process do something when its clock has gone so far."""
        # Never so little later that adding it to the time changes nothing.
        return self.world.at(delay_s and max(delay_s / self._rate, LEAST_S), label, partial(self.run, call))


class Timer:
    """What `callLater` returns."""

    def __init__(self, process: Process, delay_s: float, call: Callable[[], object]) -> None:
        self._process = process
        self._call: Callable[[], object] | None = call
        self._event = process.at(delay_s, self._fire, process.name)

    def active(self) -> bool:
        return self._call is not None

    def cancel(self) -> None:
        assert self._call is not None
        self._call = self._event.call = None

    def reset(self, delay_s: float) -> None:
        self._event.call = None
        self._event = self._process.at(delay_s, self._fire, self._process.name)

    def _fire(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class ProcessReactor:
    """What a process takes for its reactor."""

    def __init__(self, process: Process, stopped: Callable[[], None]) -> None:
        """`stopped` is called when the process wants to end."""
        self._process = process
        self._stopped = stopped

    def seconds(self) -> float:
        return self._process.monotonic_s()

    def callLater(self, delay_s: float, call: Callable[..., object], *arguments: Any, **named: Any) -> Timer:
        return Timer(self._process, delay_s, partial(call, *arguments, **named))

    def callFromThread(self, call: Callable[..., object], *arguments: Any, **named: Any) -> None:
        self.callLater(0, call, *arguments, **named)

    def addReader(self, reader: object) -> None: ...

    def removeReader(self, reader: object) -> None: ...

    def stop(self) -> None:
        self._stopped()
