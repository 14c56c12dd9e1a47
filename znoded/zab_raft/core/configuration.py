"""Who is in the cell, and who decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from znoded.zab_raft.core.errors import InvariantBroken

NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a cell.

    While it is joint, `outgoing` are the voters before the change and every decision needs a majority of either half.
    `learners_next` are voters of the outgoing half that become learners when it is left. `auto_leave`: the leader
    leaves it as soon as it can. `highest_id` is the greatest id there ever was: an id is used once, and for ever.

    A member that has not heard of its cell yet has the empty configuration.
    """

    voters: frozenset[int] = NONE
    outgoing: frozenset[int] = NONE
    learners: frozenset[int] = NONE
    learners_next: frozenset[int] = NONE
    auto_leave: bool = False
    highest_id: int = 0

    @classmethod
    def of(cls, voters: Iterable[int], learners: Iterable[int] = ()) -> Configuration:
        """The configuration that a cell begins with."""
        first = frozenset(voters), frozenset(learners)
        configuration = cls(first[0], learners=first[1], highest_id=max(first[0] | first[1], default=0))
        configuration.check()
        return configuration

    @property
    def joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def deciders(self) -> frozenset[int]:
        """All that vote and count, in one half or both."""
        return self.voters | self.outgoing

    @property
    def members(self) -> frozenset[int]:
        return self.voters | self.outgoing | self.learners

    def has_left(self, member: int) -> bool:
        """The id was removed, so that its messages mean nothing any more."""
        return member <= self.highest_id and member not in self.members

    def check(self) -> None:
        """Raise InvariantBroken unless this is a configuration that can be."""
        wrong = (
            (self.deciders & self.learners, "both voter and learner"),
            (self.learners_next - self.outgoing, "to become learners and no outgoing voters"),
            (self.learners_next & self.voters, "to become learners and incoming voters"),
            ({member for member in self.members if not 0 < member <= self.highest_id}, "not ids of this cell"),
        )
        for members, fault in wrong:
            if members:
                raise InvariantBroken(f"{self}: {sorted(members)} are {fault}")
        if self.auto_leave and not self.joint:
            raise InvariantBroken(f"{self}: nothing to leave")
        if self.members and not self.voters:
            raise InvariantBroken(f"{self}: no voters")

    def __str__(self) -> str:
        parts = [f"voters={_ids(self.voters)}"]
        if self.joint:
            parts.append(f"outgoing={_ids(self.outgoing)}")
        if self.learners:
            parts.append(f"learners={_ids(self.learners)}")
        if self.learners_next:
            parts.append(f"learners_next={_ids(self.learners_next)}")
        if self.auto_leave:
            parts.append("auto_leave")
        return " ".join(parts)


def _ids(members: frozenset[int]) -> str:
    return "(" + " ".join(map(str, sorted(members))) + ")"
