"""Majorities: against a naive count, and in both halves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.core import quorum
from znoded.zab_raft.core.quorum import EVERYTHING, VoteResult

VOTERS = st.frozensets(st.integers(1, 9), max_size=9)
ACKNOWLEDGED = st.dictionaries(st.integers(1, 12), st.integers(0, 20))
VOTES = st.dictionaries(st.integers(1, 12), st.booleans())


def naive_committed(voters: frozenset[int], acknowledged: dict[int, int]) -> int:
    """The greatest index that more than half have."""
    for index in range(20, 0, -1):
        if 2 * sum(acknowledged.get(voter, 0) >= index for voter in voters) > len(voters):
            return index
    return 0


@given(VOTERS.filter(bool), ACKNOWLEDGED)
def test_s11_committed_is_what_a_majority_has(voters: frozenset[int], acknowledged: dict[int, int]) -> None:
    assert quorum.committed(voters, acknowledged) == naive_committed(voters, acknowledged)


@given(VOTERS, VOTERS, ACKNOWLEDGED)
def test_m2_joint_committed_needs_both_halves(
    voters: frozenset[int], outgoing: frozenset[int], acknowledged: dict[int, int]
) -> None:
    joint = quorum.joint_committed(voters, outgoing, acknowledged)
    assert joint == min(quorum.committed(voters, acknowledged), quorum.committed(outgoing, acknowledged))
    assert joint == quorum.joint_committed(outgoing, voters, acknowledged)


@given(VOTERS.filter(bool), VOTES)
def test_s10_a_vote_is_decided_by_distinct_voters_only(voters: frozenset[int], votes: dict[int, bool]) -> None:
    yes = sum(votes.get(voter, False) for voter in voters)
    no = sum(not votes.get(voter, True) for voter in voters)
    result = quorum.vote(voters, votes)
    assert (result is VoteResult.WON) == (2 * yes > len(voters))
    assert (result is VoteResult.LOST) == (2 * no >= len(voters))


@given(VOTERS.filter(bool), VOTERS.filter(bool), VOTES)
def test_m2_a_joint_vote_is_won_in_both_halves(
    voters: frozenset[int], outgoing: frozenset[int], votes: dict[int, bool]
) -> None:
    halves = {quorum.vote(voters, votes), quorum.vote(outgoing, votes)}
    result = quorum.joint_vote(voters, outgoing, votes)
    assert (result is VoteResult.WON) == (halves == {VoteResult.WON})
    assert (result is VoteResult.LOST) == (VoteResult.LOST in halves)


@given(VOTERS.filter(bool), VOTERS.filter(bool), VOTES, VOTES)
def test_s1_two_candidates_cannot_both_win_with_one_vote_each(
    voters: frozenset[int], outgoing: frozenset[int], first: dict[int, bool], second: dict[int, bool]
) -> None:
    """Even when the second one already decides by the joint configuration and the first by the old one alone."""
    second = {voter: yes and not first.get(voter, False) for voter, yes in second.items()}
    if quorum.vote(outgoing, first) is VoteResult.WON:
        assert quorum.joint_vote(voters, outgoing, second) is not VoteResult.WON


@pytest.mark.parametrize(
    ("acknowledged", "expected"),
    [
        ({1: 5}, 0),
        ({1: 5, 2: 3}, 3),
        ({1: 5, 2: 3, 3: 9}, 5),
        ({4: 9, 5: 9, 6: 9}, 0),
    ],
)
def test_s11_three_voters_commit(acknowledged: dict[int, int], expected: int) -> None:
    assert quorum.committed({1, 2, 3}, acknowledged) == expected


def test_an_empty_half_never_holds_up_the_other() -> None:
    assert quorum.committed((), {}) == EVERYTHING
    assert quorum.joint_committed({1}, (), {1: 4}) == 4
    assert quorum.joint_vote({1}, (), {1: True}) is VoteResult.WON
