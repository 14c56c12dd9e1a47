"""What a cell's replica has on its disk, and when: crashes at any moment lose nothing that anybody counts on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.python.failure import Failure

from tests.zab_raft.cell.cell import Cell, TestMember
from tests.zab_raft.members import JournalMember
from znoded.zab_raft.cell.log import Readies, Restart
from znoded.zab_raft.core.messages import AppendResponse, EntryKind, VoteResponse
from znoded.zab_raft.errors import CheckpointFailed, DirectoryError, LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.segment import HEADER_BYTES


def answers_of(cell: Cell, raft_id: int, kind: type[object]) -> list[object]:
    return [record for sender, *_, record in cell.network.sent if sender == raft_id and isinstance(record, kind)]


def restart(cell: Cell, *numbers: int) -> None:
    """Cut the power of these members, all at once, and start them again."""
    for number in numbers:
        cell[number].cut_power()
    for number in numbers:
        cell[number].start()
    cell.run_until(lambda: all(cell[number].started.called for number in numbers))
    for number in numbers:
        assert not cell[number].errors, cell[number].errors


def log_entries(member: TestMember) -> list[bytes]:
    log = member.replica._running.raft.log
    return [entry.data for entry in log.slice(log.first_index, log.last_index + 1, 1 << 60)]


def test_d1_vote_leaves_when_it_is_durable(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    for number in (2, 3):
        cell[number].log_thread.held = True
    cell.network.sent.clear()
    cell[1].kill()
    cell.run(0.3)
    granted = [answer for answer in answers_of(cell, 2, VoteResponse) if not answer.pre_vote]  # type: ignore[attr-defined]
    assert granted == []
    assert not any(each.replica.has_leader for each in cell.running)
    for number in (2, 3):
        cell[number].log_thread.release()
    cell.run_until(lambda: any(each.replica.leads for each in cell.running))
    cell.check()


def test_d2_entries_are_acknowledged_when_they_are_durable(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    for number in (2, 3):
        cell[number].log_thread.held = True
    cell.network.sent.clear()
    written = cell.propose(1, 3)
    cell.run(0.3)
    assert answers_of(cell, 2, AppendResponse) == []
    assert not set(written) & set(cell[1].journal.effects)
    cell[2].log_thread.release()
    cell.run_until(lambda: set(written) <= set(cell[1].journal.effects))


def test_d9_nothing_is_applied_before_it_is_durable_here(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[1].log_thread.held = True
    written = cell.propose(1, 3)
    cell.run_until(lambda: set(written) <= set(cell[2].journal.effects))  # L15: a slow leader holds up nobody else
    assert not set(written) & set(cell[1].journal.effects)
    cell[1].log_thread.release()
    cell.check()


def test_l16_slow_disk_of_a_follower_makes_no_election(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[2].log_thread.held = True
    cell.write(1, 3)
    cell.run(5)
    assert cell[1].replica.leads
    assert cell[1].replica.term == 1
    cell[2].log_thread.release()
    cell.check()


def test_power_cut_of_all_members_loses_nothing_that_was_acknowledged(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    written = cell.write(1, 10) + cell.write(2, 10)
    cell.propose(3, 10)
    cell.run(0.001)
    restart(cell, 1, 2, 3)
    cell.run_until(lambda: any(each.replica.leads for each in cell.running))
    cell.check()
    assert set(written) <= set(cell[3].journal.effects)


def test_d20_restart_applies_what_is_known_committed_and_no_more(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.cut(1)
    lost = cell.propose(1, 3)  # durable here, but nowhere else
    cell.run(0.1)
    cell[1].cut_power()
    cell[1].start()
    cell.run(0.5)
    assert set(lost) <= set(log_entries(cell[1]))
    assert not set(lost) & set(cell[1].journal.effects)


def test_d6_replaced_end_of_the_log_is_replaced_on_disk(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.cut(1)
    replaced = cell.propose(1, 20)
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads)
    cell[1].replica._proposals.own.applied(replaced)  # nobody waits for them any more
    new = cell.write(2, 5)
    cell.network.heal()
    cell.settle()
    restart(cell, 1)
    assert not set(replaced) & set(log_entries(cell[1]))
    assert set(new) <= set(log_entries(cell[1]))
    cell.settle()
    cell.check()
    restart(cell, 1, 2, 3)  # also from the segments that the first start wrote
    cell.run_until(lambda: any(each.replica.leads for each in cell.running))
    cell.check()


def test_d6_crash_before_the_replacement_is_durable_leaves_the_old_end(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.cut(1)
    replaced = cell.propose(1, 20)
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads)
    cell.write(2, 5)
    cell.run_until(lambda: not cell[1].replica.has_leader)
    cell[1].log_thread.held = True
    cell.network.heal()
    cell.run(0.5)
    assert cell[1].log_thread.waiting
    cell.network.cut(1)
    restart(cell, 1)
    assert set(replaced) <= set(log_entries(cell[1]))
    cell.network.heal()
    cell.check()


def test_d12_torn_record_is_left_out(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    written = cell.write(1, 5)
    cell.settle()
    member = cell[2]
    member.log_thread.held = True
    cell.write(1, 5)
    log, batch = member.log_thread.log, member.log_thread.waiting[0]
    with open(log._segment_path(log._header.sequence), "r+b") as segment:
        segment.seek(log._offset)
        segment.write(log._header.salt.to_bytes(8) + bytes(4) + batch.payload[:40])
    restart(cell, 2)
    assert set(written) <= set(log_entries(member))
    cell.check()


def test_d13_damage_in_the_middle_of_the_log_is_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 5)
    cell.write(1, 5)
    cell.settle()
    member = cell[2]
    log = member.log_thread.log
    path = log._segment_path(log._header.sequence)
    member.cut_power()
    with open(path, "r+b") as segment:
        segment.seek(HEADER_BYTES + 70)
        segment.write(b"damage")
    member.start()
    assert isinstance(member.errors[0], LogDamaged)
    assert "is damaged at offset" in str(member.errors[0])


def test_d14_failed_write_ends_the_member_without_another_answer(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[2].log_thread.held = True
    cell.write(1)
    cell.network.sent.clear()
    error = OSError("the disk is gone")
    cell[2].log_thread.on_fatal(error)
    assert cell[2].errors == [error]
    cell[2].errors.clear()
    cell[2].log_thread.release()
    cell.write(1, 3)
    cell.run(0.5)
    assert [record for sender, *_, record in cell.network.sent if sender == 2] == []
    assert not cell[2].replica.writable
    assert not cell[2].replica.propose([b"2 1 "])
    index = cell[2].replica._store.index
    cell[2].stop()
    assert cell[2].replica._store.index == index  # what it is left with is not to be trusted


def test_d15_restart_writes_the_tail_again_before_it_takes_part(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 10)
    cell.settle()
    before = log_entries(cell[2])
    sequence = cell[2].log_thread.log._header.sequence
    cell.network.cut(2)
    restart(cell, 2)
    log = cell[2].log_thread.log
    assert log._header.sequence > sequence
    assert log._header.base_bytes > HEADER_BYTES
    assert log_entries(cell[2]) == before


def test_d16_full_disk_makes_the_leader_hand_over(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1)
    cell[1].log_thread.on_writable(False)
    assert not cell[1].replica.propose([b"1 99 "])
    cell.run_until(lambda: not cell[1].replica.leads and any(each.replica.leads for each in cell.running), seconds=0.5)
    cell[1].log_thread.on_writable(True)
    assert cell[1].replica.writable
    cell.write(1)
    cell.check()


def test_leader_whose_disk_hangs_hands_over(quick_path: Path) -> None:
    """The others commit without it, but who asks it gets no answer, and it keeps in memory all that is written."""
    cell = Cell(quick_path).start()
    assert cell.leader.number == 1
    cell[1].log_thread.held = True
    for _ in range(20):
        cell.write(2)
        cell.run(1.0)
    assert cell.leader.number != 1
    cell[1].log_thread.release()
    cell[1].log_thread.held = False
    cell.settle()
    cell.check()


def test_d16_leader_whose_disk_was_full_before_hands_over(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].log_thread.on_writable(False)
    cell.elect(2)
    cell.run_until(lambda: not cell[2].replica.leads and any(each.replica.leads for each in cell.running), seconds=10)
    cell[2].log_thread.on_writable(True)
    cell.run(10)
    cell.check()


def test_d16_member_whose_disk_is_full_starts_with_the_room_its_log_has(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on in a copy of the segment that it filled last; those before it, and what they keep, stay."""
    cell = Cell(quick_path, segment_bytes=1 << 12).start()
    for _ in range(60):
        cell.write(1, size_bytes=100)
    cell.settle()
    cell.checkpoint(2)
    before, segments = log_entries(cell[2]), len(cell[2].log_thread.log._sealed)
    assert segments > 1
    with monkeypatch.context() as patch:
        patch.setattr(Files, "allocate", _no_room_for_a_segment(Files.allocate))
        cell[2].cut_power()
        cell[2].start()
        cell.run_until(lambda: cell[2].started.called)
    assert log_entries(cell[2]) == before[1:]  # whose first only tells the term from then on
    assert len(cell[2].log_thread.log._sealed) == segments
    for _ in range(60):
        cell.write(1, size_bytes=100)
    cell.check()
    restart(cell, 2)
    cell.write(1)
    cell.check()


def _no_room_for_a_segment(allocate: Callable[..., None]) -> Callable[..., None]:
    def allocate_little(files: Files, descriptor: int, size_bytes: int) -> None:
        if size_bytes > 1.5 * (1 << 12):
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(files, descriptor, size_bytes)

    return allocate_little


def test_d18_directories_of_lone_members_and_of_cells_are_not_mixed_up(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].cut_power()
    with pytest.raises(DirectoryError, match="belongs to a member of a cell"):
        JournalMember(cell[2].directory, member=2).start()
    lone = JournalMember(quick_path / "lone", member=3).start()
    lone.stop()
    cell[3].cut_power()
    cell[3].directory = quick_path / "lone"
    cell[3].start()
    assert "belongs to a member that is alone" in str(cell[3].errors[0])


def test_d18_directory_that_lost_its_log_is_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].cut_power()
    for segment in (cell[2].directory / "log").glob("*.log"):
        segment.unlink()
    cell[2].start()
    assert "has no segment; remove this member from the cell" in str(cell[2].errors[0])


def test_member_whose_checkpoint_is_gone_is_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].cut_power()
    (cell[2].directory / "state" / "data.mdb").unlink()
    cell[2].start()
    assert "knows no cell" in str(cell[2].errors[0])


def test_crash_while_a_blank_member_enters_leaves_it_blank(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(quick_path)
    with monkeypatch.context() as patch:
        patch.setattr("znoded.zab_raft.cell.directory.CellDirectory.enter_cell", _power_cut)
        for each in cell.members.values():
            each.start()
        with pytest.raises(AssertionError):
            cell.run(1)
    for each in cell.members.values():
        assert each.replica.directory.identity.blank
        each.replica._store.close()
        each.replica.directory.close()
    cell.network.ends.clear()
    cell.start()
    cell.write(2, 3)
    cell.check()


def _power_cut(*_arguments: object) -> None:
    raise OSError("power cut")


def test_writes_that_wait_are_joined_to_one_record(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[2].log_thread.held = True
    for _ in range(5):
        cell.write(1)
    assert len(cell[2].log_thread.waiting) == 2
    cell[2].log_thread.release()
    cell.run(0.001)
    assert all(isinstance(batch, Readies | Restart) for batch in cell[2].log_thread.waiting)
    cell.check()
    restart(cell, 2)
    cell.check()


def test_d4_joined_readies_hold_the_newest_entries_and_hard_state(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.cut(1)
    cell[1].log_thread.held = True
    cell.propose(1, 3)
    cell.run(0.01)
    cell.propose(1, 3)
    cell.run(0.01)
    cell.propose(1, 3)  # two writes are under way: this one waits
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads)
    new = cell.write(2, 5)
    cell.run_until(lambda: not cell[1].replica.has_leader)
    cell.network.heal()
    cell.run(0.5)
    cell[1].log_thread.release()
    cell.run(0.1)
    cell[1].log_thread.held = True
    restart(cell, 1)
    assert set(new) <= set(log_entries(cell[1]))
    cell.check()


def test_configuration_and_founding_members_are_in_the_checkpoint(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 3)
    cell.settle()
    cell.checkpoint(2)
    restart(cell, 2)
    assert cell[2].replica.configuration.voters == {1, 2, 3}
    assert cell[2].replica.welcome(3) is not None
    assert cell[2].journal.applied == []
    cell.check()


def test_d11_kept_tail_outlives_a_restart(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[3].kill()
    cell.write(1, 10)
    for number in (1, 2):
        cell.checkpoint(number)
    restart(cell, 1, 2)
    log = cell[1].replica._running.raft.log
    assert log.stored.snapshot.index > log.first_index
    cell[3].start()
    cell.settle()
    assert cell[3].journal.loads == 0
    cell.check()


def test_kept_tail_does_not_grow_from_restart_to_restart(quick_path: Path) -> None:
    """Less than the tail is written between two restarts: what is from before them counts, too."""
    cell = Cell(quick_path, members=1).start()
    for _ in range(8):
        cell.write(1, 5, size_bytes=8_000)
        cell.checkpoint(1)
        restart(cell, 1)
        cell.settle()
    stored = cell[1].replica._running.raft.log.stored
    assert sum(len(entry.data) for entry in stored.slice(stored.first_index, stored.last_index + 1)) < 130_000
    assert sum(path.stat().st_size for path in (cell[1].directory / "log").glob("*.log")) < 300_000


def test_log_behind_the_checkpoint_is_bounded_on_disk_and_in_memory(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    for _ in range(30):
        cell.write(1, 3, size_bytes=9_000)
        cell.settle()
        for number in (1, 2, 3):
            cell.checkpoint(number)
    segments = list((cell[1].directory / "log").glob("*.log"))
    assert len(segments) <= 4
    assert sum(map(len, log_entries(cell[1]))) < 150_000
    assert cell[1].replica._running.raft.log.first_index > 50


def test_failed_checkpoint_is_tried_again(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 3)
    with monkeypatch.context() as patch:
        patch.setattr("znoded.zab_raft.checkpoint.Checkpoint.write", _no_room)
        cell.checkpoint(1)
        assert cell[1].replica._checkpointer.is_stuck
        with pytest.raises(CheckpointFailed):
            cell.result_of(cell[1].replica.backup(str(quick_path / "backup")))
    cell.checkpoint(1)
    assert not cell[1].replica._checkpointer.is_stuck
    restart(cell, 1)
    cell.check()


def _no_room(*_arguments: object) -> None:
    raise CheckpointFailed("no room")


def test_backup_is_the_directory_of_a_member_that_is_alone(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 3)
    cell.result_of(cell[1].replica.backup(str(quick_path / "backup")))
    assert (quick_path / "backup" / "state" / "data.mdb").exists()
    assert b"incarnation" not in (quick_path / "backup" / "meta").read_bytes()


def test_member_that_waits_for_its_cell_has_nothing_to_back_up(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(quick_path).start()
    monkeypatch.setattr(cell[1].replica, "_node", None)
    with pytest.raises(CheckpointFailed, match="has not entered its cell yet"):
        cell.result_of(cell[1].replica.backup(str(quick_path / "backup")))


@pytest.mark.parametrize("count", range(4, 14))
def test_d6_deposed_leader_whose_end_crossed_a_segment_starts_again(quick_path: Path, count: int) -> None:
    cell = Cell(quick_path, segment_bytes=4096, log_tail_bytes=512).start()
    cell.write(1, 3)
    cell.settle()
    cell.network.cut(1)
    for _ in range(count):
        cell.propose(1, 1, size_bytes=600)  # it stores them, and nobody commits them
        cell.run(0.005)
    cell.run_until(lambda: any(cell[number].replica.leads for number in (2, 3)))
    leader = next(number for number in (2, 3) if cell[number].replica.leads)
    cell.write(leader, 2, size_bytes=10)
    cell.network.heal()
    cell.settle()
    for _ in range(4):
        cell.write(leader, 1, size_bytes=10)
        cell.settle()
        cell.checkpoint(1)
    restart(cell, 1)
    cell.check()


def test_backup_of_a_member_that_must_not_go_on_fails(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 3)
    failures: list[Failure] = []
    cell[1].replica._fail(OSError("the disk is gone"))
    cell[1].replica.backup(str(quick_path / "backup")).addErrback(failures.append)
    assert [failure.type for failure in failures] == [CheckpointFailed]


def test_entries_of_all_kinds_come_back(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.elect(2)
    cell.write(2)
    cell.settle()
    restart(cell, 3)
    log = cell[3].replica._running.raft.log
    entries = log.slice(log.first_index, log.last_index + 1, 1 << 60)
    kinds = [(entry.term, entry.kind) for entry in entries]
    assert kinds == [
        (1, EntryKind.TERM_START),
        (1, EntryKind.COMMAND),
        (2, EntryKind.TERM_START),
        (2, EntryKind.COMMAND),
        (2, EntryKind.COMMAND),
    ]
