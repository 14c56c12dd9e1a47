"""Read index: what confirms a read, and what does not."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell
from znoded.zab_raft.core.conf_change import ChangeKind, ConfChange, Step, StepKind
from znoded.zab_raft.core.errors import InvariantBroken, Reason, Refused
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    ReadRequest,
    ReadResponse,
)
from znoded.zab_raft.core.node import Role
from znoded.zab_raft.core.options import Options


def read(cell: Cell, member: int, context: int) -> None:
    cell.do(member, lambda node: node.read_index(context))


def heartbeats(messages: list[Message]) -> list[Heartbeat]:
    return [message for message in messages if isinstance(message, Heartbeat)]


def uncommitted_leader(voters: tuple[int, ...] = (1, 2, 3)) -> Cell:
    """Member 1 leads, and has committed nothing in its term."""
    cell = Cell(voters)
    cell.do(1, lambda node: node.campaign())
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    assert cell[1].role is Role.LEADER
    return cell


@pytest.mark.parametrize("member", [1, 2, 3, 4])
def test_r1_a_read_is_served_at_any_member(member: int) -> None:
    cell = Cell([1, 2, 3], learners=[4])
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle(lambda message: member not in (message.sender, message.to) or member == 1)
    read(cell, member, 7)
    assert cell.members[member].reads == []
    cell.settle()
    assert cell.members[member].reads == [7]
    assert cell.members[member].commands == [b"a"]


def test_r2_b3_no_read_before_the_first_commit_of_the_term() -> None:
    cell = uncommitted_leader()
    read(cell, 1, 7)
    cell.tick(1)
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    assert cell.members[1].reads == []
    cell.settle()
    assert cell.members[1].reads == [7], "it was held, not forgotten"


@pytest.mark.parametrize("member", [1, 2])
def test_a_read_waits_for_the_entry_that_it_has_to_see(member: int) -> None:
    cell = Cell()
    cell.elect(1)
    cell.do(1, lambda node: node.read_behind(node.propose([b"a"])))
    read(cell, member, 7)
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    assert cell.members[member].reads == []
    cell.settle()
    assert cell.members[member].reads == [7]
    assert cell.members[member].commands == [b"a"]


def test_a_read_that_waits_for_an_entry_fails_with_the_leadership() -> None:
    """The entry may never be committed, so nobody is told its index before it is."""
    cell = Cell()
    cell.elect(1)
    cell.do(1, lambda node: node.read_behind(node.propose([b"a"])))
    read(cell, 2, 7)
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    cell.take()
    cell.elect(3)
    cell.settle()
    assert (cell.members[2].reads, cell.members[2].failed_reads) == ([], [7])


def test_only_a_leader_says_what_reads_have_to_see() -> None:
    cell = Cell()
    with pytest.raises(Refused) as refused:
        cell[1].read_behind(1)
    assert refused.value.reason is Reason.NOT_LEADER


def test_r6_a_single_voter_obeys_the_same_rule() -> None:
    cell = Cell([1])
    cell.members[1].syncs = False
    cell.do(1, lambda node: node.campaign())
    cell.members[1].sync(1)
    cell.members[1].pump()
    assert cell[1].role is Role.LEADER
    read(cell, 1, 7)
    assert cell.members[1].reads == []
    cell.members[1].sync()
    cell.members[1].pump()
    assert cell.members[1].reads == [7]
    read(cell, 1, 8)
    assert cell.members[1].reads == [7, 8]
    assert cell.take() == []


def test_r3_b4_an_answer_confirms_the_round_it_was_for_and_no_other() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 1, 5)
    held = cell.take()
    assert [message.position for message in heartbeats(held)] == [1, 1]
    cell.step(held[0])
    first_answer = cell.take()
    cell.step(held[1])
    cell.settle()
    assert cell.members[1].reads == [5]
    read(cell, 1, 5)  # the caller's number again
    cell.take()
    cell.step(first_answer[0])
    assert cell.members[1].reads == [5], "a late answer is no answer to the new round"


def test_r3_a_callers_numbers_may_be_any() -> None:
    cell = Cell()
    cell.elect(1)
    for context in (900, -3, 900):
        read(cell, 1, context)
        cell.settle()
    assert cell.members[1].reads == [900, -3, 900]


def test_r3_an_answer_to_a_round_that_never_was_is_noticed() -> None:
    cell = Cell()
    cell.elect(1)
    with pytest.raises(InvariantBroken, match="confirmed round 9"):
        cell.step(HeartbeatResponse(2, 1, 1, 9))


def test_r4_a_read_needs_a_quorum() -> None:
    cell = Cell([1, 2, 3, 4, 5])
    cell.elect(1)
    read(cell, 1, 7)
    cell.settle(lambda message: {message.sender, message.to} == {1, 2})
    assert cell.members[1].reads == []
    cell.settle(lambda message: {message.sender, message.to} == {1, 3})
    assert cell.members[1].reads == [7]


def test_r4_learners_confirm_nothing() -> None:
    cell = Cell([1, 2], learners=[3, 4])
    cell.elect(1)
    read(cell, 1, 7)
    cell.settle(lambda message: 2 not in (message.sender, message.to))
    assert cell.members[1].reads == []


def test_m2_r4_a_read_needs_both_halves() -> None:
    cell = Cell([1, 2, 3, 4])
    cell.elect(1)
    steps = tuple(Step(StepKind.REMOVE, member) for member in (2, 3)) + (Step(StepKind.ADD_VOTER, 5),)
    cell.add(5)
    cell.members[1].compact()
    change = ConfChange(ChangeKind.ENTER_JOINT, steps)
    cell.do(1, lambda node: node.propose_change(change))
    cell.settle()
    assert str(cell[1].configuration) == "voters=(1 4 5) outgoing=(1 2 3 4)"
    cell.take()
    read(cell, 1, 7)
    cell.settle(lambda message: {message.sender, message.to} <= {1, 2, 3})
    assert cell.members[1].reads == [], "three of five, but one of the new three"
    cell.settle(lambda message: {message.sender, message.to} <= {1, 4})
    assert cell.members[1].reads == [7]


def test_r5_b5_a_deposed_leader_confirms_nothing_and_fails_its_reads() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 1, 7)
    cell.take()
    read(cell, 1, 8)
    for member in (2, 3):
        cell.do(member, lambda node: node.forget_leader())
    cell.do(2, lambda node: node.campaign())
    cell.settle(lambda message: 1 not in (message.sender, message.to))
    assert cell[2].role is Role.LEADER
    cell.propose(2, b"new")
    cell.settle(lambda message: 1 not in (message.sender, message.to))
    assert cell.members[1].reads == []
    cell.tick(1)
    cell.settle()
    assert (cell.members[1].reads, cell.members[1].failed_reads) == ([], [7, 8])


def test_r5_a_leader_in_a_minority_fails_its_reads_when_it_steps_down() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 1, 7)
    cell.tick(1, 20)
    assert (cell.members[1].reads, cell.members[1].failed_reads) == ([], [7])


def test_r5_a_followers_reads_fail_with_its_leader() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 2, 7)
    cell.take()
    cell.tick(2, 10)
    assert cell.members[2].failed_reads == [7]
    with pytest.raises(Refused) as refused:
        cell[2].read_index(8)
    assert refused.value.reason is Reason.NO_LEADER


def test_r5_a_learners_reads_fail_when_its_leader_is_silent() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    read(cell, 3, 7)
    cell.take()
    cell.tick(3, 20)
    assert cell.members[3].failed_reads == [7]
    assert cell[3].leader == NOBODY


def test_r5_who_does_not_lead_any_more_refuses_a_followers_read() -> None:
    cell = Cell()
    cell.elect(1)
    cell.tick(1, 20)
    assert cell[1].role is Role.FOLLOWER
    cell.take()
    read(cell, 2, 7)
    cell.settle()
    assert cell.members[2].failed_reads == [7]


def test_r7_a_read_waits_until_its_index_is_applied() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[1].applies = False
    cell.propose(1, b"a")
    cell.settle()
    read(cell, 1, 7)
    cell.settle()
    assert cell.members[1].reads == []
    cell.members[1].apply()
    cell.members[1].pump()
    assert cell.members[1].reads == [7]


def test_r7_a_read_waits_for_a_snapshot_to_be_installed() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle(lambda message: 3 not in (message.sender, message.to))
    cell.take()
    cell.members[1].compact()
    cell.tick(1)
    cell.members[3].syncs = False
    cell.settle()
    read(cell, 3, 7)
    cell.settle()
    assert cell.members[3].reads == []
    cell.members[3].sync()
    cell.members[3].pump()
    assert cell.members[3].reads == [7]
    assert cell[3].applied_index == 2


def test_r8_what_was_answered_is_forgotten() -> None:
    cell = Cell()
    cell.elect(1)
    for context in range(50):
        read(cell, 1 + context % 3, context)
        cell.settle()
    assert cell[1].raft.leadership is not None
    assert cell[1].raft.leadership.reads_waiting() == []
    assert not cell[2].raft.failed_reads
    assert sorted(cell.members[1].reads + cell.members[2].reads + cell.members[3].reads) == list(range(50))


def test_r9_a_round_covers_only_reads_that_came_before_its_heartbeats() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 1, 7)
    read(cell, 1, 8)
    first = heartbeats(cell.take())
    assert {message.position for message in first} == {1}, "the second read collects, there is no second round yet"
    cell.step(first[0])
    cell.deliver(lambda message: isinstance(message, HeartbeatResponse))
    assert cell.members[1].reads == [7]
    assert {message.position for message in heartbeats(cell.transit)} == {2}
    cell.settle()
    assert cell.members[1].reads == [7, 8]


def test_a_round_that_was_lost_is_confirmed_by_the_next_heartbeat() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 1, 7)
    cell.take()
    cell.tick(1)
    cell.settle()
    assert cell.members[1].reads == [7]


def test_a_followers_request_that_was_lost_is_made_again() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 2, 7)
    read(cell, 2, 8)
    assert len(cell.take()) == 1, "one request is with the leader, the second read collects"
    cell.tick(2)
    cell.settle()
    assert cell.members[2].reads == [7, 8]


def test_r3_a_late_answer_to_a_follower_serves_no_newer_request() -> None:
    cell = Cell()
    cell.elect(1)
    read(cell, 2, 7)
    cell.settle(lambda message: not isinstance(message, ReadResponse))
    answer = cell.take()[0]
    cell.step(answer)
    assert cell.members[2].reads == [7]
    cell.propose(1, b"new")
    cell.settle(lambda message: 2 not in (message.sender, message.to))
    cell.take()
    read(cell, 2, 8)
    cell.step(answer)
    assert cell.members[2].reads == [7]
    cell.step(ReadResponse(3, 2, 1, cell[2].raft._forwarded.request, 1, refused=False))
    assert cell.members[2].reads == [7], "nor one of a member that is not its leader"


def test_reads_that_wait_are_limited() -> None:
    cell = uncommitted_leader()
    cell = Cell(options=Options(reads=2))
    cell.do(1, lambda node: node.campaign())
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    read(cell, 1, 1)
    read(cell, 1, 2)
    with pytest.raises(Refused) as refused:
        cell[1].read_index(3)
    assert refused.value.reason is Reason.READS_FULL
    cell.step(ReadRequest(2, 1, 1, 5))
    assert ReadResponse(1, 2, 1, 5, 0, refused=True) in cell.take()


def test_a_followers_reads_that_wait_are_limited() -> None:
    cell = Cell(options=Options(reads=2))
    cell.elect(1)
    for context in (1, 2, 3):
        read(cell, 2, context)
    with pytest.raises(Refused) as refused:
        cell[2].read_index(4)
    assert refused.value.reason is Reason.READS_FULL


def test_a_shrinking_quorum_confirms_what_waits() -> None:
    cell = Cell([1, 2])
    cell.elect(1)
    change = ConfChange.of(Step(StepKind.REMOVE, 2))
    cell.do(1, lambda node: node.propose_change(change))
    cell.deliver()
    acknowledgement = cell.take(lambda message: isinstance(message, AppendResponse))
    read(cell, 1, 7)
    cell.take()
    for message in acknowledgement:
        cell.step(message)
    assert cell.members[1].reads == [7]
