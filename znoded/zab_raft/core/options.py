"""The limits and timeouts of a member. Time is ticks, whose length is the caller's business."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Raises ValueError for values that cannot work.

    An election begins when a leader was silent for `election_ticks` to twice as many. At most `window_messages` appends
    with `window_bytes` are on their way to one member, none much above `message_bytes`. `tail_bytes` may be proposed
    and not committed, `applying_bytes` handed out and not applied; `reads` may wait. A snapshot that is under way for
    `snapshot_ticks` without a sign of life has failed.
    """

    election_ticks: int = 10
    heartbeat_ticks: int = 1
    snapshot_ticks: int = 100
    message_bytes: int = 1 << 20
    window_messages: int = 256
    window_bytes: int = 8 << 20
    tail_bytes: int = 64 << 20
    applying_bytes: int = 64 << 20
    reads: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least 1")
        if self.heartbeat_ticks * 2 > self.election_ticks:
            raise ValueError(
                f"heartbeats every {self.heartbeat_ticks} ticks leave no room before an election after"
                f" {self.election_ticks}; it has to be at least twice as many"
            )
