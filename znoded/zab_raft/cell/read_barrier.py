"""Reads that wait until the leader's commit index, confirmed by a quorum, is applied here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from znoded.zab_raft.core.errors import Refused
from znoded.zab_raft.core.node import Node

Then = Callable[[bool], None]


class ReadBarrier:
    """All reads that come in during one turn are one read of the core, which confirms those in rounds."""

    def __init__(self) -> None:
        self._collected: list[Then] = []
        self._to_repeat: list[Then] = []
        self._asked: dict[int, list[Then]] = {}
        self._count = 0

    def add(self, then: Then) -> None:
        """Call `then` when the read may be served, or with False if there is no leader."""
        self._collected.append(then)

    def ask(self, node: Node) -> None:
        """Have what has collected confirmed."""
        if not self._collected:
            return
        reads, self._collected = self._collected, []
        self._count += 1
        try:
            node.read_index(self._count)
        except Refused:
            _tell(reads, False)
        else:
            self._asked[self._count] = reads

    def confirmed(self, contexts: Iterable[int]) -> None:
        """The core has confirmed these, and all that they have to see is applied."""
        for context in contexts:
            _tell(self._asked.pop(context), True)

    def failed(self, contexts: Iterable[int]) -> None:
        """The core cannot confirm these: they are asked again, of the leader that there is at the next tick, if any."""
        for context in contexts:
            self._to_repeat += self._asked.pop(context)

    def tick(self) -> None:
        """Time has passed: what failed is asked again."""
        self._collected += self._to_repeat
        self._to_repeat = []

    def fail_all(self) -> None:
        """There will be no answers any more."""
        waiting = [*self._asked.values(), self._to_repeat, self._collected]
        self._asked, self._to_repeat, self._collected = {}, [], []
        for reads in waiting:
            _tell(reads, False)


def _tell(reads: list[Then], confirmed: bool) -> None:
    for then in reads:
        then(confirmed)
