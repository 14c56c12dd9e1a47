"""Handing the leadership over."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell
from znoded.zab_raft.core.conf_change import ConfChange, Step, StepKind
from znoded.zab_raft.core.errors import Reason, Refused
from znoded.zab_raft.core.messages import AppendRequest, TimeoutNow, VoteRequest
from znoded.zab_raft.core.node import Role


def transfer(cell: Cell, target: int) -> None:
    cell.do(1, lambda node: node.transfer_leader(target))


def refusal(cell: Cell, target: int) -> Reason:
    with pytest.raises(Refused) as refused:
        cell[1].transfer_leader(target)
    return refused.value.reason


def test_l10_a_member_that_has_everything_leads_at_once() -> None:
    cell = Cell()
    cell.elect(1)
    transfer(cell, 3)
    cell.settle()
    assert (cell[3].role, cell[3].term) == (Role.LEADER, 2)
    assert {member.node.leader for member in cell.members.values()} == {3}
    assert not any("pre_vote" in note for note in cell.notes if "VoteRequest" in note and note.startswith("3->"))


def test_l10_a_member_that_lags_is_brought_up_to_date_first() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle(lambda message: 3 not in (message.sender, message.to))
    cell.take()
    cell.do(1, lambda node: node.unreachable(3))
    transfer(cell, 3)
    assert [type(message) for message in cell.transit] == [AppendRequest]
    cell.settle()
    assert cell[3].role is Role.LEADER


def test_l10_proposals_are_refused_while_it_lasts() -> None:
    cell = Cell()
    cell.elect(1)
    transfer(cell, 3)
    with pytest.raises(Refused) as refused:
        cell[1].propose([b"a"])
    assert refused.value.reason is Reason.TRANSFERRING
    with pytest.raises(Refused) as refused:
        cell[1].propose_change(ConfChange.of(Step(StepKind.REMOVE, 2)))
    assert refused.value.reason is Reason.TRANSFERRING


def test_l10_it_is_given_up_after_an_election_timeout() -> None:
    cell = Cell()
    cell.elect(1)
    transfer(cell, 3)
    for _ in range(10):
        cell.take(lambda message: message.to == 3)
        cell.tick(1)
        cell.settle(lambda message: 3 not in (message.sender, message.to))
    cell.propose(1, b"a")
    assert cell[1].role is Role.LEADER


def test_l10_the_last_target_counts() -> None:
    cell = Cell()
    cell.elect(1)
    transfer(cell, 3)
    transfer(cell, 3)
    assert len(cell.take()) == 1, "asked twice is asked once"
    transfer(cell, 2)
    cell.settle()
    assert cell[2].role is Role.LEADER


def test_l10_to_itself_to_a_learner_or_to_a_stranger_is_refused() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    for target in (1, 3, 9):
        assert refusal(cell, target) is Reason.BAD_TARGET
    cell.propose(1, b"a")


def test_l10_a_target_that_is_removed_ends_it() -> None:
    cell = Cell()
    cell.elect(1)
    cell.do(1, lambda node: node.propose_change(ConfChange.of(Step(StepKind.REMOVE, 3))))
    transfer(cell, 3)
    cell.settle(lambda message: 3 not in (message.sender, message.to))
    cell.propose(1, b"a")
    assert cell[1].role is Role.LEADER


def test_l10_the_targets_request_is_answered_though_the_leader_is_heard() -> None:
    cell = Cell()
    cell.elect(1)
    transfer(cell, 3)
    cell.deliver()
    requests = cell.take(lambda message: isinstance(message, VoteRequest))
    assert [message.transfer for message in requests if isinstance(message, VoteRequest)] == [True, True]
    cell.step(requests[1])
    cell.settle()
    assert cell[3].role is Role.LEADER


def test_only_the_leader_of_the_term_hands_over() -> None:
    cell = Cell()
    cell.elect(1)
    cell.step(TimeoutNow(2, 3, 1))
    cell.step(TimeoutNow(1, 3, 0))
    cell.step(TimeoutNow(2, 3, 5))
    assert cell[3].role is Role.FOLLOWER
    assert not any(isinstance(message, VoteRequest) for message in cell.take())


def test_a_learner_does_not_take_over() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    cell.step(TimeoutNow(1, 3, 1))
    assert cell[3].role is Role.FOLLOWER


def test_only_a_leader_hands_over() -> None:
    cell = Cell()
    with pytest.raises(Refused) as refused:
        cell[1].transfer_leader(2)
    assert refused.value.reason is Reason.NOT_LEADER
