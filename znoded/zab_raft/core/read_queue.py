"""Reads that wait for a quorum to confirm a leader: one round is in flight, one is collecting (Raft thesis 6.4).

A round is known by its position, a number that is private to one leadership. A caller's own numbers are never matched:
a late or repeated answer confirms what it really confirmed and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from znoded.zab_raft.core import quorum
from znoded.zab_raft.core.errors import InvariantBroken


class Read(NamedTuple):
    """A read of member `origin`, which knows it as `context`."""

    origin: int
    context: int


class ReadQueue:
    """The reads of one leadership."""

    def __init__(self, most_waiting: int) -> None:
        self.position = 0
        #: What the round in flight is to see.
        self.index = 0
        self._most_waiting = most_waiting
        self._in_flight: list[Read] = []
        self._collecting: list[Read] = []
        self._acknowledged: dict[int, int] = {}

    @property
    def in_flight(self) -> bool:
        return bool(self._in_flight)

    @property
    def full(self) -> bool:
        return len(self._collecting) >= self._most_waiting

    @property
    def waiting(self) -> list[Read]:
        """All that were not answered."""
        return self._in_flight + self._collecting

    def add(self, read: Read) -> None:
        self._collecting.append(read)

    def begin_round(self, index: int) -> bool:
        """Begin to confirm what has collected, as of `index`. False if nothing has, or a round is in flight."""
        if self._in_flight or not self._collecting:
            return False
        self._in_flight, self._collecting = self._collecting, []
        self.index = index
        self.position += 1
        return True

    def acknowledge(self, member: int, position: int) -> None:
        """The member followed this leadership when the round at `position` had begun."""
        if position > self.position:
            raise InvariantBroken(f"member {member} confirmed round {position}, the last is {self.position}")
        self._acknowledged[member] = max(position, self._acknowledged.get(member, 0))

    def confirmed(self, voters: Collection[int], outgoing: Collection[int], leader: int) -> tuple[int, list[Read]]:
        """The read index and the reads of the round in flight, if a quorum has confirmed it; otherwise no reads."""
        self._acknowledged[leader] = self.position
        if not self._in_flight or quorum.joint_committed(voters, outgoing, self._acknowledged) < self.position:
            return 0, []
        reads, self._in_flight = self._in_flight, []
        return self.index, reads


class ForwardedReads:
    """The reads of a member that does not lead: one request is with the leader, one is collecting.

    `first_request` should be a number that no earlier process of this member used.
    """

    def __init__(self, first_request: int, most_waiting: int) -> None:
        self.request = first_request
        self._most_waiting = most_waiting
        self._in_flight: list[int] = []
        self._collecting: list[int] = []

    @property
    def in_flight(self) -> bool:
        return bool(self._in_flight)

    @property
    def full(self) -> bool:
        return len(self._collecting) >= self._most_waiting

    def add(self, context: int) -> None:
        self._collecting.append(context)

    def begin_request(self) -> bool:
        """Number a new request for what has collected. False if nothing has, or a request is with the leader."""
        if self._in_flight or not self._collecting:
            return False
        self._in_flight, self._collecting = self._collecting, []
        self.request += 1
        return True

    def answered(self, request: int) -> list[int]:
        """The contexts of the request, if it is the one with the leader."""
        if request != self.request:
            return []
        contexts, self._in_flight = self._in_flight, []
        return contexts

    def take_all(self) -> list[int]:
        """All contexts that wait; none does any more."""
        contexts = self._in_flight + self._collecting
        self._in_flight, self._collecting = [], []
        return contexts
