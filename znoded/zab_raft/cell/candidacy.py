"""When to stand for election after the leader's process has ended: at once, but not all members at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from znoded.zab_raft.log_thread import Reactor

#: The others have to have noticed the leader's end, too: before, they refuse their votes.
FIRST_DELAY_S = 0.005
#: How much later than the one before it each member stands: enough for an election among members that are near.
RANK_DELAY_S = 0.05
ROUNDS = 3


class Candidacy:
    """Calls `stand` when it is this member's turn, again for a few rounds, until `withdraw`."""

    def __init__(self, reactor: Reactor, stand: Callable[[], None]) -> None:
        self._reactor = reactor
        self._stand = stand
        self._timers: list[Any] = []

    def announce(self, rank: int, ranks: int) -> None:
        """The leader is gone. This member is the one of this rank, from 0, of so many that may stand."""
        self.withdraw()
        for turn in range(rank, ranks * ROUNDS, ranks):
            self._timers.append(self._reactor.callLater(FIRST_DELAY_S + turn * RANK_DELAY_S, self._stand))

    def withdraw(self) -> None:
        """There is a leader, or this member must not stand."""
        for timer in self._timers:
            if timer.active():
                timer.cancel()
        self._timers.clear()
