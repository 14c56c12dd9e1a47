"""Majorities of one set of voters, and of both halves of a joint configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

#: What an empty half agrees to: it never holds the other one up.
EVERYTHING = 1 << 62


class VoteResult(Enum):
    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def committed(voters: Collection[int], acknowledged: Mapping[int, int]) -> int:
    """The greatest number that a majority of the voters has acknowledged; who is missing has acknowledged 0."""
    if not voters:
        return EVERYTHING
    ranked = sorted([acknowledged.get(voter, 0) for voter in voters])
    return ranked[(len(ranked) - 1) // 2]


def joint_committed(voters: Collection[int], outgoing: Collection[int], acknowledged: Mapping[int, int]) -> int:
    """The greatest number that a majority of either half has acknowledged."""
    return min(committed(voters, acknowledged), committed(outgoing, acknowledged))


def vote(voters: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Whether a majority of the voters said yes, can still do so, or cannot any more."""
    if not voters:
        return VoteResult.WON
    needed = len(voters) // 2 + 1
    answers = [votes[voter] for voter in voters if voter in votes]
    yes = sum(answers)
    if yes >= needed:
        return VoteResult.WON
    missing = len(voters) - len(answers)
    return VoteResult.PENDING if yes + missing >= needed else VoteResult.LOST


def joint_vote(voters: Collection[int], outgoing: Collection[int], votes: Mapping[int, bool]) -> VoteResult:
    """Won if both halves said yes, lost if one cannot any more."""
    results = vote(voters, votes), vote(outgoing, votes)
    if VoteResult.LOST in results:
        return VoteResult.LOST
    return VoteResult.PENDING if VoteResult.PENDING in results else VoteResult.WON
