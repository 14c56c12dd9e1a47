"""A replica of one voter: what is taken is durable, applied and back after a restart, whatever the disk does."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.zab_raft.journal import Journal
from tests.zab_raft.members import NEVER_MS, JournalMember, commands_in
from tests.zab_raft.split_files import SplitFiles
from znoded.zab_raft import checkpointer as checkpointer_module
from znoded.zab_raft import log_thread as log_thread_module
from znoded.zab_raft import replica as replica_module
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.errors import CheckpointFailed, DirectoryError, LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.increment import Changes
from znoded.zab_raft.malloc_trim import malloc_trim


class GatedFiles(SplitFiles):
    """Lets a test hold up every sync and count them."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        assert self.gate.wait(30)
        self.syncs += 1
        super().sync(descriptor)


def no_room(*_: object) -> None:
    raise CheckpointFailed("no room")


def log_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in (data_dir / "log").glob("*.log"))


def test_command_is_applied_once_it_is_durable(tmp_path: Path) -> None:
    files = GatedFiles()
    member = JournalMember(tmp_path, files).start()
    files.gate.clear()
    assert member.replica.propose([b"a"])
    member.reactor.advance(0)
    assert member.journal.commands == []
    files.gate.set()
    member.reactor.run_until(lambda: member.journal.commands == [b"a"])
    assert member.replica.applied_index == member.replica.last_index == 1
    member.stop()


def test_commands_proposed_together_are_one_batch(tmp_path: Path) -> None:
    files = GatedFiles()
    member = JournalMember(tmp_path, files).start()
    member.write(b"warm up")
    syncs = files.syncs
    member.write(b"a", b"b", b"c")
    assert member.journal.batches[1:] == [[b"a", b"b", b"c"]]
    assert files.syncs == syncs + 1
    member.stop()


def test_commands_that_come_while_a_batch_syncs_are_the_next_batch(tmp_path: Path) -> None:
    files = GatedFiles()
    member = JournalMember(tmp_path, files).start()
    member.write(b"warm up")
    files.gate.clear()
    for command in (b"a", b"b", b"c"):
        member.replica.propose([command])
        member.reactor.advance(0)
    files.gate.set()
    member.reactor.run_until(lambda: len(member.journal.commands) == 4)
    assert member.journal.batches[1:] == [[b"a"], [b"b", b"c"]]
    member.stop()


def test_large_batch_is_split_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "BATCH_BYTES_LIMIT", 100)
    member = JournalMember(tmp_path).start()
    commands = [b"%d" % number * 20 for number in range(10)] + [b"x" * 500, b"y"]
    member.write(*commands)
    assert member.journal.commands == commands
    assert max(len(batch) for batch in member.journal.batches) == 5
    member.stop()
    assert commands_in(tmp_path) == commands


def test_command_longer_than_a_segment_is_taken(tmp_path: Path) -> None:
    member = JournalMember(tmp_path / "data", segment_bytes=1 << 16).start()
    member.write(b"x" * (1 << 20))
    member.write(b"y")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    member.stop()
    assert [len(command) for command in commands_in(tmp_path / "copy")] == [1 << 20, 1]


def test_restart_brings_everything_back_in_a_new_term(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    assert (member.replica.term, member.replica.mode) == (1, "standalone")
    member.write(b"a", b"b")
    member.write(b"c")
    member.stop()
    member = JournalMember(tmp_path).start()
    assert member.journal.commands == [b"a", b"b", b"c"]
    assert (member.replica.term, member.replica.applied_index, member.replica.last_index) == (2, 3, 3)
    member.write(b"d")
    member.stop()
    assert commands_in(tmp_path) == [b"a", b"b", b"c", b"d"]


def test_restart_without_a_write_is_a_new_term_too(tmp_path: Path) -> None:
    for term in (1, 2, 3):
        member = JournalMember(tmp_path).start()
        assert member.replica.term == term
        member.stop()


def test_stop_finishes_what_was_taken_and_takes_no_more(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    member.replica.propose([b"a"])
    stopped = member.replica.stop()
    assert not member.replica.propose([b"b"])
    member.reactor.result_of(stopped)
    assert member.journal.commands == [b"a"]
    assert commands_in(tmp_path) == [b"a"]


def test_stop_leaves_nothing_to_replay(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    member.write(b"a", b"b")
    member.stop()
    member = JournalMember(tmp_path).start()
    assert member.journal.batches == []
    assert member.journal.commands == [b"a", b"b"]
    member.stop()


def test_checkpoint_lets_the_log_go(tmp_path: Path) -> None:
    member = JournalMember(tmp_path, segment_bytes=4096).start()
    for _ in range(20):
        member.write(bytes(1000))
    assert log_bytes(tmp_path) > 16_000
    member.checkpoint()
    member.write(b"last")
    assert log_bytes(tmp_path) == 4096
    member.stop()
    assert len(commands_in(tmp_path)) == 21


def test_checkpoint_begins_when_enough_has_changed(tmp_path: Path) -> None:
    member = JournalMember(tmp_path, checkpoint_bytes=5000).start()
    for _ in range(4):
        member.write(bytes(1000))
    assert member.journal.dirty_bytes == 4000
    member.write(bytes(1000))
    assert member.journal.dirty_bytes == 0
    member.stop()


def test_checkpoint_begins_after_its_interval(tmp_path: Path) -> None:
    member = JournalMember(tmp_path, checkpoint_interval_ms=3000).start()
    member.write(b"a")
    member.reactor.advance(2.9)
    assert member.journal.dirty_bytes == 1
    member.reactor.advance(0.2)
    assert member.journal.dirty_bytes == 0
    member.stop()


def test_nothing_is_stored_when_nothing_changed(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    member.write(b"a")
    member.checkpoint()
    before = (tmp_path / "state" / "data.mdb").stat().st_mtime_ns
    member.checkpoint()
    member.stop()
    assert (tmp_path / "state" / "data.mdb").stat().st_mtime_ns == before


def test_restart_between_checkpoint_and_log_end_replays_only_the_rest(tmp_path: Path) -> None:
    member = JournalMember(tmp_path / "data").start()
    member.write(b"a", b"b")
    member.checkpoint()
    member.write(b"c")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    member.stop()
    member = JournalMember(tmp_path / "copy").start()
    assert member.journal.batches == [[b"c"]]
    assert member.journal.commands == [b"a", b"b", b"c"]
    member.stop()


def gate_of_checkpoints(member: JournalMember, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No checkpoint is stored until it is set."""
    gate = threading.Event()
    write = member.replica._store.write

    def write_later(changes: Changes, index: int, term: int) -> None:
        assert gate.wait(30)
        write(changes, index, term)

    monkeypatch.setattr(member.replica._store, "write", write_later)
    return gate


def test_log_keeps_what_came_while_the_checkpoint_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = JournalMember(tmp_path / "data", segment_bytes=4096).start()
    member.write(b"first")
    gate = gate_of_checkpoints(member, monkeypatch)
    member.reactor.advance(NEVER_MS / 1000)
    for _ in range(10):
        member.write(bytes(1000))
    gate.set()
    member.reactor.result_of(member.replica._checkpointer.idle)
    member.write(b"behind the removal of segments")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    member.stop()
    assert len(commands_in(tmp_path / "copy")) == 12


def test_a_checkpoint_that_became_due_meanwhile_follows_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = JournalMember(tmp_path / "data", checkpoint_bytes=100).start()
    gate = gate_of_checkpoints(member, monkeypatch)
    member.write(bytes(100))
    member.write(bytes(100))
    assert member.journal.dirty_bytes == 100
    gate.set()
    member.reactor.run_until(lambda: member.replica._store.index == member.replica.applied_index)
    assert member.journal.dirty_bytes == 0
    member.stop()


def test_failed_checkpoint_is_tried_again_with_its_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = JournalMember(tmp_path, checkpoint_bytes=100).start()
    with monkeypatch.context() as patch:
        patch.setattr(member.replica._store, "write", no_room)
        member.write(bytes(100))
        member.reactor.result_of(member.replica._checkpointer.idle)
        assert member.journal.dirty_bytes == 100
        member.write(bytes(100))  # does not begin another at once
        assert member.journal.dirty_bytes == 200
        assert member.replica.writable
    member.checkpoint()
    assert member.journal.dirty_bytes == 0
    assert member.errors == []
    member.stop()
    assert len(commands_in(tmp_path)) == 2


def test_checkpoint_that_meets_a_fault_of_the_program_ends_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = JournalMember(tmp_path).start()
    member.write(b"a")
    with monkeypatch.context() as patch:
        patch.setattr(member.replica._store, "write", lambda *_: 1 / 0)
        member.checkpoint()
    assert [type(error) for error in member.errors] == [ZeroDivisionError]
    assert not member.replica.propose([b"b"])
    member.stop()


def test_changes_that_cannot_be_taken_end_the_member_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some may be forgotten by then: a checkpoint without them would never be mended by the log."""
    member = JournalMember(tmp_path).start()
    member.write(b"a")

    def take_some() -> Changes:
        member.journal._changed.clear()
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(member.journal, "take_changes", take_some)
        member.checkpoint()
    assert [type(error) for error in member.errors] == [MemoryError]
    assert not member.replica.propose([b"b"])
    member.stop()
    again = JournalMember(tmp_path).start()
    assert again.journal.commands == [b"a"]
    again.stop()


def test_commands_that_cannot_be_applied_end_the_member_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = JournalMember(tmp_path).start()
    with monkeypatch.context() as patch:
        patch.setattr(member.journal, "on_applied", lambda _commands: 1 / 0)
        member.replica.propose([b"a"])
        member.reactor.run_until(lambda: member.errors)
    member.stop()
    again = JournalMember(tmp_path).start()
    assert again.journal.commands == [b"a"]
    again.stop()


@pytest.mark.parametrize(("commands", "given_back"), [([1], 0), ([20], 1), ([9, 9], 1), ([9, 9, 1], 1), ([20, 20], 2)])
def test_memory_that_checkpoints_took_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[int], given_back: int
) -> None:
    """One for each of `commands`, of so many."""
    threads: list[str] = []
    monkeypatch.setattr(checkpointer_module, "TRIMMED_ITEMS", 15)
    monkeypatch.setattr(checkpointer_module, "malloc_trim", lambda: threads.append(threading.current_thread().name))
    member = JournalMember(tmp_path).start()
    for count in commands:
        for number in range(count):
            member.write(bytes([number]))
        member.checkpoint()
    assert len(threads) == given_back
    assert "MainThread" not in threads
    member.stop()


def test_giving_memory_back_harms_nothing() -> None:
    kept = [bytes(1000) for _ in range(1000)]
    malloc_trim()
    assert kept == [bytes(1000)] * 1000


def test_backup_is_a_data_directory_with_all_that_was_applied(tmp_path: Path) -> None:
    member = JournalMember(tmp_path / "data").start()
    member.write(b"a")
    member.checkpoint()
    member.write(b"b")
    backup = member.replica.backup(str(tmp_path / "backup"))
    member.write(b"c")
    member.reactor.result_of(backup)
    member.write(b"d")
    member.stop()
    restored = JournalMember(tmp_path / "backup").start()
    assert restored.replica.directory.meta.cell == member.replica.directory.meta.cell
    assert restored.journal.commands == [b"a", b"b"]
    restored.write(b"e")
    restored.stop()
    assert commands_in(tmp_path / "backup") == [b"a", b"b", b"e"]
    assert commands_in(tmp_path / "data") == [b"a", b"b", b"c", b"d"]


def test_backup_into_a_directory_that_exists_fails(tmp_path: Path) -> None:
    member = JournalMember(tmp_path / "data").start()
    (tmp_path / "backup").mkdir()
    with pytest.raises(CheckpointFailed, match="backup is there already: move it away for a new backup"):
        member.reactor.result_of(member.replica.backup(str(tmp_path / "backup")))
    member.stop()


def test_backup_of_a_member_that_must_not_go_on_fails(tmp_path: Path) -> None:
    member = JournalMember(tmp_path / "data").start()
    member.write(b"a")
    member.replica._log_failed(OSError("the disk is gone"))
    with pytest.raises(CheckpointFailed):
        member.reactor.result_of(member.replica.backup(str(tmp_path / "backup")))


def test_backup_that_failed_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = JournalMember(tmp_path / "data").start()
    member.write(b"a")
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "backup", no_room)
        with pytest.raises(CheckpointFailed):
            member.reactor.result_of(member.replica.backup(str(tmp_path / "backup")))
    member.reactor.result_of(member.replica.backup(str(tmp_path / "backup")))
    member.stop()
    assert commands_in(tmp_path / "backup") == [b"a"]


def test_backup_fails_when_the_checkpoint_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = JournalMember(tmp_path / "data").start()
    member.write(b"a")
    with monkeypatch.context() as patch:
        patch.setattr(member.replica._store, "write", no_room)
        with pytest.raises(CheckpointFailed, match="backup: the checkpoint cannot be stored"):
            member.reactor.result_of(member.replica.backup(str(tmp_path / "backup")))
    assert not (tmp_path / "backup").exists()
    member.stop()


def test_full_disk_refuses_writes_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread_module, "RETRY_INTERVAL_S", 0.01)
    full = False

    class FullFiles(Files):
        def allocate(self, descriptor: int, size_bytes: int) -> None:
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().allocate(descriptor, size_bytes)

    member = JournalMember(tmp_path, FullFiles(), segment_bytes=4096).start()
    member.write(b"a")
    full = True
    accepted = 1
    while member.replica.writable:
        member.write(bytes(1000))
        accepted += 1
        if accepted > 10:
            member.reactor.run_until(lambda: not member.replica.writable)
    assert not member.replica.propose([b"refused"])
    full = False
    member.reactor.run_until(lambda: member.replica.writable)
    member.write(b"z")
    assert member.errors == []
    member.stop()
    assert len(commands_in(tmp_path)) == accepted + 1


class SmallDisk(SplitFiles):
    """Has room for so many segments."""

    segments = 3

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent
        if len(list(path.glob("*.log"))) >= self.segments:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(descriptor, size_bytes)


def test_checkpoint_makes_room_for_a_write_that_waits_at_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread_module, "RETRY_INTERVAL_S", 0.01)
    member = JournalMember(tmp_path, SmallDisk(), segment_bytes=4096).start()
    while len(list((tmp_path / "log").glob("*.log"))) < SmallDisk.segments:
        member.write(bytes(3000))
    count = 0
    while member.replica.propose([bytes(3000)]) and count < 3:  # the last one has no room
        count += 1
    member.reactor.run_until(lambda: not member.replica.writable)
    member.checkpoint()
    member.reactor.run_until(lambda: member.replica.outstanding == 0)
    member.stop()


def test_stop_at_a_full_disk_gives_up_what_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread_module, "RETRY_INTERVAL_S", 0.01)

    class FullFiles(Files):
        full = False

        def allocate(self, descriptor: int, size_bytes: int) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().allocate(descriptor, size_bytes)

    files = FullFiles()
    member = JournalMember(tmp_path, files, segment_bytes=4096).start()
    member.write(b"a")
    files.full = True
    member.replica.propose([bytes(9000)])
    member.reactor.run_until(lambda: not member.replica.writable)
    member.stop()
    assert member.journal.commands == [b"a"]
    assert commands_in(tmp_path) == [b"a"]


def test_full_disk_at_the_start_is_said_and_the_directory_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Files, descriptor: int, size_bytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Files, "allocate", full)
        with pytest.raises(Exception, match="has no room for a log segment of 65536 bytes"):
            JournalMember(tmp_path).start()
    assert commands_in(tmp_path) == []


def test_member_number_must_be_that_of_the_directory(tmp_path: Path) -> None:
    JournalMember(tmp_path).start().stop()
    with pytest.raises(DirectoryError, match="belongs to member 1, not to member 2"):
        JournalMember(tmp_path, member=2).start()


def test_second_member_on_the_directory_is_refused(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    with pytest.raises(DirectoryError, match="held by another process"):
        JournalMember(tmp_path).start()
    member.write(b"a")
    member.stop()


def test_directory_that_lost_its_log_is_refused(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    member.write(b"a")
    member.stop()
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogDamaged, match="log has no segment"):
        JournalMember(tmp_path).start()


def test_directory_that_lost_its_checkpoint_is_refused(tmp_path: Path) -> None:
    member = JournalMember(tmp_path, segment_bytes=4096).start()
    for _ in range(10):
        member.write(bytes(1000))
    member.checkpoint()
    member.write(b"behind the removal of segments")
    member.stop()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(LogDamaged, match="but the checkpoint ends with index 0"):
        JournalMember(tmp_path).start()


def test_command_proposed_while_a_batch_is_applied_is_taken(tmp_path: Path) -> None:
    member = JournalMember(tmp_path).start()
    journal: Journal = member.journal

    def propose_once(commands: list[bytes]) -> None:
        if commands == [b"a"]:
            member.replica.propose([b"b"])

    journal.on_applied = propose_once
    member.write(b"a")
    member.reactor.run_until(lambda: journal.commands == [b"a", b"b"])
    member.stop()
