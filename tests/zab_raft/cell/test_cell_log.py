"""The log of a cell's member: entries of all kinds and terms, replaced ends, cuts at every byte."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.cell.log import CellLog, Readies, Restart
from znoded.zab_raft.cell.recovery import CellRecovery
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Entry, EntryKind, HardState, Snapshot
from znoded.zab_raft.core.node import Ready
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.recovery import Recovery
from znoded.zab_raft.segment import SegmentReader, encode_entries, record_prefix

SEGMENT_BYTES = 2048
ALONE = Configuration.of((1,))


def entries(first_index: int, *terms: int, size_bytes: int = 1) -> list[Entry]:
    return [
        Entry(index, term, EntryKind.COMMAND, b"%d/%d" % (index, term) * size_bytes)
        for index, term in enumerate(terms, first_index)
    ]


def ready(written: Sequence[Entry], term: int, commit: int = 0, log_end: int = 0, vote: int = 0) -> Ready:
    end = written[-1].index if written else log_end
    return Ready(1, HardState(term, vote, commit), (end, term), True, None, written, (), (), (), (), ())


def write(log: CellLog, *readies: Ready) -> None:
    log.append(Readies.of_readies(list(readies)))


def read(path: Path, index: int = 0, term: int = 0) -> CellRecovery:
    recovery = CellRecovery(str(path), index, term)
    recovery.read()
    return recovery


def begin(path: Path, index: int = 0, term: int = 0) -> CellLog:
    recovery = read(path, index, term)
    log = CellLog(str(path), SEGMENT_BYTES, Files())
    tail = [payload for _, payload in recovery.tail()]
    log.begin(recovery.sequence + 1, recovery.hard_state, recovery.first_index, recovery.last_index, tail)
    return log


def test_entries_of_all_kinds_and_terms_come_back(tmp_path: Path) -> None:
    log = begin(tmp_path)
    written = [
        Entry(1, 1, EntryKind.TERM_START, b""),
        Entry(2, 1, EntryKind.COMMAND, b"a"),
        Entry(3, 3, EntryKind.CONFIGURATION, b"change"),
    ]
    write(log, ready(written, term=4, commit=2, vote=2))
    recovery = read(tmp_path)
    assert recovery.entries == written
    assert recovery.hard_state == (4, 2, 2)
    assert (recovery.last_index, recovery.last_term) == (3, 3)


def test_hard_state_alone_is_a_record(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1), term=1))
    write(log, ready((), term=5, vote=3, log_end=2))
    assert read(tmp_path).hard_state == (5, 3, 0)
    assert len(read(tmp_path).entries) == 2


def test_d6_later_record_replaces_the_end(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1, 1, 1), term=1))
    write(log, ready(entries(2, 2), term=2, commit=1))
    write(log, ready(entries(3, 2), term=2))
    assert read(tmp_path).entries == [*entries(1, 1), *entries(2, 2, 2)]


def test_d6_replacement_may_begin_a_segment(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, *[1] * 30, size_bytes=12), term=1))
    write(log, ready(entries(9, *[2] * 30, size_bytes=12), term=2, commit=8))
    recovery = read(tmp_path)
    assert recovery.entries == [*entries(1, *[1] * 8, size_bytes=12), *entries(9, *[2] * 30, size_bytes=12)]
    begin(tmp_path)
    assert read(tmp_path).entries == recovery.entries


def test_d6_replacement_of_what_a_forgotten_segment_ended_with_is_no_damage(tmp_path: Path) -> None:
    """It begins before the segment that it is in, whose head was written when the replaced entries were there."""
    log = begin(tmp_path)
    write(log, ready(entries(1, *[1] * 30, size_bytes=12), term=1))
    write(log, ready(entries(31, *[1] * 10, size_bytes=12), term=1))
    write(log, ready(entries(29, *[2] * 4), term=2, commit=28))
    write(log, ready((), term=2, commit=32, log_end=32))
    assert len(list(tmp_path.glob("*.log"))) == 2
    log.forget(30)
    assert len(list(tmp_path.glob("*.log"))) == 1
    recovery = read(tmp_path, 31, 2)
    assert recovery.entries == entries(29, *[2] * 4)
    begin(tmp_path, 31, 2)
    assert read(tmp_path, 31, 2).entries == recovery.entries


def test_damage_at_the_end_of_a_segment_that_another_one_follows_is_no_torn_record(tmp_path: Path) -> None:
    """What it replaced would be there again, and what follows would fit behind that."""
    log = begin(tmp_path)
    write(log, ready(entries(1, *[1] * 10, size_bytes=12), term=1))
    write(log, ready(entries(5, 2, 2, size_bytes=12), term=2, commit=4))
    write(log, ready(entries(7, *[2] * 30, size_bytes=12), term=2, commit=4))
    segment = min(tmp_path.glob("*.log"))
    reader = SegmentReader(str(segment))
    *_, last = reader.records()
    reader.close()
    content = bytearray(segment.read_bytes())
    content[last.end - 20] ^= 1
    segment.write_bytes(content)
    with pytest.raises(LogDamaged, match="a segment follows"):
        read(tmp_path)


def test_joined_readies_are_what_the_last_of_them_leaves(tmp_path: Path) -> None:
    log = begin(tmp_path)
    first, second = ready(entries(1, 1, 1, 1), term=1), ready(entries(2, 2), term=2, commit=1)
    third = ready((), term=3, vote=1, log_end=2)
    write(log, first, second, third)
    recovery = read(tmp_path)
    assert recovery.entries == [*entries(1, 1), *entries(2, 2)]
    assert recovery.hard_state == (3, 1, 0)


def test_d4_cut_at_every_byte_leaves_a_record_whole_or_not_at_all(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1, 1), term=1))
    before = read(tmp_path)
    (segment,) = tmp_path.glob("*.log")
    content = segment.read_bytes()
    write(log, ready(entries(2, 2, 2), term=2, commit=1, vote=2))
    whole = segment.read_bytes()
    start, end = log._offset - (log._offset - content.rstrip(b"\0").__len__()), log._offset
    for cut in range(start, end + 1):
        segment.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        after = read(tmp_path)
        if after.hard_state == before.hard_state:
            assert after.entries == before.entries
        else:
            assert after.hard_state == (2, 2, 1)
            assert after.entries == [*entries(1, 1), *entries(2, 2, 2)]


def test_d4_head_of_a_segment_does_not_tell_the_hard_state_of_a_record_that_is_not_there(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, *[1] * 30, size_bytes=12), term=1))
    write(log, ready(entries(31, *[2] * 30, size_bytes=12), term=2, commit=55))
    newest = max(tmp_path.glob("*.log"))
    reader = SegmentReader(str(newest))
    (record,) = reader.records()
    reader.close()
    content = newest.read_bytes()
    newest.write_bytes(content[: record.offset] + bytes(len(content) - record.offset))
    recovery = read(tmp_path)
    assert recovery.hard_state == (1, 0, 0)
    assert recovery.last_index == 30


def test_log_that_begins_anew_forgets_what_was_before(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, *[1] * 60, size_bytes=12), term=1))
    snapshot = Snapshot(90, 2, ALONE)
    log.append(Restart.behind(Ready(1, HardState(3, 0, 90), (90, 2), True, snapshot, (), (), (), (), (), ())))
    write(log, ready(entries(91, 3), term=3, commit=90))
    assert len(list(tmp_path.glob("*.log"))) == 1
    recovery = read(tmp_path, 90, 2)
    assert recovery.entries == entries(91, 3)
    assert recovery.hard_state == (3, 0, 90)


def test_log_that_begins_anew_still_has_the_segment_that_was_kept_to_be_used_again(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for index in range(1, 61):
        write(log, ready(entries(index, 1, size_bytes=12), term=1))
    log.prepare()
    log.forget(60)
    assert (tmp_path / "spare.next").exists()
    snapshot = Snapshot(90, 2, ALONE)
    log.append(Restart.behind(Ready(1, HardState(3, 0, 90), (90, 2), True, snapshot, (), (), (), (), (), ())))
    for index in range(91, 191):
        write(log, ready(entries(index, 3, size_bytes=12), term=3, commit=90))
    assert not (tmp_path / "spare.next").exists()
    assert read(tmp_path, 90, 2).entries == [
        entry for index in range(91, 191) for entry in entries(index, 3, size_bytes=12)
    ]


@pytest.mark.parametrize(
    ("index", "term", "kept"),
    [
        (2, 1, 4),  # a checkpoint of this log: all of it is kept
        (4, 1, 4),
        (4, 2, 0),  # another history leads there
        (9, 3, 0),  # it is beyond the end
    ],
)
def test_d10_log_that_does_not_lead_to_the_checkpoint_is_dropped(
    tmp_path: Path, index: int, term: int, kept: int
) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1, 1, 1), term=1, vote=3))
    recovery = read(tmp_path, index, term)
    assert len(recovery.entries) == kept
    assert recovery.last_index == max(index, kept)
    assert recovery.hard_state == (max(term, 1), 3 if term == 1 else 0, index)
    stored = recovery.stored(ALONE)
    assert stored.snapshot == Snapshot(index, term, ALONE)
    assert stored.last_index == max(index, kept)
    assert stored.term(index) == term


def test_d11_first_entry_that_is_kept_tells_the_term_in_front_of_the_others(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1, 2, 2), term=2))
    stored = read(tmp_path, 3, 2).stored(ALONE)
    assert stored.first_index == 2
    assert [stored.term(index) for index in (1, 2, 3, 4)] == [1, 1, 2, 2]


def test_segments_before_the_kept_tail_are_removed(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for index in range(1, 40):
        write(log, ready(entries(index, 1, size_bytes=30), term=1, commit=index - 1))
    log.prepare()
    log.forget(20)
    recovery = read(tmp_path, 30, 1)
    assert recovery.first_index <= 21
    assert recovery.entries[-1].index == 39


def damaged(tmp_path: Path, first_index: int, written: Sequence[Entry]) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1, 1), term=1, commit=2))
    payload = encode_entries(first_index, HardState(2, 0, 2), written)
    (segment,) = tmp_path.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(log._offset)
        file.write(record_prefix(log._header.salt, payload) + payload)


def test_record_behind_a_gap_is_damage(tmp_path: Path) -> None:
    damaged(tmp_path, 5, entries(5, 2))
    with pytest.raises(LogDamaged, match="it has index 5 where at most 4 belongs"):
        read(tmp_path)


def test_record_that_replaces_what_was_committed_is_damage(tmp_path: Path) -> None:
    damaged(tmp_path, 2, entries(2, 2))
    with pytest.raises(LogDamaged, match="has index 2 .* and at least 3"):
        read(tmp_path)


def test_record_without_entries_belongs_to_the_end(tmp_path: Path) -> None:
    damaged(tmp_path, 3, ())
    with pytest.raises(LogDamaged, match="has index 3 .* and at least 4"):
        read(tmp_path)


def test_end_before_what_was_committed_is_damage(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready(entries(1, 1, 1, 1), term=1, commit=3))
    write(log, ready((), term=1, commit=7, log_end=3))
    with pytest.raises(LogDamaged, match="ends with index 3, but what was committed up to index 7"):
        read(tmp_path)


def test_missing_segment_is_damage(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for index in range(1, 40):
        write(log, ready(entries(index, 1, size_bytes=30), term=1))
    segment = sorted(tmp_path.glob("*.log"))[1]
    content = segment.read_bytes()
    segment.write_bytes(content[:72] + bytes(len(content) - 72))
    with pytest.raises(LogDamaged, match="ends before index .*: what lies between is lost; remove this member"):
        read(tmp_path)


def test_lone_member_does_not_read_the_log_of_a_cell(tmp_path: Path) -> None:
    log = begin(tmp_path)
    write(log, ready([Entry(1, 1, EntryKind.TERM_START, b"")], term=1))
    with pytest.raises(LogDamaged, match="was written by a member of a cell"):
        list(Recovery(str(tmp_path), 0, 0).records())


@given(
    st.lists(
        st.tuples(st.integers(1, 1 << 60), st.sampled_from(EntryKind), st.binary(max_size=50)), min_size=0, max_size=20
    ),
    st.integers(1, 1 << 60),
)
def test_any_record_comes_back(fields: list[tuple[int, EntryKind, bytes]], first_index: int) -> None:
    written = [Entry(index, *each) for index, each in enumerate(fields, first_index)]
    state = HardState(7, 2, first_index - 1)
    with tempfile.TemporaryDirectory() as directory:
        log = CellLog(directory, SEGMENT_BYTES, Files())
        log.begin(1, state, first_index, first_index - 1, [encode_entries(first_index, state, written)])
        recovery = CellRecovery(directory, first_index - 1, 1)
        recovery.read()
        assert recovery.entries == written
        log.close()
