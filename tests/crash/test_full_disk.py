"""A member on a disk that is really full."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.crash.conftest import DISK_BYTES
from tests.crash.full_disk import take_all_room
from tests.zab_raft.members import JournalMember, commands_in
from znoded.zab_raft import log_thread as log_thread_module
from znoded.zab_raft import replica as replica_module

SEGMENT_BYTES = 1 << 18


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread_module, "RETRY_INTERVAL_S", 0.01)


def fill_until_refused(member: JournalMember, command: bytes) -> int:
    """Write until the member refuses; returns how many writes it took."""
    taken = 0
    while member.replica.writable:
        member.write(command)
        taken += 1
        member.reactor.advance(0)
    return taken


def test_full_disk_refuses_writes_and_recovers_by_itself(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES - (4 << 20)))
    member = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    taken = fill_until_refused(member, bytes(5000))
    assert taken > SEGMENT_BYTES // 5000
    assert not member.replica.propose([b"refused"])
    assert len(member.journal.commands) == taken
    ballast.unlink()
    member.reactor.run_until(lambda: member.replica.writable)
    member.write(b"there is room again")
    assert member.errors == []
    member.stop()
    assert len(commands_in(disk / "data")) == taken + 1


def test_member_starts_on_a_disk_that_others_filled(disk: Path) -> None:
    member = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    for number in range(10):
        member.write(b"%d" % number)
    take_all_room(disk / "ballast")
    crash(member)
    again = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    assert again.journal.commands == [b"%d" % number for number in range(10)]
    again.write(b"what was reserved is enough")
    crash(again)
    assert len(commands_in(disk / "data")) == 11


def test_member_starts_on_a_disk_that_its_log_filled(disk: Path) -> None:
    """What the last segment has reserved is enough: writes are refused as soon as the one behind it finds no room."""
    (disk / "ballast").write_bytes(bytes(DISK_BYTES - (4 << 20)))
    member = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    for _ in range(3 * SEGMENT_BYTES // 5000):
        member.write(bytes(5000))
    member.checkpoint()
    take_all_room(disk / "more")
    taken = fill_until_refused(member, b"small" * 100)
    crash(member)
    take_all_room(disk / "rest")
    again = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    assert len(again.journal.commands) == 3 * SEGMENT_BYTES // 5000 + taken
    again.reactor.run_until(lambda: not again.replica.writable)
    assert again.errors == []
    assert again.replica.propose_attach(b"an attach")
    again.reactor.run_until(lambda: again.journal.commands[-1] == b"an attach")
    (disk / "more").unlink()
    again.reactor.run_until(lambda: again.replica.writable)
    again.stop()


def test_attaches_that_find_no_room_are_refused_in_the_end(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "ATTACHES_LIMIT", 20)
    member = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    take_all_room(disk / "ballast")
    fill_until_refused(member, bytes(5000))
    attaches = 0
    while member.replica.propose_attach(bytes(5000)):
        attaches += 1
        member.reactor.advance(0)
        time.sleep(0.005)
        member.reactor.run_calls()
    assert attaches > 20
    assert len(member.journal.commands) > 0
    (disk / "ballast").unlink()
    member.reactor.run_until(lambda: member.replica.writable and not member.replica.outstanding)
    member.stop()


def crash(member: JournalMember) -> None:
    """End it without a last checkpoint."""
    member.reactor.result_of(member.replica._log_thread.stop())
    member.reactor.result_of(member.replica._checkpointer.idle)
    member.replica._checkpointer.stop()  # its thread would outlive the tests
    member.replica._store.close()
    member.replica.directory.close()


def test_checkpoint_on_a_full_disk_waits_and_the_member_goes_on(disk: Path) -> None:
    member = JournalMember(disk / "data", segment_bytes=SEGMENT_BYTES).start()
    for _ in range(100):
        member.write(bytes(5000))
    member.write(b"wait for the log's thread")
    ballast = disk / "ballast"
    take_all_room(ballast)
    dirty_bytes = member.journal.dirty_bytes
    member.checkpoint()
    assert member.journal.dirty_bytes == dirty_bytes
    assert member.errors == []
    ballast.unlink()
    member.reactor.run_until(lambda: member.replica.writable)
    member.checkpoint()
    assert member.journal.dirty_bytes == 0
    member.write(b"on it goes")
    member.stop()
    assert len(commands_in(disk / "data")) == 102
