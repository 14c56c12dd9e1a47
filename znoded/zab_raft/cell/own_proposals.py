"""What was proposed at this member and is not applied yet: it is kept until it is, whoever leads meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

#: The leader has about so much that is not applied yet. The way there holds more, or all that waited for a leader would
#: break the connection as soon as there is one, again and again.
GIVEN_BYTES_LIMIT = 16 << 20


class ChangeRequest(NamedTuple):
    """A change of the members that a client asked for. What comes to be applied is what a leader made of it."""

    command: bytes


#: A command of the state machine, or a change of the members.
Proposal = bytes | ChangeRequest


class OwnProposals:
    """In the order in which they were proposed, of which the first are with the leader already.

    Handing one over twice does no harm: the state machine refuses a repetition.
    """

    def __init__(self, original: Callable[[bytes], bytes]) -> None:
        """`original` tells which request for a change a leader made a command of."""
        self._original = original
        self._proposals: deque[Proposal] = deque()
        self._to_give = 0
        self._given_bytes = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._proposals)

    @property
    def all_given(self) -> bool:
        """The leader has all of them."""
        return not self._to_give

    def add(self, proposals: Iterable[Proposal]) -> None:
        """More was proposed."""
        for proposal in proposals:
            self._proposals.append(proposal)
            self._to_give += 1
            self.size_bytes += _size_bytes(proposal)

    def add_given(self, commands: Sequence[bytes]) -> None:
        """More was proposed, and the leader has it, as it has all before it."""
        size_bytes = sum(map(len, commands))
        self._proposals += commands
        self._given_bytes += size_bytes
        self.size_bytes += size_bytes

    def take(self) -> list[Proposal]:
        """What the leader was not given yet, as far as it has room; it counts as given from now on."""
        taken: list[Proposal] = []
        if self._given_bytes < GIVEN_BYTES_LIMIT:
            for proposal in reversed(list(islice(reversed(self._proposals), self._to_give))):
                taken.append(proposal)
                self._given_bytes += _size_bytes(proposal)
                if self._given_bytes >= GIVEN_BYTES_LIMIT:
                    break
            self._to_give -= len(taken)
        return taken

    def give_again(self) -> None:
        """The leader is another one, or what was given to it may be lost."""
        self._to_give = len(self._proposals)
        self._given_bytes = 0

    def applied(self, commands: Sequence[bytes]) -> None:
        """These were applied, wherever they were proposed; own ones among them are done."""
        proposals = self._proposals
        if not proposals:
            return
        head = proposals[0]
        for command in commands:
            if command == head or (head.__class__ is ChangeRequest and self._original(command) == head[0]):
                size_bytes = _size_bytes(proposals.popleft())
                self.size_bytes -= size_bytes
                if self._to_give > len(proposals):
                    self._to_give -= 1  # an earlier leader had it
                else:
                    self._given_bytes -= size_bytes
                if not proposals:
                    break
                head = proposals[0]


def _size_bytes(proposal: Proposal) -> int:
    return len(proposal if isinstance(proposal, bytes) else proposal.command)
