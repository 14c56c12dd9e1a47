"""Changing the members while the cell works."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell, Filter
from znoded.zab_raft.core.conf_change import LEAVE_JOINT, ChangeKind, ConfChange, Step, StepKind
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken, Reason, Refused
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    Message,
    VoteRequest,
    VoteResponse,
)
from znoded.zab_raft.core.node import Role
from znoded.zab_raft.core.options import Options

THREE = Configuration.of([1, 2, 3])


def add(member: int) -> Step:
    return Step(StepKind.ADD_VOTER, member)


def learn(member: int) -> Step:
    return Step(StepKind.ADD_LEARNER, member)


def remove(member: int) -> Step:
    return Step(StepKind.REMOVE, member)


def joint(*steps: Step, auto_leave: bool = False) -> ConfChange:
    return ConfChange(ChangeKind.ENTER_JOINT, steps, auto_leave)


def change(cell: Cell, leader: int, what: ConfChange) -> None:
    cell.do(leader, lambda node: node.propose_change(what))


def refusal(cell: Cell, what: ConfChange) -> Reason:
    with pytest.raises(Refused) as refused:
        cell[1].propose_change(what)
    return refused.value.reason


def catch_up(cell: Cell, leader: int) -> None:
    """Whoever needs a snapshot gets one."""
    for _ in range(3):
        cell.settle()
        if cell[leader].checkpoint_wanted:
            cell.members[leader].compact()
        cell.tick(leader)
    cell.settle()


def change_entry(index: int, term: int, what: ConfChange) -> Entry:
    return Entry(index, term, EntryKind.CONFIGURATION, what.encode())


def among(*members: int) -> Filter:
    return lambda message: {message.sender, message.to} <= set(members)


def configurations(cell: Cell) -> dict[int, str]:
    return {member.id: str(member.node.configuration) for member in cell.members.values()}


def test_m1_a_voter_is_added_and_removed() -> None:
    cell = Cell()
    cell.elect(1)
    cell.add(4)
    change(cell, 1, ConfChange.of(add(4)))
    catch_up(cell, 1)
    assert set(configurations(cell).values()) == {"voters=(1 2 3 4)"}
    change(cell, 1, ConfChange.of(remove(2)))
    cell.settle()
    assert cell[4].configuration.voters == {1, 3, 4}
    assert refusal(cell, ConfChange(ChangeKind.SIMPLE, (remove(3), remove(4)))) is Reason.BAD_CHANGE


def test_m3_one_change_at_a_time() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[1].applies = False
    change(cell, 1, ConfChange.of(learn(4)))
    assert refusal(cell, ConfChange.of(learn(5))) is Reason.CHANGE_PENDING
    cell.settle()
    assert refusal(cell, ConfChange.of(learn(5))) is Reason.CHANGE_PENDING, "committed is not applied"
    cell.members[1].apply()
    change(cell, 1, ConfChange.of(learn(5)))


def test_m3_a_new_leader_waits_for_what_its_predecessor_may_have_proposed() -> None:
    cell = Cell()
    cell.elect(1)
    cell.elect(2)
    cell.elect(1)
    cell.members[1].applies = False
    cell.propose(1, b"a")
    cell.settle()
    cell.elect(2)
    cell.elect(1)
    assert refusal(cell, ConfChange.of(learn(5))) is Reason.CHANGE_PENDING
    cell.members[1].apply()
    change(cell, 1, ConfChange.of(learn(5)))


def test_m3_a_joint_configuration_is_left_before_the_next_change() -> None:
    cell = Cell()
    cell.elect(1)
    change(cell, 1, joint(remove(3)))
    cell.settle()
    assert refusal(cell, ConfChange.of(learn(5))) is Reason.BAD_CHANGE
    change(cell, 1, LEAVE_JOINT)
    cell.settle()
    assert configurations(cell)[1] == "voters=(1 2)"
    assert refusal(cell, LEAVE_JOINT) is Reason.BAD_CHANGE


def test_m4_b2_no_change_before_a_commit_of_the_own_term() -> None:
    """The case of Ongaro 2015: two leaders, each with a change of one member that the other one does not know."""
    cell = Cell([1, 2, 3, 4])
    cell.do(1, lambda node: node.campaign())
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    assert cell[1].role is Role.LEADER
    assert refusal(cell, ConfChange.of(add(5))) is Reason.NO_COMMIT_IN_TERM
    cell.settle()
    change(cell, 1, ConfChange.of(add(5)))


def test_m5_b19_no_campaign_with_a_change_that_is_not_applied() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[2].applies = False
    change(cell, 1, ConfChange.of(learn(4)))
    cell.settle()
    cell.do(2, lambda node: node.campaign())
    assert cell[2].role is Role.FOLLOWER
    cell.members[2].apply()
    cell.do(2, lambda node: node.campaign())
    assert cell[2].role is Role.PRE_CANDIDATE


def test_m5_a_member_with_an_open_change_does_not_take_over_either() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[2].applies = False
    change(cell, 1, ConfChange.of(learn(4)))
    cell.settle()
    cell.do(1, lambda node: node.transfer_leader(2))
    cell.settle()
    assert cell[2].role is Role.FOLLOWER


def test_m6_b35_an_open_change_in_front_of_another_is_noticed() -> None:
    cell = Cell()
    entries = (change_entry(1, 1, ConfChange.of(learn(4))), change_entry(2, 1, ConfChange.of(learn(5))))
    with pytest.raises(InvariantBroken, match="none is committed"):
        cell.step(AppendRequest(1, 2, 1, 0, 0, entries, 0))


def test_m6_b35_a_change_and_the_commit_of_the_last_one_are_stored_together() -> None:
    """In one record: torn apart, a member would come back with two changes and not know that the first one counts."""
    cell = Cell()
    cell.elect(1)
    change(cell, 1, ConfChange.of(learn(4)))
    cell.settle(among(1, 2))
    cell.take()
    change(cell, 1, ConfChange.of(learn(5)))
    cell.take()
    cell.do(1, lambda node: node.unreachable(3))
    cell.tick(1)
    member = cell.members[3]
    member.syncs = False
    cell.settle(among(1, 3))
    for ready in member.writes:
        changes = [entry.index for entry in ready.entries if entry.kind is EntryKind.CONFIGURATION]
        assert all(index <= ready.hard_state.commit for index in changes[:-1])
    assert sum(len(ready.entries) for ready in member.writes) == 2


def test_m6_a_stored_log_with_two_open_changes_is_refused() -> None:
    cell = Cell()
    entries = [change_entry(1, 1, ConfChange.of(learn(4))), change_entry(2, 1, ConfChange.of(learn(5)))]
    with pytest.raises(InvariantBroken, match="none is committed"):
        cell.add(2, THREE, entries, HardState(1, 0, 0))
    cell.add(2, THREE, entries, HardState(1, 0, 1))


def test_m7_b32_a_removed_leader_steps_down_and_the_others_go_on() -> None:
    cell = Cell()
    cell.elect(1)
    change(cell, 1, ConfChange.of(remove(1)))
    cell.settle()
    assert cell[1].role is Role.FOLLOWER
    cell.tick(1, 50)
    assert cell[1].role is Role.FOLLOWER, "it is no voter any more"
    assert [cell[member].configuration.voters for member in (2, 3)] == [{2, 3}, {2, 3}]
    cell.elect(2)


def test_m7_s11_a_leader_that_is_being_removed_does_not_count_itself() -> None:
    cell = Cell([1, 2, 3])
    cell.elect(1)
    change(cell, 1, joint(remove(1), remove(2)))
    cell.settle()
    assert configurations(cell)[1] == "voters=(3) outgoing=(1 2 3)"
    cell.propose(1, b"a")
    cell.settle(among(1, 2))
    assert cell[1].committed_index == 2, "two of the three, but none of the one"
    cell.settle()
    assert cell[1].committed_index == 3


def test_m7_a_demoted_leader_steps_down() -> None:
    cell = Cell()
    cell.elect(1)
    change(cell, 1, ConfChange.of(learn(1)))
    cell.settle()
    assert cell[1].role is Role.FOLLOWER
    assert cell[1].configuration == Configuration(frozenset({2, 3}), learners=frozenset({1}), highest_id=3)


def test_m8_b20_the_leader_leaves_a_joint_configuration_once() -> None:
    cell = Cell()
    cell.elect(1)
    cell.add(4)
    cell.add(5)
    change(cell, 1, ConfChange.of(add(4), add(5)))
    cell.deliver()
    cell.deliver()
    assert cell[1].configuration.joint
    cell.tick(1, 3)
    leaves = [entry for entry in cell.members[1].entries if entry.data == LEAVE_JOINT.encode()]
    assert len(leaves) == 1
    catch_up(cell, 1)
    assert set(configurations(cell).values()) == {"voters=(1 2 3 4 5)"}


def test_m8_l11_a_new_leader_leaves_the_joint_configuration() -> None:
    cell = Cell()
    cell.elect(1)
    change(cell, 1, joint(remove(3), auto_leave=True))
    cell.deliver()
    cell.deliver(lambda message: isinstance(message, AppendResponse))
    assert cell[1].configuration.joint
    cell.take()
    cell.elect(2)
    cell.settle()
    assert configurations(cell)[2] == "voters=(1 2)"


def test_l11_a_transfer_that_fails_does_not_keep_the_cell_joint() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[1].applies = False
    change(cell, 1, joint(remove(3), auto_leave=True))
    cell.settle()
    cell.do(1, lambda node: node.transfer_leader(2))
    cell.take()
    cell.members[1].apply()
    cell.members[1].applies = True
    assert cell[1].configuration.joint
    for _ in range(10):
        cell.tick(1)
        cell.settle(lambda message: 2 not in (message.sender, message.to) or isinstance(message, Heartbeat))
    cell.settle()
    assert configurations(cell)[1] == "voters=(1 2)"


def test_m9_progress_is_kept_when_a_member_is_promoted_and_demoted() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle()
    for what in (add(3), learn(3)):
        change(cell, 1, ConfChange.of(what))
        match = cell[1].progress[3].match_index
        cell.settle()
        assert cell[1].progress[3].match_index >= match >= 2


def test_m13_a_learner_does_not_count() -> None:
    cell = Cell([1, 2], learners=[3, 4, 5])
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle(lambda message: 2 not in (message.sender, message.to))
    assert cell[1].committed_index == 1
    for _ in range(20):
        cell.tick(1)
        cell.settle(lambda message: 2 not in (message.sender, message.to))
        cell.take()
    assert cell[1].role is Role.FOLLOWER, "their answers keep no quorum"


def test_m2_a_joint_commit_needs_both_halves() -> None:
    cell = Cell([1, 2, 3])
    cell.elect(1)
    change(cell, 1, joint(remove(2), remove(3)))
    cell.settle()
    cell.propose(1, b"a")
    assert cell[1].committed_index == 2, "all of the one voter, one of the three"
    cell.settle(among(1, 3))
    assert cell[1].committed_index == 3


def test_m2_a_joint_election_needs_both_halves() -> None:
    cell = Cell([1, 2, 3, 4, 5])
    cell.elect(1)
    change(cell, 1, joint(remove(3), remove(4), remove(5)))
    cell.settle()
    for member in cell.members.values():
        member.node.forget_leader()
    cell.do(2, lambda node: node.campaign())
    cell.settle(among(2, 3, 4, 5))
    assert cell[2].role is Role.PRE_CANDIDATE, "four of five, but one of the new two"
    cell.step(VoteResponse(1, 2, 2, True, True, 2, 1))
    assert cell[2].role is Role.CANDIDATE


def test_m2_a_joint_leader_needs_both_halves_to_stay() -> None:
    cell = Cell([1, 2, 3, 4, 5])
    cell.elect(1)
    change(cell, 1, joint(remove(3), remove(4), remove(5)))
    cell.settle()
    for _ in range(21):
        cell.tick(1)
        cell.settle(lambda message: 2 not in (message.sender, message.to))
        cell.take()
    assert cell[1].role is Role.FOLLOWER


def test_l12_b21_what_each_half_knows_of_the_commit_is_told_with_the_votes() -> None:
    """3 knows that the change to {2, 3, 4} is committed, and cannot win; 1 could win, and does not know.

    etcd #12359: a majority of both halves is up, and elects nobody.
    """
    first = Configuration.of([1, 2, 3])
    entry = change_entry(1, 1, joint(remove(1), add(4)))
    later = Entry(2, 1, EntryKind.COMMAND, b"x")
    cell = Cell([1, 2, 3], options=Options(election_ticks=10))
    cell.add(1, first, [entry, later], HardState(1, NOBODY, 0))
    cell.add(2, first, [entry, later], HardState(1, NOBODY, 0))
    cell.add(3, first, [entry], HardState(1, NOBODY, 1))
    cell.add(4, first, [entry], HardState(1, NOBODY, 1))
    for member in (3, 4):
        cell.members[member].pump()
    assert cell[3].configuration.joint
    for _ in range(3):
        for member in (3, 2):
            cell.tick(member, 20)
            cell.settle(lambda message: 1 not in (message.sender, message.to))
            cell.take()
    assert cell.leader is not None
    assert cell.leader.id in (2, 3)


def test_l12_a_candidate_that_learns_of_a_change_stops() -> None:
    cell = Cell()
    entry = change_entry(1, 1, ConfChange.of(learn(4)))
    cell.add(1, THREE, [entry], HardState(1, NOBODY, 0))
    cell.members[1].applies = False
    cell.do(1, lambda node: node.campaign())
    cell.step(VoteResponse(2, 1, 1, True, False, 1, 1))
    assert (cell[1].role, cell[1].committed_index) == (Role.FOLLOWER, 1)


def test_l12_a_commit_is_learned_only_with_the_entry() -> None:
    cell = Cell()
    entry = Entry(1, 1, EntryKind.COMMAND, b"")
    cell.add(1, THREE, [entry], HardState(3, NOBODY, 0))
    for commit in ((1, 2), (2, 1), (0, 0)):
        cell.step(VoteRequest(2, 1, 3, True, False, 5, 2, *commit))
        assert cell[1].committed_index == 0
    cell.step(VoteRequest(2, 1, 3, True, False, 5, 2, 1, 1))
    assert cell[1].committed_index == 1


def test_m14_a_removed_member_is_not_heard() -> None:
    cell = Cell()
    cell.elect(1)
    change(cell, 1, ConfChange.of(remove(3)))
    cell.settle()
    noise: list[Message] = [
        VoteRequest(3, 1, 99, False, True, 99, 99, 0, 0),
        VoteRequest(3, 1, 99, True, False, 99, 99, 0, 0),
        Heartbeat(3, 1, 99, 0, 0),
        AppendResponse(3, 1, 99, 0),
    ]
    for message in noise:
        cell.step(message)
    assert (cell[1].role, cell[1].term) == (Role.LEADER, 1)
    assert cell.take() == []


def test_m14_a_removed_id_does_not_come_back() -> None:
    cell = Cell()
    cell.elect(1)
    change(cell, 1, ConfChange.of(remove(3)))
    cell.settle()
    assert refusal(cell, ConfChange.of(add(3))) is Reason.BAD_CHANGE


def test_l17_a_quorum_can_need_a_learner_that_was_promoted_unaware() -> None:
    """2 knows that 3 votes; 3 and 4, who know of no change, have to answer."""
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    change(cell, 1, ConfChange.of(add(3)))
    cell.settle(among(1, 2))
    cell.take()
    assert cell[2].configuration.voters == {1, 2, 3}
    assert cell[3].configuration.voters == {1, 2}
    cell.tick(2, 20)
    cell.tick(3, 20)
    cell.settle(among(2, 3))
    assert cell[2].role is Role.LEADER
    assert cell[3].configuration.voters == {1, 2, 3}


def test_a_new_member_does_not_cost_the_leader_its_quorum() -> None:
    cell = Cell([1])
    cell.elect(1)
    cell.tick(1, 9)
    cell.add(2)
    change(cell, 1, ConfChange.of(add(2)))
    assert cell[1].configuration.voters == {1, 2}
    cell.tick(1)
    assert cell[1].role is Role.LEADER


def test_five_replace_three_one_by_one_under_load() -> None:
    cell = Cell()
    cell.elect(1)
    for new in (4, 5, 6):
        cell.add(new)
        cell.propose(1, b"before %d" % new)
        change(cell, 1, ConfChange.of(learn(new)))
        catch_up(cell, 1)
        change(cell, 1, ConfChange.of(add(new), remove(new - 2)))
        catch_up(cell, 1)
    assert cell[6].configuration.voters == {1, 5, 6}
    assert cell[6].applied_index == cell[1].applied_index
