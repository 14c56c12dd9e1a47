"""How much goes wrong in one run, and what can."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: The least session timeout is two ticks, the greatest twenty.
TICK_MS = 400
HEARTBEAT_MS = 100
ELECTION_MS = 400


@dataclass
class Trouble:
    """Times are in seconds, the rest are weights of one kind of trouble among the others, or probabilities."""

    members: int
    learners: int
    clients: int
    lasts_s: float
    pause_s: float
    think_s: float
    late: float
    repeat: float
    no_room: float
    skew: float
    write_s: float
    kill: int
    power_cut: int
    stop: int
    pause: int
    suspend: int
    cut: int
    part: int
    break_off: int
    slow_disk: int
    full_disk: int
    failing_disk: int
    hand_over: int
    checkpoint: int
    wall_clock: int
    change: int
    lines: int
    checkpoint_bytes: int
    log_tail_bytes: int

    @classmethod
    def drawn(cls, chance: random.Random) -> Trouble:
        return cls(
            members=chance.choice((1, 2, 3, 3, 3, 3, 3, 5)),
            learners=chance.choice((0, 0, 0, 1)),
            clients=chance.choice((2, 3, 4)),
            lasts_s=chance.choice((3.0, 5.0, 8.0)),
            pause_s=chance.choice((0.1, 0.3)),
            think_s=chance.choice((0.06, 0.2)),
            late=chance.choice((0.0, 0.02, 0.1)),
            repeat=chance.choice((0.0, 0.0, 0.05)),
            no_room=chance.choice((0.0, 0.0, 0.02)),
            skew=chance.choice((1.0, 1.2)),
            write_s=chance.choice((0.001, 0.005, 0.03)),
            kill=chance.choice((0, 2, 4)),
            power_cut=chance.choice((0, 0, 2)),
            stop=chance.choice((0, 0, 1)),
            pause=chance.choice((0, 0, 2)),
            suspend=chance.choice((0, 0, 1)),
            cut=chance.choice((0, 0, 3)),
            part=chance.choice((0, 0, 3)),
            break_off=chance.choice((0, 2)),
            slow_disk=chance.choice((0, 0, 2)),
            full_disk=chance.choice((0, 0, 1)),
            failing_disk=chance.choice((0, 0, 1)),
            hand_over=chance.choice((0, 1)),
            checkpoint=chance.choice((1, 3, 10)),
            wall_clock=chance.choice((0, 1)),
            change=chance.choice((0, 0, 0, 3)),
            lines=chance.choice((2, 4)),
            checkpoint_bytes=chance.choice((1 << 30, 1 << 30, 3000)),
            log_tail_bytes=chance.choice((0, 2000)),
        )
