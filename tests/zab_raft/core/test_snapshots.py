"""Members that need what the leader has no longer."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell
from znoded.zab_raft.core.conf_change import ChangeKind, ConfChange, Step, StepKind
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    InstallSnapshot,
    Message,
    Snapshot,
)
from znoded.zab_raft.core.node import Role
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.progress import Mode

THREE = Configuration.of([1, 2, 3])


def lagging(options: Options | None = None) -> Cell:
    """Member 3 needs a snapshot, which is under way to it: of the entries up to 4."""
    cell = Cell(options=options)
    cell.elect(1)
    cell.propose(1, b"a", b"b", b"c")
    cell.settle(lambda message: 3 not in (message.sender, message.to))
    cell.take()
    cell.members[1].compact()
    cell.propose(1, b"d")
    cell.settle(lambda message: 3 not in (message.sender, message.to))
    cell.take()
    cell.do(1, lambda node: node.unreachable(3))
    cell.tick(1)
    cell.settle(lambda message: not isinstance(message, InstallSnapshot))
    assert cell[1].progress[3].mode is Mode.SNAPSHOT
    return cell


def snapshots(messages: list[Message]) -> list[InstallSnapshot]:
    return [message for message in messages if isinstance(message, InstallSnapshot)]


def test_l8_a_member_that_lags_far_gets_a_snapshot_and_then_the_rest() -> None:
    cell = lagging()
    cell.settle()
    assert cell[1].progress[3].mode is Mode.REPLICATE
    assert cell[3].applied_index == 5
    assert cell.members[3].commands == [b"d"]
    assert cell.members[3].snapshot == Snapshot(4, 1, THREE)


def test_l8_nothing_else_is_sent_while_it_is_under_way() -> None:
    cell = lagging()
    held = cell.take()
    cell.propose(1, b"e")
    cell.tick(1, 3)
    assert [message for message in cell.take() if message.to == 3 and isinstance(message, AppendRequest)] == []
    cell.step(held[0])
    cell.settle()
    assert cell[3].applied_index == 6


@pytest.mark.parametrize("delivered", [True, False])
def test_l8_a_report_leads_back_to_replication(delivered: bool) -> None:
    cell = lagging()
    held = cell.take()
    if delivered:
        cell.step(held[0])
        cell.take()  # the answer is lost
    cell.do(1, lambda node: node.snapshot_finished(3, delivered))
    assert cell[1].progress[3].mode is Mode.PROBE
    for _ in range(2):
        cell.tick(1)
        cell.settle()
    assert cell[3].applied_index == 5


def test_l8_a_report_about_no_snapshot_is_nothing() -> None:
    cell = Cell()
    cell.elect(1)
    for member in (2, 9):
        cell.do(1, lambda node, member=member: node.snapshot_finished(member, True))  # type: ignore[misc]
        cell.do(1, lambda node, member=member: node.snapshot_progressed(member))  # type: ignore[misc]
    cell.do(2, lambda node: node.snapshot_finished(1, True))
    cell.do(2, lambda node: node.snapshot_progressed(1))
    assert cell[1].progress[2].mode is Mode.REPLICATE


def test_l8_a_snapshot_without_a_report_has_a_deadline() -> None:
    cell = lagging(Options(snapshot_ticks=20))
    cell.take()
    for _ in range(22):
        cell.tick(1)
        cell.settle()
    assert cell[3].applied_index == 5


def test_l8_b31_progress_gives_a_snapshot_its_time_and_the_leader_its_quorum() -> None:
    cell = lagging(Options(snapshot_ticks=20))
    cell.take()
    for _ in range(60):
        cell.tick(1)
        cell.take()
        cell.do(1, lambda node: node.snapshot_progressed(3))
    assert cell[1].role is Role.LEADER
    assert cell[1].progress[3].mode is Mode.SNAPSHOT


def test_l8_b18_whatever_connects_the_logs_ends_the_snapshot() -> None:
    """The member got a newer snapshot than the one that is waited for, or an older one that is enough."""
    for index in (4, 5):
        cell = lagging()
        cell.take()
        cell.members[3].syncs = True
        cell.step(InstallSnapshot(1, 3, 1, Snapshot(index, 1, THREE)))
        cell.settle()
        assert cell[1].progress[3].mode is Mode.REPLICATE
        assert cell[3].applied_index == 5


def test_l8_b18_an_acknowledgement_behind_the_pending_index_is_enough() -> None:
    cell = lagging()
    cell.take()
    cell[1].progress[3].pending_snapshot = 5
    cell.step(AppendResponse(3, 1, 1, 4))
    assert cell[1].progress[3].mode is Mode.REPLICATE


def test_l8_an_acknowledgement_too_far_behind_is_not() -> None:
    cell = lagging()
    cell.take()
    cell.step(AppendResponse(3, 1, 1, 2))
    assert cell[1].progress[3].mode is Mode.SNAPSHOT
    cell.step(AppendResponse(3, 1, 1, 2, rejected=True))
    assert cell[1].progress[3].mode is Mode.SNAPSHOT


def test_a_member_that_was_silent_gets_no_snapshot() -> None:
    cell = lagging()
    cell.take()
    cell.do(1, lambda node: node.snapshot_finished(3, False))
    cell[1].progress[3].recently_active = False
    cell[1].progress[3].paused = False
    cell.propose(1, b"e")
    assert snapshots(cell.take()) == []


@pytest.mark.parametrize(("next_index", "kind"), [(5, AppendRequest), (4, InstallSnapshot)])
def test_b15_an_append_reaches_back_to_the_snapshot_and_no_further(next_index: int, kind: type[Message]) -> None:
    cell = lagging()
    cell.take()
    progress = cell[1].progress[3]
    progress.snapshot_failed()
    progress.next_index = next_index
    cell.propose(1, b"e")
    sent = [message for message in cell.take() if message.to == 3]
    assert [type(message) for message in sent] == [kind]
    if isinstance(sent[0], AppendRequest):
        assert (sent[0].previous_index, sent[0].previous_term) == (4, 1)


def test_b16_a_snapshot_changes_neither_term_nor_vote() -> None:
    cell = Cell()
    cell.add(3, THREE, hard_state=HardState(7, 2, 0))
    cell.step(InstallSnapshot(1, 3, 7, Snapshot(9, 3, THREE)))
    assert cell.members[3].hard_state == HardState(7, 2, 9)
    assert (cell[3].term, cell[3].raft.vote) == (7, 2)


def test_s8_a_snapshot_that_matches_keeps_what_is_behind_it() -> None:
    cell = Cell()
    entries = [Entry(index, 1, EntryKind.COMMAND, b"") for index in (1, 2, 3, 4)]
    cell.add(3, THREE, entries, HardState(1, 0, 1))
    cell.step(InstallSnapshot(1, 3, 1, Snapshot(3, 1, THREE)))
    assert (cell[3].last_index, cell[3].committed_index) == (4, 3)
    assert cell.members[3].snapshot.index == 0
    assert cell.take() == [AppendResponse(3, 1, 1, 3)]


def test_s8_a_snapshot_that_does_not_match_replaces_the_log() -> None:
    cell = Cell()
    entries = [Entry(index, 1, EntryKind.COMMAND, b"") for index in (1, 2, 3, 4)]
    cell.add(3, THREE, entries, HardState(1, 0, 1))
    cell.step(InstallSnapshot(1, 3, 2, Snapshot(3, 2, THREE)))
    assert (cell[3].last_index, cell[3].applied_index) == (3, 3)


def test_a_snapshot_behind_the_commit_is_passed_over() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle()
    cell.members[3].compact()  # so that the log does not show any more that it matches
    cell.step(InstallSnapshot(1, 3, 1, Snapshot(1, 1, THREE)))
    assert cell.take() == [AppendResponse(3, 1, 1, 2)]
    assert (cell.members[3].snapshot.index, cell[3].applied_index) == (2, 2)


def test_m12_a_snapshot_without_the_receiver_is_refused() -> None:
    cell = Cell()
    cell.step(InstallSnapshot(1, 3, 1, Snapshot(5, 1, Configuration.of([1, 2]))))
    assert (cell[3].last_index, cell[3].configuration) == (0, THREE)


def test_m12_a_joint_snapshot_restores_all_of_the_configuration() -> None:
    joint = Configuration(
        voters=frozenset({1, 4}),
        outgoing=frozenset({1, 2, 3}),
        learners_next=frozenset({2}),
        auto_leave=True,
        highest_id=4,
    )
    cell = Cell()
    cell.step(InstallSnapshot(1, 3, 1, Snapshot(5, 1, joint)))
    assert cell[3].configuration == joint
    cell.members[3].restart()
    assert cell[3].configuration == joint


def test_m12_a_checkpoint_has_the_configuration_that_is_applied() -> None:
    cell = Cell([1])
    cell.elect(1)
    cell.members[1].applies = False
    cell.do(1, lambda node: node.propose_change(ConfChange.of(Step(StepKind.ADD_LEARNER, 2))))
    assert cell[1].committed_index == 2
    assert cell[1].snapshot() == Snapshot(1, 1, Configuration.of([1]))
    cell.members[1].apply()
    assert cell[1].snapshot() == Snapshot(2, 1, Configuration.of([1], [2]))


def test_m5_no_campaign_while_a_snapshot_is_installed() -> None:
    cell = lagging()
    cell.members[3].syncs = False
    cell.deliver()
    assert cell[3].snapshot() is None
    cell.do(3, lambda node: node.campaign())
    cell.tick(3, 40)
    assert cell[3].role is Role.FOLLOWER
    cell.members[3].sync()
    cell.do(3, lambda node: node.campaign())
    assert cell[3].role is Role.PRE_CANDIDATE


def test_d5_the_commit_stored_with_a_snapshot_does_not_pass_it() -> None:
    cell = lagging()
    cell.members[3].syncs = False
    install = cell.take()[0]
    cell[3].step(install)
    cell[3].step(AppendRequest(1, 3, 1, 4, 1, (Entry(5, 1, EntryKind.COMMAND, b"d"),), 5))
    first, second = cell[3].ready(), cell[3].ready()
    assert first is not None
    assert second is not None
    assert (first.snapshot, first.entries, first.hard_state.commit) == (Snapshot(4, 1, THREE), [], 4)
    assert ([entry.index for entry in second.entries], second.hard_state.commit) == ([5], 5)


def test_what_was_being_applied_gives_way_to_a_snapshot() -> None:
    cell = Cell()
    cell.elect(1)
    member = cell.members[3]
    member.applies = member.syncs = False
    cell.propose(1, b"a")
    cell.settle()
    member.sync()
    member.pump()
    assert [entry.index for entry in member.to_apply] == [2]
    cell.step(InstallSnapshot(1, 3, 1, Snapshot(9, 1, THREE)))
    cell[3].applied(2)
    assert cell[3].applied_index == 1
    member.sync()
    assert cell[3].applied_index == 9
    cell[3].applied(2)
    assert cell[3].applied_index == 9


def test_a_blank_member_is_given_a_snapshot_even_if_the_log_is_whole() -> None:
    """It has no configuration to begin with, and the entries alone would give it a wrong one."""
    cell = Cell([1, 2])
    cell.elect(1)
    cell.add(3)
    cell.do(1, lambda node: node.propose_change(ConfChange.of(Step(StepKind.ADD_LEARNER, 3))))
    cell.settle()
    assert cell[3].last_index == 0
    assert cell[1].checkpoint_wanted
    cell.members[1].compact(keep_from=1)
    assert not cell[1].checkpoint_wanted
    cell.tick(1)
    cell.settle()
    assert cell[3].configuration == Configuration.of([1, 2], [3])
    assert cell[3].applied_index == 2
    cell.propose(1, b"a")
    cell.settle()
    assert cell.members[3].commands == [b"a"]


def test_a_blank_member_asks_for_one_snapshot_at_a_time() -> None:
    cell = Cell([1, 2])
    cell.elect(1)
    cell.add(3)
    cell.do(1, lambda node: node.propose_change(ConfChange.of(Step(StepKind.ADD_LEARNER, 3))))
    cell.settle()
    cell.members[1].compact()
    cell.step(AppendResponse(3, 1, 1, 0, rejected=True, blank=True))
    cell.step(AppendResponse(3, 1, 1, 0, rejected=True, blank=True))
    assert len(snapshots(cell.take())) == 1


def test_a_checkpoint_older_than_a_snapshot_that_came_is_passed_over() -> None:
    cell = Cell()
    cell.elect(1)
    old = cell[3].snapshot()
    assert old is not None
    cell.step(InstallSnapshot(1, 3, 1, Snapshot(9, 1, THREE)))
    cell[3].compact(old, keep_from=2)
    assert cell[3].raft.log.stored.snapshot.index == 9


def test_entries_of_a_change_that_a_snapshot_has_are_not_made_again() -> None:
    cell = lagging()
    joint = ConfChange(ChangeKind.ENTER_JOINT, (Step(StepKind.REMOVE, 2),), auto_leave=True)
    cell.do(1, lambda node: node.propose_change(joint))
    cell.settle()
    cell.tick(1)
    cell.settle()
    assert [cell[member].configuration.voters for member in (1, 3)] == [{1, 3}, {1, 3}]


def test_a_member_whose_changes_cannot_be_made_stops() -> None:
    cell = Cell([1])
    cell.elect(1)
    cell[1].raft.leadership._append(EntryKind.CONFIGURATION, [b"nonsense"])  # type: ignore[union-attr]
    with pytest.raises(InvariantBroken, match="the change at 2 cannot be made here"):
        cell.members[1].pump()
