"""What is said while a snapshot is streamed, as bytes."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from znoded.jute.primitives import JuteError
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Heartbeat, InstallSnapshot, Snapshot
from znoded.zab_raft.peers.snapshot_wire import (
    Part,
    decode_chunk,
    decode_header,
    decode_position,
    decode_stored,
    encode_chunk,
    encode_header,
    encode_part,
    encode_position,
    encode_stored,
    part_of,
)
from znoded.zab_raft.peers.wire import FRAME_BYTES_LIMIT, FrameKind, encode_frame

BLOBS = st.binary(max_size=30)
ITEMS = st.lists(st.tuples(BLOBS, BLOBS), min_size=1, max_size=20)
MESSAGE = InstallSnapshot(1, 2, 3, Snapshot(4, 3, Configuration.of([1, 2], [3])))
DECODERS: list[Callable[[bytes], Any]] = [decode_chunk, decode_header, decode_position, decode_stored, part_of]


@given(BLOBS, ITEMS)
def test_a_chunk_comes_back_as_it_was(table: bytes, items: list[tuple[bytes, bytes]]) -> None:
    frame = encode_chunk(table, items)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert part_of(frame[4:]) is Part.CHUNK
    assert decode_chunk(frame[4:]) == (table, items)


@given(BLOBS, ITEMS, st.data())
def test_a_chunk_with_a_changed_byte_is_refused(
    table: bytes, items: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    payload = bytearray(encode_chunk(table, items)[4:])
    payload[data.draw(st.integers(1, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JuteError):
        decode_chunk(bytes(payload))


@given(BLOBS, BLOBS, st.integers(0, 2**32 - 1))
def test_answers_come_back_as_they_were(table: bytes, key: bytes, count: int) -> None:
    assert decode_position(encode_position(table, key)[4:]) == (table, key)
    assert decode_stored(encode_stored(count)[4:]) == count


def test_a_header_comes_back_as_it_was() -> None:
    assert decode_header(encode_header(MESSAGE)[4:]) == MESSAGE


@given(st.integers(0, 8), st.binary(max_size=100))
def test_garbage_raises_nothing_but_jute_errors(part: int, garbage: bytes) -> None:
    for payload in (bytes([part]) + garbage, garbage):
        for decode in DECODERS:
            try:
                decode(payload)
            except JuteError:
                pass


@pytest.mark.parametrize(
    ("decode", "payload", "why"),
    [
        (part_of, b"", "no part of a snapshot begins with nothing"),
        (part_of, b"\x08", "no part of a snapshot begins with 08"),
        (decode_position, encode_position(b"", b"")[4:] + b"x", "not a position"),
        (decode_position, b"\2\xff\xff\xff\xff\0\0\0\0", "not a position"),
        (decode_stored, encode_stored(1)[4:] + b"x", "not a count"),
        (
            decode_header,
            encode_part(Part.HEADER, encode_frame(FrameKind.RAFT, Heartbeat(1, 2, 3, 4, 5))[4:])[4:],
            "another message",
        ),
    ],
)
def test_what_is_wrong_is_said(decode: Callable[[bytes], Any], payload: bytes, why: str) -> None:
    with pytest.raises(JuteError, match=why):
        decode(payload)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (Struct(">II").pack(2**31, 0), "a chunk of 2147483648 items in 0 bytes"),
        (Struct(">IIII").pack(1, 0, 5, 0) + b"1234", "a chunk ends at byte 26, its frame at 25"),
        (Struct(">IIII").pack(1, 9, 0, 0) + b"1234", "a chunk ends at byte 30, its frame at 25"),
    ],
)
def test_a_chunk_that_lies_about_its_lengths_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(JuteError, match=why):
        decode_chunk(b"\3" + crc32c(body).to_bytes(4) + body)


def test_a_chunk_that_is_too_long_is_not_made() -> None:
    with pytest.raises(ValueError, match=f"{FRAME_BYTES_LIMIT} are allowed"):
        encode_chunk(b"", [(b"", bytes(FRAME_BYTES_LIMIT))])
