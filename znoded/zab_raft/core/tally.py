"""One campaign: who was asked, and what they said."""

from __future__ import annotations

from znoded.zab_raft.core import quorum
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.quorum import VoteResult


class Tally:
    """The answers so far. The first answer of a member counts; who is no voter does not."""

    def __init__(self, pre_vote: bool) -> None:
        self.pre_vote = pre_vote
        self._votes: dict[int, bool] = {}

    def record(self, voter: int, granted: bool) -> None:
        self._votes.setdefault(voter, granted)

    def result(self, configuration: Configuration) -> VoteResult:
        return quorum.joint_vote(configuration.voters, configuration.outgoing, self._votes)
