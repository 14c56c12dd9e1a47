"""A recorded run is cut at every operation, and its writes at every byte. Each restart keeps what was acknowledged."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.recording import Disk, Operation, RecordingFiles
from tests.zab_raft.members import JournalMember, commands_in
from znoded.zab_raft import checkpoint as checkpoint_module
from znoded.zab_raft import increment as increment_module
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.increment import Portion
from znoded.zab_raft.recovery import Recovery

SEGMENT_BYTES = 1024


@dataclass
class Recording:
    """What was done, in order, and how many commands had been acknowledged when: (operations, commands)."""

    operations: list[Operation]
    commands: list[bytes]
    batch_ends: set[int]
    acknowledged: list[tuple[int, int]]

    def acknowledged_before(self, operations: int) -> int:
        return max((commands for position, commands in self.acknowledged if position <= operations), default=0)

    def check(self, found: list[bytes], operations: int) -> None:
        """`found` is what a restart has after a crash behind so many operations."""
        assert found == self.commands[: len(found)], "something else than what was proposed, in its order"
        assert len(found) in self.batch_ends, "half a batch"
        assert len(found) >= self.acknowledged_before(operations), "acknowledged and lost"


@pytest.fixture(scope="module")
def small_transactions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(increment_module, "PORTION_ITEMS", 3)
        patch.setattr(checkpoint_module, "TRANSACTION_ITEMS", 6)
        yield


@pytest.fixture(scope="module")
def recording(small_transactions: None) -> Recording:
    """Two lives of a member, with several segments and with checkpoints of one and of several transactions."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        files = RecordingFiles(Path(directory) / "data")
        note_commits(patch, files)
        recorded = Recording(files.operations, [], {0}, [])
        for life in range(2):
            live(recorded, JournalMember(Path(directory) / "data", files, SEGMENT_BYTES), life)
    return recorded


def live(recorded: Recording, member: JournalMember, life: int) -> None:
    def note_acknowledgement(_: list[bytes]) -> None:
        recorded.acknowledged.append((len(recorded.operations), len(member.journal.commands)))

    member.start()
    member.journal.on_applied = note_acknowledgement
    for number in range(12):
        batch = [b"%d.%d.%d " % (life, number, each) + b"x" * (37 * number % 90) for each in range(number % 4 + 1)]
        recorded.commands += batch
        recorded.batch_ends.add(len(recorded.commands))
        member.write(*batch)
        if number in (3, 10):
            member.checkpoint()
    member.stop()


def note_commits(patch: pytest.MonkeyPatch, files: RecordingFiles) -> None:
    commit = Checkpoint._commit

    def noted_commit(self: Checkpoint, group: list[Portion], index: int, term: int) -> None:
        commit(self, group, index, term)
        files.note_commit(f"{self._path}/data.mdb")

    patch.setattr(Checkpoint, "_commit", noted_commit)


@pytest.fixture
def directories(quick_path: Path) -> Callable[[], Path]:
    """Gives the path of a data directory, with nothing there, each time."""

    def fresh() -> Path:
        shutil.rmtree(quick_path / "data", ignore_errors=True)
        return quick_path / "data"

    return fresh


def test_recording_holds_what_it_is_about(recording: Recording) -> None:
    kinds = {operation.kind for operation in recording.operations}
    assert kinds == {"create", "allocate", "write", "sync", "rename", "remove", "sync_directory", "commit"}
    renamed = [operation.target for operation in recording.operations if operation.kind == "rename"]
    assert sum(name.startswith("log/") for name in renamed) > 5
    assert "log/spare" in renamed, "no segment was used again"
    assert "state/increment" in renamed
    assert recording.acknowledged_before(len(recording.operations)) == len(recording.commands)


def test_acknowledged_commands_survive_a_kill_after_any_operation(
    recording: Recording, directories: Callable[[], Path]
) -> None:
    for count in range(len(recording.operations) + 1):
        directory = Disk(recording.operations[:count]).after_kill(directories())
        recording.check(commands_in(directory), count)


def test_acknowledged_commands_survive_a_power_cut_after_any_operation(
    recording: Recording, directories: Callable[[], Path]
) -> None:
    for count in range(len(recording.operations) + 1):
        directory = Disk(recording.operations[:count]).after_power_cut(directories())
        recording.check(commands_in(directory), count)


def test_acknowledged_commands_survive_a_power_cut_that_keeps_some_unsynced_sectors(
    recording: Recording, directories: Callable[[], Path]
) -> None:
    for count in range(len(recording.operations) + 1):
        directory = Disk(recording.operations[:count]).after_power_cut_with_luck(directories(), seed=count)
        recording.check(commands_in(directory), count)


def test_last_write_cut_at_every_byte_loses_only_itself(recording: Recording, directories: Callable[[], Path]) -> None:
    last = records(recording.operations)[-1]
    for length in range(len(recording.operations[last].data)):
        directory = Disk(cut(recording.operations, last, length)).after_kill(directories())
        recording.check(commands_in(directory), last)


def test_every_write_of_the_log_cut_at_every_byte_is_a_torn_tail(
    recording: Recording, directories: Callable[[], Path]
) -> None:
    for number in records(recording.operations):
        operation = recording.operations[number]
        whole = Disk(recording.operations[:number]).after_kill(directories())
        checkpoint = Checkpoint(str(whole / "state"))
        before = list(Recovery(str(whole / "log"), checkpoint.index, checkpoint.term).records())
        checkpoint.close()
        segment = max((whole / "log").glob("*.log"))
        content = bytearray(segment.read_bytes())
        needed = operation.data.rstrip(b"\0")  # the zeros behind are on the disk already
        for position, byte in enumerate(needed[:-1], operation.offset):
            content[position] = byte
            segment.write_bytes(content)
            assert list(Recovery(str(whole / "log"), checkpoint.index, checkpoint.term).records()) == before


@pytest.mark.parametrize("outcome", ["kill", "power cut"])
def test_crash_during_the_restart_after_a_crash_loses_nothing(
    recording: Recording, directories: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    for count in range(0, len(recording.operations), 23):
        directory = Disk(recording.operations[:count]).after_kill(directories())
        files = RecordingFiles(directory)
        with monkeypatch.context() as patch:
            note_commits(patch, files)
            member = JournalMember(directory, files, SEGMENT_BYTES).start()
            member.write(b"after the restart")
            member.stop()
        found = member.journal.commands[:-1]
        # The restart worked on what the first life had made durable, or on what the kill had left of it.
        before = [*recording.operations[:count], *synced(recording.operations[:count])]
        for later in range(len(files.operations)):
            disk = Disk([*before, *renumbered(files.operations[:later])])
            path = disk.after_kill(directories()) if outcome == "kill" else disk.after_power_cut(directories())
            after = commands_in(path)
            assert after[: len(found)] == found
            assert after[len(found) :] in ([], [b"after the restart"])


class FullDisk(RecordingFiles):
    """Has no room for a segment and a tail once it is full."""

    is_full = False

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        if self.is_full and size_bytes > 3 * SEGMENT_BYTES // 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(descriptor, size_bytes)


@pytest.mark.parametrize("outcome", ["kill", "power cut", "power cut with luck"])
def test_crash_during_a_start_on_a_full_disk_loses_nothing(
    directories: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str
) -> None:
    """The start goes on in a copy of the segment that was filled last."""
    files = FullDisk(tmp_path / "data")
    note_commits(monkeypatch, files)
    member = JournalMember(tmp_path / "data", files, SEGMENT_BYTES).start()
    commands = [b"%d " % number * 20 for number in range(20)]
    for command in commands:
        member.write(command)
    began = len(files.operations)
    crash(member)
    files.is_full = True
    again = JournalMember(tmp_path / "data", files, SEGMENT_BYTES).start()
    assert again.journal.commands == commands
    assert len(list((tmp_path / "data/log").glob("*.log"))) > 2
    crash(again)
    assert "truncate" in {operation.kind for operation in files.operations[began:]}
    for count in range(began, len(files.operations) + 1):
        disk = Disk(files.operations[:count])
        if outcome == "kill":
            directory = disk.after_kill(directories())
        elif outcome == "power cut":
            directory = disk.after_power_cut(directories())
        else:
            directory = disk.after_power_cut_with_luck(directories(), seed=count)
        assert commands_in(directory) == commands


def crash(member: JournalMember) -> None:
    """End it without a last checkpoint."""
    member.reactor.result_of(member.replica._log_thread.stop())
    member.replica._store.close()
    member.replica.directory.close()


def records(operations: list[Operation]) -> list[int]:
    """Which of the operations write a batch to the log."""
    segments = {each.file for each in operations if each.kind == "create" and each.path == "log/spare"}
    return [
        number
        for number, each in enumerate(operations)
        if each.kind == "write" and each.file in segments and each.offset > 0
    ]


def cut(operations: list[Operation], number: int, length: int) -> list[Operation]:
    last = operations[number]
    return [*operations[:number], last._replace(data=last.data[:length])]


def synced(operations: list[Operation]) -> list[Operation]:
    """Operations that make all of `operations` durable."""
    files = {operation.file for operation in operations if operation.file}
    folders = (".", "log", "state")
    return [Operation("sync", file=file) for file in files] + [
        Operation("sync_directory", path=path) for path in folders
    ]


def renumbered(operations: list[Operation]) -> list[Operation]:
    """The operations with file numbers that a first recording did not use."""
    return [
        operation._replace(file=operation.file + 10**6) if operation.file else operation for operation in operations
    ]
