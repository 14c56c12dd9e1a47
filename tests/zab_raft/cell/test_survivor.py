"""A new cell out of one survivor: what it begins with, whom it knows, and that no crash leaves a half of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from tests.crash.recording import Disk, Operation, RecordingFiles
from tests.crash.test_every_cut import note_commits, renumbered
from tests.zab_raft.cell.cell import Cell, TestMember
from tests.zab_raft.cell.journal import MADE, CellJournal, change_command
from znoded.zab_raft import checkpoint as checkpoint_module
from znoded.zab_raft import increment as increment_module
from znoded.zab_raft.cell.renewals import Renewal, Renewals
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.state import read_cell
from znoded.zab_raft.cell.survivor import INDEX_LEAP, By, Survivor
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.errors import CellAbandoned, DirectoryError, LogDamaged
from znoded.zab_raft.files import Files

BY = By("2026-01-02T03:04:05+00:00", "host", "operator", "1.0")


def roster_command(roster: Roster) -> bytes:
    encoded = roster.encode()
    return MADE + len(encoded).to_bytes(4) + encoded + b"operator 1 recovers"


def survivor(directory: Path, files: Files | None = None) -> Survivor:
    return Survivor(str(directory), CellJournal(Configuration), files)


def recover(directory: Path, files: Files | None = None) -> Renewal:
    opened = survivor(directory, files)
    try:
        return opened.begin_new_cell(BY, roster_command)
    finally:
        opened.close()


def lose_majority(cell: Cell) -> TestMember:
    """Members 1 and 2 are gone for good; 3 is stopped."""
    for number in (1, 2, 3):
        cell[number].cut_power()
    return cell[3]


def start_alone(cell: Cell, member: TestMember) -> TestMember:
    member.start()
    cell.run_until(lambda: member.started.called and not member.errors and member.replica.leads)
    return member


def test_survivor_goes_on_alone_with_all_it_had(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    written = cell.write(1, 5) + cell.write(2, 5)
    cell.settle()
    cell.checkpoint(3)
    written += cell.write(1, 5)
    cell.settle()
    last_index, term = cell[3].replica.last_index, cell[3].replica.term
    member = lose_majority(cell)
    old_cell = member.replica.directory.meta.cell
    record = recover(member.directory)
    assert (record.last_index, record.first_index, record.term) == (last_index, last_index + INDEX_LEAP, term + 1)
    start_alone(cell, member)
    assert set(written) <= set(member.journal.effects)
    assert member.replica.configuration.voters == {3}
    assert [each.number for each in member.replica.roster.members.values()] == [3]
    assert member.replica.directory.meta.cell == record.new_cell != old_cell
    assert member.replica.term > record.term
    cell.write(3, 3)
    assert member.replica.applied_index > last_index + INDEX_LEAP


def test_end_that_was_not_known_committed_is_taken_as_committed(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    for number in (1, 2):
        cell[number].log_thread.held = True
    written = cell.propose(3, 4)
    cell.run(0.05)
    assert not set(written) & set(cell[3].journal.effects)
    member = lose_majority(cell)
    opened = survivor(member.directory)
    assert opened.hard_state.commit < opened.last_index
    assert opened.last_command == written[-1]
    opened.close()
    recover(member.directory)
    assert set(written) <= set(start_alone(cell, member).journal.effects)


def test_changes_of_the_members_in_the_log_change_the_state_and_no_more(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    for numbers in (["1", "2", "3", "4L"], ["1", "2", "3"], ["1", "2", "3", "5L"]):
        assert cell[1].replica.propose_change(change_command(7, cell.next_sequence(7), *numbers))
        cell.run_until(lambda expected=len(numbers): len(cell[3].replica.roster.members) == expected)  # type: ignore[misc]
    cell.settle()
    member = lose_majority(cell)
    assert len(recover(member.directory).old_members) == 4
    start_alone(cell, member)
    assert member.replica.configuration == Configuration(frozenset({3}), highest_id=5)


def test_others_join_the_new_cell_with_empty_directories(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    written = cell.write(1, 5)
    cell.settle()
    member = lose_majority(cell)
    recover(member.directory)
    start_alone(cell, member)
    for number in (1, 2):
        cell[number].directory = quick_path / f"new-{number}"
        others = [str(each.number) for each in member.replica.roster.members.values()]
        assert member.replica.propose_change(change_command(7, cell.next_sequence(7), *others, str(number)))
        cell[number].start()
        cell.run_until(lambda wanted=len(others) + 1: len(member.replica.configuration.voters) == wanted)  # type: ignore[misc]
    cell.check()
    assert member.replica.configuration.voters == {3, 4, 5}
    assert set(written) <= set(cell[1].journal.effects)
    member.kill()
    cell.run_until(lambda: any(each.replica.leads for each in cell.running))
    cell.write(1, 3)


def test_learner_can_go_on_too(quick_path: Path) -> None:
    cell = Cell(quick_path, members=1).start()
    assert cell[1].replica.propose_change(change_command(7, cell.next_sequence(7), "1", "2L"))
    cell.join(2)
    cell.run_until(lambda: cell[2].started.called)
    cell.write(1, 3)
    cell.settle()
    cell[1].cut_power()
    cell[2].cut_power()
    recover(cell[2].directory)
    assert len(start_alone(cell, cell[2]).journal.effects) > 3


def test_renewed_cell_can_be_renewed_again(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    member = lose_majority(cell)
    first = recover(member.directory)
    second = recover(member.directory)
    assert second.first_index == first.first_index + INDEX_LEAP
    assert second.old_cell == first.new_cell
    start_alone(cell, member)
    assert Renewals(str(member.directory)).of(first.new_cell) == first


def test_peers_of_the_old_cell_are_forgotten(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    member = lose_majority(cell)
    (member.directory / "peers").write_bytes(b"whom the old cell knew")
    recover(member.directory)
    assert not (member.directory / "peers").exists()


def test_start_tells_of_it(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    member = lose_majority(cell)
    record = recover(member.directory)
    with capturedLogs() as events:
        start_alone(cell, member)
    line = "".join(formatEvent(event) for event in events)
    assert f"This cell, {record.new_cell}, was begun anew on {BY.time} by operator on host, with znoded 1.0" in line
    assert f"cell {record.old_cell}" in line
    assert "server.2=127.0.0.1:3002:4002:participant;127.0.0.1:2002" in line


def test_what_is_no_survivor_is_refused_and_nothing_is_made(quick_path: Path) -> None:
    with pytest.raises(DirectoryError, match="it has no file `meta`"):
        survivor(quick_path / "nowhere")
    assert not (quick_path / "nowhere").exists()
    cell = Cell(quick_path)
    cell[1].start()
    with pytest.raises(DirectoryError, match="is held by another process"):
        survivor(cell[1].directory)
    cell[1].replica._store.close()
    cell[1].replica.directory.close()
    with pytest.raises(DirectoryError, match="is in no cell yet"):
        survivor(cell[1].directory)


def test_directory_that_lost_its_log_is_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    member = lose_majority(cell)
    for segment in (member.directory / "log").glob("*.log"):
        segment.unlink()
    with pytest.raises(LogDamaged, match="has no segment"):
        recover(member.directory)


def test_damaged_records_are_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    member = lose_majority(cell)
    recover(member.directory)
    path = member.directory / "renewals"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"operator", b"nobody"))
    with pytest.raises(DirectoryError, match="its checksum does not match"):
        recover(member.directory)
    member.start()
    assert "its checksum does not match" in str(member.errors[0])


def test_record_is_readable(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    member = lose_majority(cell)
    recover(member.directory)
    line = json.loads((member.directory / "renewals").read_text().splitlines()[2])
    assert (line["user"], line["host"], line["begun"]) == ("operator", "host", BY.time)


def test_member_of_the_old_cell_ends_when_it_hears_of_the_new_one(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[1].replica.abandoned("member 3 went on")
    assert isinstance(cell[1].errors.pop(), CellAbandoned)
    assert not cell[1].replica.writable


# ---- crashes

Outcomes = set[str]


@pytest.fixture
def before(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cell, list[bytes]]:
    """A cell whose member 3 survives, with a log that is longer than its checkpoint, and what it has."""
    cell = Cell(quick_path).start()
    cell.write(1, 4)
    cell.settle()
    cell.checkpoint(3)
    cell.write(1, 12)
    cell.settle()
    effects = list(cell[3].journal.effects)
    lose_majority(cell)
    (cell[3].directory / "peers").write_bytes(b"whom the old cell knew")
    # The checkpoint is written in several transactions, each of which may be the last.
    monkeypatch.setattr(increment_module, "PORTION_ITEMS", 3)
    monkeypatch.setattr(checkpoint_module, "TRANSACTION_ITEMS", 6)
    return cell, effects


def test_crash_at_any_operation_leaves_the_old_cell_or_can_be_finished(
    before: tuple[Cell, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, effects = before
    operations, first = recorded(cell[3].directory, monkeypatch)
    assert {operation.kind for operation in operations[first:]} >= {"create", "commit", "rename", "remove"}
    outcomes: Outcomes = set()
    paths = (cell.directory / f"crash-{number}" for number in itertools.count())
    for count in range(first, len(operations) + 1):
        disk = Disk(operations[:count])
        outcomes.add(finish(cell, disk.after_kill(next(paths)), effects))
        outcomes.add(finish(cell, disk.after_power_cut(next(paths)), effects))
        outcomes.add(finish(cell, disk.after_power_cut_with_luck(next(paths), seed=count), effects))
    assert outcomes == {"old", "half", "new"}


def recorded(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Operation], int]:
    """What it takes to make the directory as it is, then what a recovery does, and the place where that begins."""
    made = making(directory)
    files = RecordingFiles(directory)
    with monkeypatch.context() as patch:
        note_commits(patch, files)
        recover(directory, files)
    return [*made, *renumbered(files.operations)], len(made)


def making(directory: Path) -> list[Operation]:
    operations = []
    log = sorted((directory / "log").iterdir())
    for number, path in enumerate((directory / "meta", directory / "peers", *log), 1):
        name = str(path.relative_to(directory))
        operations += [
            Operation("create", file=number, path=name),
            Operation("write", file=number, data=path.read_bytes()),
            Operation("sync", file=number),
        ]
    data = (directory / "state" / "data.mdb").read_bytes()
    folders = [Operation("sync_directory", path=path) for path in (".", "log", "state")]
    return [*operations, *folders, Operation("commit", path="state/data.mdb", data=data)]


def finish(cell: Cell, directory: Path, effects: list[bytes]) -> str:
    """What a start sees after the crash, having checked that another run makes the new cell whole."""
    opened = survivor(directory)
    record = Renewals(str(directory)).of(opened.meta.cell)
    with opened._store.reading() as read_table:
        voters = read_cell(read_table).configuration.voters
    opened.close()
    outcome = "old" if record is None else "new" if record.finished else "half"
    if outcome == "old":
        assert voters == {1, 2, 3}, "the old cell with the voters of the new one"
    member = TestMember(cell, 3)
    member.directory = directory
    member.start()
    if outcome == "half":
        assert "`znoded recover` was cut short" in str(member.errors[0])
    else:
        assert not member.errors
        member.cut_power()
    if outcome != "new":
        recover(directory)
    start_alone(cell, member)
    assert member.journal.effects[: len(effects)] == effects
    assert member.replica.configuration.voters == {3}
    member.cut_power()
    return outcome
