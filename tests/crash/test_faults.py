"""Every operation fails once, then works again: nothing acknowledged is lost, and no poisoned log is trusted."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.zab_raft.members import JournalMember, commands_in
from tests.zab_raft.split_files import SplitFiles
from znoded.zab_raft import checkpoint as checkpoint_module
from znoded.zab_raft import increment as increment_module
from znoded.zab_raft import log_thread as log_thread_module
from znoded.zab_raft.errors import StorageError
from znoded.zab_raft.files import Files

NEVER = 10**9


class FailingFiles(SplitFiles):
    """The operation with number `fails` raises, once. `operations` counts, `failed` names it."""

    def __init__(self, fails: int, code: int) -> None:
        self.operations = 0
        self.failed = ""
        self._fails = fails
        self._code = code
        self._turn = threading.Lock()

    def _operate(self, kind: str) -> None:
        with self._turn:
            self.operations += 1
            if self.operations == self._fails:
                self.failed = kind
                raise OSError(self._code, os.strerror(self._code))

    def create(self, path: str) -> int:
        self._operate(f"create {path}")
        return super().create(path)

    def open(self, path: str) -> int:
        self._operate(f"open {path}")
        return super().open(path)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        self._operate("allocate")
        super().allocate(descriptor, size_bytes)

    def write(self, descriptor: int, offset: int, pieces: Sequence[bytes]) -> None:
        self._operate("write")
        super().write(descriptor, offset, pieces)

    def sync(self, descriptor: int) -> None:
        self._operate("sync")
        super().sync(descriptor)

    def rename(self, source: str, target: str) -> None:
        self._operate(f"rename {target}")
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._operate(f"remove {path}")
        super().remove(path)

    def make_directory(self, path: str) -> None:
        self._operate(f"make_directory {path}")
        super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        self._operate(f"sync_directory {path}")
        super().sync_directory(path)


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread_module, "RETRY_INTERVAL_S", 0.01)
    monkeypatch.setattr(increment_module, "PORTION_ITEMS", 3)
    monkeypatch.setattr(checkpoint_module, "TRANSACTION_ITEMS", 6)


def live(data_dir: Path, files: Files) -> JournalMember:
    """A member's life: writes over several segments, two checkpoints. It ends when the member reports an error."""
    member = JournalMember(data_dir, files, segment_bytes=1024).start()
    for number in range(12):
        if not member.replica.writable and not member.errors:
            member.reactor.run_until(lambda: member.replica.writable or bool(member.errors))
        if member.errors:
            break
        assert member.replica.propose([b"%d.%d " % (number, each) + b"x" * 50 for each in range(3)])
        member.reactor.run_until(
            lambda: len(member.journal.commands) == member.replica.last_index or bool(member.errors)
        )
        if number in (4, 9):
            member.checkpoint()
    return member


def operations_of_a_life(path: Path) -> int:
    files = FailingFiles(NEVER, 0)
    live(path / "whole", files).stop()
    return files.operations


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_operation_that_fails_once_never_costs_an_acknowledged_command(quick_path: Path, code: int) -> None:
    poisoned = went_on = refused = 0
    for fails in range(1, operations_of_a_life(quick_path) + 1):
        data_dir = quick_path / f"{code}-{fails}"
        files = FailingFiles(fails, code)
        try:
            member = live(data_dir, files)
        except (StorageError, OSError):
            refused += 1
            assert commands_in(data_dir) == []
            continue
        acknowledged = list(member.journal.commands)
        if member.errors:
            poisoned += 1
            assert not member.replica.propose([b"after the failure"])
            assert [getattr(error, "errno", None) for error in member.errors] == [code]
        else:
            went_on += 1
            assert len(acknowledged) == 36
        member.stop()
        assert member.journal.commands == acknowledged, f"acknowledged behind the failure of {files.failed}"
        found = commands_in(data_dir)
        assert found[: len(acknowledged)] == acknowledged, f"lost by the failure of {files.failed}"
        assert len(found) % 3 == 0, "half a batch"
    assert poisoned > 10
    assert went_on > 10
    assert refused > 5


def test_failed_sync_poisons_the_log_although_the_next_would_work(tmp_path: Path) -> None:
    class OneBadSync(SplitFiles):
        bad = False

        def sync(self, descriptor: int) -> None:
            if self.bad:
                self.bad = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(descriptor)

    files = OneBadSync()
    member = JournalMember(tmp_path, files).start()
    member.write(b"acknowledged")
    files.bad = True
    assert member.replica.propose([b"lost"])
    assert member.replica.propose([b"lost too"])
    member.reactor.run_until(lambda: bool(member.errors))
    assert not member.replica.writable
    assert not member.replica.propose([b"refused"])
    member.stop()
    assert member.journal.commands == [b"acknowledged"]
    assert [str(error) for error in member.errors] == ["[Errno 5] Input/output error"]
    assert commands_in(tmp_path)[:1] == [b"acknowledged"]
