"""A log that is written and read back, across segments and restarts, and what is damage in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.logger import capturedLogs

from znoded.zab_raft.core.messages import HardState
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.log import FILL_BYTES, Batch, Log
from znoded.zab_raft.recovery import Recovery

SEGMENT_BYTES = 512


class CountingFiles(Files):
    """Counts how often it waits for the disk."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync(descriptor)


def begin(path: Path, term: int = 1) -> Log:
    """Start the log the way a member does: read all there is, then begin a new term."""
    recovery = Recovery(str(path), 0, 0)
    list(recovery.records())
    log = Log(str(path), SEGMENT_BYTES, Files())
    state = HardState(recovery.hard_state.term + 1, 1, recovery.last_index)
    log.begin(recovery.sequence + 1, state, recovery.first_index, recovery.last_index, recovery.payloads)
    return log


def append(log: Log, first_index: int, *commands: bytes, term: int = 1) -> None:
    log.append(Batch.of(first_index, HardState(term, 1, first_index - 1), list(commands)))


def fill(log: Log, first_index: int, last_index: int) -> None:
    for index in range(first_index, last_index + 1):
        append(log, index, b"%d" % index * 40)


def read(path: Path, checkpoint_index: int = 0) -> list[tuple[int, list[bytes]]]:
    return list(Recovery(str(path), checkpoint_index, 1).records())


def segments(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path) if not name.startswith("spare"))


def test_batches_come_back_in_order(tmp_path: Path) -> None:
    log = begin(tmp_path)
    append(log, 1, b"a", b"b")
    append(log, 3, b"c")
    assert read(tmp_path) == [(1, [b"a", b"b"]), (3, [b"c"])]


def test_log_goes_on_in_the_next_segment_when_one_is_full(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 20)
    assert len(segments(tmp_path)) > 5
    assert [first for first, _commands in read(tmp_path)] == list(range(1, 21))


def test_batch_larger_than_a_segment_gets_a_segment_of_its_own(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.prepare()
    append(log, 1, b"small")
    append(log, 2, b"x" * 5000)
    append(log, 3, b"small")
    assert [len(commands[0]) for _first, commands in read(tmp_path)] == [5, 5000, 5]
    assert len(segments(tmp_path)) == 3


def test_segments_are_full_size_from_the_start(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.prepare()
    assert log.has_spare
    assert {(tmp_path / name).stat().st_size for name in os.listdir(tmp_path)} == {SEGMENT_BYTES}


def test_restart_repeats_the_tail_in_a_new_segment_and_removes_the_old_ones(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 20)
    before = read(tmp_path)
    begin(tmp_path)
    assert len(segments(tmp_path)) == 1
    assert read(tmp_path) == before


def test_term_moves_on_even_when_a_member_restarts_without_a_write(tmp_path: Path) -> None:
    log = begin(tmp_path)
    append(log, 1, b"a")
    begin(tmp_path)
    begin(tmp_path)
    recovery = Recovery(str(tmp_path), 0, 0)
    list(recovery.records())
    assert recovery.hard_state == HardState(3, 1, 1)
    assert (recovery.last_index, recovery.last_term) == (1, 1)


def test_recovery_hands_out_only_what_the_checkpoint_lacks(tmp_path: Path) -> None:
    log = begin(tmp_path)
    append(log, 1, b"a", b"b")
    append(log, 3, b"c", b"d", b"e")
    append(log, 6, b"f")
    assert read(tmp_path, 2) == [(3, [b"c", b"d", b"e"]), (6, [b"f"])]
    assert read(tmp_path, 4) == [(5, [b"e"]), (6, [b"f"])]
    recovery = Recovery(str(tmp_path), 6, 4)
    assert list(recovery.records()) == []
    assert (recovery.first_index, recovery.last_index, recovery.last_term) == (7, 6, 4)


def test_segments_behind_the_checkpoint_are_removed(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 20)
    count = len(segments(tmp_path))
    log.forget(10)
    assert 1 < len(segments(tmp_path)) < count
    kept = read(tmp_path, 10)
    assert [first for first, _commands in kept] == list(range(11, 21))
    log.forget(20)
    assert len(segments(tmp_path)) == 1
    append(log, 21, b"next")
    assert read(tmp_path, 20) == [(21, [b"next"])]


def test_segment_behind_the_checkpoint_is_used_again(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 5)
    log.prepare()
    first = tmp_path / segments(tmp_path)[0]
    number = first.stat().st_ino
    log.forget(5)
    assert not first.exists()
    assert (tmp_path / "spare").stat().st_ino == number
    fill(log, 6, 20)
    assert number in {(tmp_path / name).stat().st_ino for name in segments(tmp_path)}
    assert [first_index for first_index, _commands in read(tmp_path, 5)] == list(range(6, 21))


def test_one_more_segment_waits_for_the_spare_to_be_used_up(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.prepare()
    fill(log, 1, 20)
    log.prepare()
    numbers = [(tmp_path / name).stat().st_ino for name in segments(tmp_path)]
    log.forget(20)
    kept = [(tmp_path / name).stat().st_ino for name in ("spare", "spare.next")]
    assert kept == numbers[:2]
    append(log, 21, b"x" * (SEGMENT_BYTES * 3 // 4))
    log.prepare()
    assert (tmp_path / segments(tmp_path)[-1]).stat().st_ino == kept[0]
    assert (tmp_path / "spare").stat().st_ino == kept[1]
    assert not log.has_unfilled_spare, "it need not be filled with zeros"
    assert read(tmp_path, 20) == [(21, [b"x" * (SEGMENT_BYTES * 3 // 4)])]


def test_a_segment_that_waited_is_gone_with_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "spare.next").write_bytes(b"much")
    begin(tmp_path)
    assert not (tmp_path / "spare.next").exists()


def test_old_records_in_a_segment_that_is_used_again_are_not_read(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 5)
    log.prepare()
    log.forget(5)
    append(log, 6, b"x" * 200)
    assert b"3" * 20 in (tmp_path / segments(tmp_path)[-1]).read_bytes()
    with capturedLogs() as events:
        assert read(tmp_path, 5) == [(6, [b"x" * 200])]
    assert events == []


def test_removal_that_a_crash_cut_short_leaves_no_trouble(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 20)
    names = segments(tmp_path)
    os.unlink(tmp_path / names[1])  # the directory's changes may reach the disk in any order
    assert read(tmp_path, 10)[0][0] == 11


def test_segments_from_before_the_last_start_are_not_read(tmp_path: Path) -> None:
    log = begin(tmp_path)
    append(log, 1, b"a")
    old = {name: (tmp_path / name).read_bytes() for name in segments(tmp_path)}
    begin(tmp_path)
    for name, content in old.items():
        (tmp_path / name).write_bytes(content[:90] + b"damage")
    assert read(tmp_path) == [(1, [b"a"])]
    begin(tmp_path)
    assert not set(old) & set(segments(tmp_path))


def test_missing_segment_is_damage(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 20)
    os.unlink(tmp_path / segments(tmp_path)[2])
    with pytest.raises(LogDamaged, match="but the checkpoint ends with index 0: what lies between is lost"):
        read(tmp_path)


def test_segment_whose_last_records_are_gone_is_damage(tmp_path: Path) -> None:
    log = begin(tmp_path)
    fill(log, 1, 20)
    path = tmp_path / segments(tmp_path)[2]
    path.write_bytes(path.read_bytes()[:72] + bytes(SEGMENT_BYTES - 72))
    with pytest.raises(LogDamaged, match=rf"{path} ends before index .* begins with index"):
        read(tmp_path)


def test_record_with_the_wrong_index_is_damage(tmp_path: Path) -> None:
    log = begin(tmp_path)
    append(log, 1, b"a")
    append(log, 3, b"c")
    with pytest.raises(
        LogDamaged, match=r"0000000000000001.log is damaged at offset \d+: it has index 3 where 2 belongs"
    ):
        read(tmp_path)


def test_torn_tail_is_left_out_and_said(tmp_path: Path) -> None:
    log = begin(tmp_path)
    append(log, 1, b"a")
    append(log, 2, b"b" * 40)
    path = tmp_path / segments(tmp_path)[0]
    content = bytearray(path.read_bytes())
    torn_offset = content.index(b"b" * 40) - 65
    content[torn_offset + 80 :] = bytes(len(content) - torn_offset - 80)
    path.write_bytes(content)
    with capturedLogs() as events:
        assert read(tmp_path) == [(1, [b"a"])]
    assert [(event["path"], event["offset"]) for event in events] == [(str(path), torn_offset)]


def test_no_segment_at_all_is_seen(tmp_path: Path) -> None:
    assert Recovery(str(tmp_path), 0, 0).empty
    begin(tmp_path)
    assert not Recovery(str(tmp_path), 0, 0).empty


def test_the_next_segment_is_filled_once_this_one_is_half_full(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.prepare()
    assert not log.has_unfilled_spare
    append(log, 1, b"x" * (SEGMENT_BYTES // 2))
    assert log.has_unfilled_spare
    log.fill_spare()
    assert not log.has_unfilled_spare
    append(log, 2, b"x" * (SEGMENT_BYTES // 2))
    assert len(read(tmp_path)) == 2


@pytest.mark.parametrize("segment_bytes", [FILL_BYTES, 8 * FILL_BYTES])
def test_a_start_waits_for_the_disk_as_often_for_a_large_segment(tmp_path: Path, segment_bytes: int) -> None:
    files = CountingFiles()
    Log(str(tmp_path), segment_bytes, files).begin(1, HardState(1, 1, 0), 1, 0, ())
    assert files.syncs == 2
    assert (tmp_path / "0000000000000001.log").stat().st_blocks * 512 >= segment_bytes
