"""A segment byte by byte: what is a record, what a torn tail, what damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.core.messages import HardState
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.segment import (
    HEADER_BYTES,
    Header,
    Record,
    SegmentReader,
    encode_payload,
    record_prefix,
    segment_name,
    sequence_of,
)

SALT = 0x1122334455667788
STATE = HardState(term=3, vote=1, commit=6)


def record(first_index: int, *commands: bytes, salt: int = SALT, state: HardState = STATE) -> bytes:
    payload = encode_payload(first_index, state, commands)
    return record_prefix(salt, payload) + payload


def write(path: Path, *records: bytes, zeros_bytes: int = 4096, base_bytes: int = 0) -> Path:
    header = Header(1, SALT, 7, STATE, base_bytes)
    path.write_bytes(header.encode() + b"".join(records) + bytes(zeros_bytes))
    return path


def read(path: Path) -> list[Record]:
    return list(SegmentReader(str(path)).records())


def test_header_comes_back_as_it_was() -> None:
    header = Header(5, SALT, 77, HardState(2**40, 3, 76), 999)
    assert Header.decode(header.encode(), "path") == header


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=5))
def test_records_come_back_as_they_were(batches: list[list[bytes]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        index, records = 7, []
        for batch in batches:
            records.append(record(index, *batch))
            index += len(batch)
        found = read(write(Path(directory) / "segment", *records))
    assert [one.commands for one in found] == batches
    assert all(one.hard_state == STATE and one.last_term == STATE.term for one in found)


def test_every_record_begins_at_a_multiple_of_eight(tmp_path: Path) -> None:
    found = read(write(tmp_path / "segment", *(record(7 + size, bytes(size)) for size in range(20))))
    assert len(found) == 20
    assert all(one.offset % 8 == 0 and one.end % 8 == 0 for one in found)


def test_a_segment_that_is_full_to_the_last_byte_is_read(tmp_path: Path) -> None:
    assert len(read(write(tmp_path / "segment", record(7, b"a"), zeros_bytes=0))) == 1


@pytest.mark.parametrize("kept", range(0, 96, 5))
def test_torn_last_record_ends_the_records(tmp_path: Path, kept: int) -> None:
    torn = record(8, b"b" * 40)
    assert kept < len(torn)
    found = read(write(tmp_path / "segment", record(7, b"a"), torn[:kept]))
    assert [one.commands for one in found] == [[b"a"]]


def test_invalid_record_before_a_valid_one_is_damage(tmp_path: Path) -> None:
    first, second, third = record(7, b"a"), record(8, b"b" * 40), record(9, b"c")
    path = write(tmp_path / "segment", first, second[:60] + b"?" + second[61:], third)
    with pytest.raises(LogDamaged, match=rf"segment is damaged at offset {HEADER_BYTES + len(first)}"):
        read(path)


def test_flipped_length_before_a_valid_record_is_damage(tmp_path: Path) -> None:
    first, second = record(7, b"a"), record(8, b"b")
    path = write(tmp_path / "segment", first[:12] + b"\x70" + first[13:], second)
    with pytest.raises(LogDamaged, match=f"at offset {HEADER_BYTES}"):
        read(path)


def test_invalid_record_that_was_durable_with_its_segment_is_damage(tmp_path: Path) -> None:
    first = record(7, b"a")
    path = write(tmp_path / "segment", first[:-8] + bytes(8), base_bytes=HEADER_BYTES + len(first))
    with pytest.raises(LogDamaged, match=f"at offset {HEADER_BYTES}"):
        read(path)


def test_records_of_another_salt_are_not_records(tmp_path: Path) -> None:
    path = write(tmp_path / "segment", record(7, b"a"), bytes(8), record(8, b"b", salt=SALT + 1))
    assert len(read(path)) == 1


def test_record_inside_a_command_is_not_a_record_to_the_torn_tail_check(tmp_path: Path) -> None:
    # A client may send what looks like a record, but it does not know the salt.
    inner = record(8, b"b", salt=12345)
    torn = record(8, inner * 3)
    assert len(read(write(tmp_path / "segment", record(7, b"a"), torn[:-20]))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "at offset 0: it is empty"),
        (b"znodelog", "at offset 0: it ends within its header"),
        (b"x" * 200, "at offset 0: its header is not valid"),
        (b"znodelog\0\0\0\x02" + bytes(200), "has format 2 at offset 8, this version reads format 1"),
        (b"znodelog\0\0\0\x01" + bytes(200), "at offset 0: its header is not valid"),
    ],
)
def test_file_that_is_no_segment_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "segment"
    path.write_bytes(content)
    with pytest.raises(LogDamaged, match=message):
        SegmentReader(str(path))


def test_entry_of_a_kind_from_a_later_version_is_refused(tmp_path: Path) -> None:
    payload = bytearray(encode_payload(7, STATE, [b"a"]))
    payload[36 + 4 + 8] = 9
    path = write(tmp_path / "segment", record_prefix(SALT, bytes(payload)) + payload)
    with pytest.raises(LogDamaged, match=f"at offset {HEADER_BYTES} has an entry of unknown kind 9"):
        read(path)


def test_only_segments_have_a_sequence_number() -> None:
    assert sequence_of(segment_name(12)) == 12
    assert sequence_of("spare") is None
    assert sequence_of("0000000000000012.log.gz") is None
