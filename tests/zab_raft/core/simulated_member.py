"""One simulated member and its disk, and how much trouble a run makes for them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.zab_raft.core.history import require
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Entry, HardState, Snapshot
from znoded.zab_raft.core.node import Node, Ready

TICK = 100
"""How many units of simulated time a tick takes at a member whose clock is right."""


@dataclass
class Trouble:
    """How much goes wrong in one run. Probabilities are for one message, weights for one event among others."""

    members: int
    events: int
    drop: float
    repeat: float
    late: float
    skew: float
    disk_delay: int
    apply_delay: int
    crash: int
    pause: int
    cut: int
    change: int
    elect: int
    report_delay: int

    @classmethod
    def drawn(cls, chance: random.Random) -> Trouble:
        calm = chance.random() < 0.3
        return cls(
            members=chance.choice((1, 2, 3, 3, 3, 4, 5, 5, 7)),
            events=chance.choice((600, 1200, 2400)),
            drop=0.0 if calm else chance.choice((0.0, 0.02, 0.2)),
            repeat=chance.choice((0.0, 0.05, 0.2)),
            late=chance.choice((0.0, 0.02, 0.1)),
            skew=chance.choice((1.0, 1.3, 3.0)),
            disk_delay=chance.choice((2, 20, 150)),
            apply_delay=chance.choice((0, 0, 60)),
            crash=chance.choice((0, 1, 4)),
            pause=chance.choice((0, 1, 3)),
            cut=chance.choice((0, 1, 4)),
            change=chance.choice((0, 2, 6)),
            elect=chance.choice((1, 1, 8)),
            report_delay=chance.choice((0, 0, 60)),
        )


@dataclass
class Disk:
    """What is durable at one member."""

    snapshot: Snapshot
    digest: bytes = b""
    entries: list[Entry] = field(default_factory=list)
    hard_state: HardState = HardState()

    @property
    def last_index(self) -> int:
        return self.snapshot.index + len(self.entries)

    def term(self, index: int) -> int | None:
        place = index - self.snapshot.index
        return self.entries[place - 1].term if 0 < place <= len(self.entries) else None

    def write(self, ready: Ready, digest: bytes) -> None:
        if ready.snapshot:
            self.snapshot, self.digest, self.entries = ready.snapshot, digest, []
        new = [entry for entry in ready.entries if entry.index > self.snapshot.index]
        if new:
            require(new[0].index <= self.last_index + 1, "D6", "a gap in the log")
            del self.entries[new[0].index - self.snapshot.index - 1 :]
            self.entries += new
        self.hard_state = ready.hard_state

    def checkpoint(self, snapshot: Snapshot, digest: bytes) -> None:
        require(snapshot.index <= self.last_index, "D10", "a checkpoint ahead of the log")
        del self.entries[: snapshot.index - self.snapshot.index]
        self.snapshot, self.digest = snapshot, digest


class Member:
    """One member: its disk, and its process as long as that runs."""

    def __init__(self, member: int, configuration: Configuration) -> None:
        self.id = member
        self.disk = Disk(Snapshot(0, 0, configuration))
        self.process = 0
        self.node: Node | None = None
        self.paused = False
        self.held: list[Callable[[], None]] = []
        self.tick_units = TICK
        self.digest = b""
        self.applied = 0
        self.writes: deque[Ready] = deque()
        self.syncing = 0
        self.to_report: deque[Ready] = deque()
        self.to_apply: deque[Entry] = deque()
        self.arrived: dict[int, bytes] = {}
        self.proposals: dict[int, bytes] = {}
        self.reads: dict[int, int] = {}

    @property
    def alive(self) -> Node:
        assert self.node is not None
        return self.node
