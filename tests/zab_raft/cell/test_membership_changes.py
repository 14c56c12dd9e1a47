"""Members join, vote, leave and come back, through the replica."""

from __future__ import annotations

from pathlib import Path

from tests.zab_raft.cell.cell import Cell
from tests.zab_raft.cell.journal import MADE, change_command, original


def change(cell: Cell, at: int, *numbers: str) -> bytes:
    """Ask for these members at the member `at`; returns what was applied for it."""
    asked = change_command(at, cell.next_sequence(at), *numbers)
    journal = cell[at].journal
    assert cell[at].replica.propose_change(asked)
    cell.run_until(lambda: any(original(each) == asked for each in journal.effects))
    return next(each for each in journal.effects if original(each) == asked)


def voters(cell: Cell, at: int = 1) -> set[int]:
    return set(cell[at].replica.configuration.voters)


def test_member_joins_as_a_learner_and_votes_when_it_has_caught_up(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 20)
    assert change(cell, 1, "1", "2", "3", "4").startswith(MADE)
    assert voters(cell) == {1, 2, 3}
    assert [(each.number, each.phase) for each in cell[1].replica.members()][-1] == (4, "joining")
    cell.join(4)
    cell.run_until(lambda: voters(cell) == {1, 2, 3, 4})
    cell.write(4, 3)
    cell.check()
    assert cell[4].journal.loads == 1
    assert cell[4].replica.mode == "follower"


def test_learner_serves_and_is_an_observer(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    change(cell, 2, "1", "2", "3", "4L")
    cell.join(4)
    cell.run_until(lambda: cell[4].started.called and cell[4].replica.has_leader)
    cell.write(4, 3)
    answers: list[bool] = []
    cell[4].replica.confirm_reads(answers.append)
    cell.run_until(lambda: answers == [True])
    assert cell[4].replica.mode == "observer"
    assert voters(cell) == {1, 2, 3}
    cell.check()


def test_change_that_a_follower_asks_for_is_in_order_with_its_writes(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    before = cell.propose(2, 3)
    asked = change_command(2, cell.next_sequence(2), "1", "2", "3", "4L")
    assert cell[2].replica.propose_change(asked)
    after = cell.propose(2, 3)
    cell.run_until(lambda: set(after) <= set(cell[2].journal.effects))
    effects = [original(each) for each in cell[2].journal.effects]
    assert effects[1:] == [*before, asked, *after]
    cell.check()


def test_m7_leader_that_is_removed_steps_down_and_the_others_go_on(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    change(cell, 2, "2", "3")
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads)
    cell[1].kill()
    cell.write(3, 3)
    cell.check()
    assert voters(cell, 2) == {2, 3}


def test_m14_member_that_comes_back_has_a_new_raft_id(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    change(cell, 1, "1", "2")
    cell[3].kill()
    change(cell, 1, "1", "2", "3")
    cell.join(3).directory = quick_path / "member-3-new"
    cell[3].replica.directory.close()
    cell[3].start()
    cell.run_until(lambda: voters(cell) == {1, 2, 4})
    cell.write(3, 3)
    cell.check()
    assert cell[3].replica.directory.identity.raft_id == 4
    assert cell[1].replica.roster.number(4) == 3


def test_several_members_are_replaced_through_a_joint_configuration(quick_path: Path) -> None:
    cell = Cell(quick_path, members=5).start()
    change(cell, 1, "1", "2", "3")
    cell.run_until(lambda: voters(cell) == {1, 2, 3} and not cell[1].replica.configuration.joint)
    cell[4].kill()
    cell[5].kill()
    cell.write(2, 3)
    cell.check()


def test_m3_second_change_is_not_planned_before_the_first_is_made(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[2].log_thread.held = cell[3].log_thread.held = True
    first = change_command(1, cell.next_sequence(1), "1", "2", "3", "4L")
    second = change_command(1, cell.next_sequence(1), "1", "2", "3", "5L")
    cell[1].replica.propose_change(first)
    cell[1].replica.propose_change(second)
    cell.run(0.1)
    assert cell[1].replica.last_index == cell[1].replica.applied_index + 1
    cell[2].log_thread.release()
    cell.run_until(lambda: len(cell[1].journal.effects) == 3)
    assert [each.split(b" ")[0] for each in cell[1].journal.effects[1:]] == [b"made", b"made"]
    cell[3].log_thread.release()
    cell.check()


def test_change_that_would_lose_the_quorum_is_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].kill()
    cell.run(0.1)
    assert change(cell, 1, "1", "2").startswith(b"refused NO_QUORUM")
    assert change(cell, 1, "1", "3").startswith(MADE)
    assert voters(cell) == {1, 3}


def test_change_that_is_asked_for_twice_is_made_once(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    asked = change_command(2, cell.next_sequence(2), "1", "2", "3", "4L")
    cell[2].replica.propose_change(asked)
    cell.run(0.0025)
    cell[1].kill()
    cell.run_until(lambda: asked in map(original, cell[2].journal.effects))
    cell.write(2)
    cell.check()
    assert sorted(cell[2].replica.configuration.learners) == [4]
    assert cell[2].replica.outstanding == 0


def test_joining_member_survives_a_restart_before_its_first_snapshot(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    change(cell, 1, "1", "2", "3", "4")
    cell.network.snapshots_work = False
    cell.join(4)
    cell.run_until(lambda: cell[4].started.called)
    cell.run(0.5)
    cell[4].cut_power()
    cell[4].start()
    cell.run_until(lambda: cell[4].started.called)
    cell.network.snapshots_work = True
    cell.run_until(lambda: voters(cell) == {1, 2, 3, 4})
    cell.write(4)
    cell.check()


def test_m12_restart_in_the_middle_of_a_joint_change_finishes_it(quick_path: Path) -> None:
    cell = Cell(quick_path, members=5).start()
    cell.settle()
    asked = change_command(1, cell.next_sequence(1), "1", "2", "3")
    cell[1].replica.propose_change(asked)
    cell.run_until(lambda: cell[1].replica.configuration.joint)
    cell.checkpoint(1)
    for number in (1, 2, 3, 4, 5):
        cell[number].cut_power()
    for number in (1, 2, 3, 4, 5):
        cell[number].start()
    cell.run_until(lambda: voters(cell) == {1, 2, 3} and not cell[1].replica.configuration.joint)
    cell.write(2)


def test_what_an_operator_sees(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[3].kill()
    cell.write(1, 5)
    seen = {each.number: each for each in cell[1].replica.members()}
    assert seen[1].leads
    assert [seen[number].connected for number in (1, 2, 3)] == [True, True, False]
    assert seen[3].lag_entries == 5
    assert seen[3].blocks == "not connected"
    assert [each.match_index for each in cell[2].replica.members()] == [None] * 3
