"""Frames between members: what goes in comes out, and no bytes do any harm."""

from __future__ import annotations

from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.jute.primitives import JuteError
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    ReadRequest,
    ReadResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from znoded.zab_raft.peers.wire import FRAME_BYTES_LIMIT, Change, Forward, FrameKind, decode_frame, encode_frame

NUMBERS = st.integers(0, 2**63 - 1)
IDS = st.integers(1, 2**32)
BLOBS = st.binary(max_size=40)


@st.composite
def configurations(draw: Any) -> Configuration:
    ids = draw(st.lists(IDS, min_size=1, max_size=9, unique=True))
    kinds = draw(st.lists(st.integers(0, 3), min_size=len(ids), max_size=len(ids)))
    part = [frozenset(each for each, kind in zip(ids, kinds, strict=True) if kind == wanted) for wanted in range(4)]
    voters = part[0] or frozenset(ids[:1])
    outgoing = part[1] | part[2] - voters
    return Configuration(
        voters, outgoing, part[3] - voters, part[2] - voters, bool(outgoing) and draw(st.booleans()), max(ids)
    )


@st.composite
def appends(draw: Any) -> AppendRequest:
    index = draw(st.integers(0, 2**62))
    items = draw(st.lists(st.tuples(NUMBERS, st.sampled_from(EntryKind), BLOBS), max_size=20))
    entries = tuple(Entry(index + 1 + place, *item) for place, item in enumerate(items))
    return AppendRequest(draw(IDS), draw(IDS), draw(NUMBERS), index, draw(NUMBERS), entries, draw(NUMBERS))


FLAGS = st.booleans()
MESSAGES = st.one_of(
    appends(),
    st.builds(AppendResponse, IDS, IDS, NUMBERS, NUMBERS, FLAGS, NUMBERS, NUMBERS, FLAGS),
    st.builds(Heartbeat, IDS, IDS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(HeartbeatResponse, IDS, IDS, NUMBERS, NUMBERS),
    st.builds(VoteRequest, IDS, IDS, NUMBERS, FLAGS, FLAGS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(VoteResponse, IDS, IDS, NUMBERS, FLAGS, FLAGS, NUMBERS, NUMBERS),
    st.builds(InstallSnapshot, IDS, IDS, NUMBERS, st.builds(Snapshot, NUMBERS, NUMBERS, configurations())),
    st.builds(TimeoutNow, IDS, IDS, NUMBERS),
    st.builds(ReadRequest, IDS, IDS, NUMBERS, NUMBERS),
    st.builds(ReadResponse, IDS, IDS, NUMBERS, NUMBERS, NUMBERS, FLAGS),
)
RECORDS = st.one_of(
    st.tuples(st.just(FrameKind.RAFT), MESSAGES),
    st.tuples(st.just(FrameKind.FORWARD), st.builds(Forward, NUMBERS, st.lists(BLOBS, max_size=20))),
    st.tuples(st.just(FrameKind.CHANGE), st.builds(Change, NUMBERS, BLOBS)),
    st.tuples(st.just(FrameKind.TELL), BLOBS),
)


def payload_of(kind: FrameKind, record: Any) -> bytes:
    frame = encode_frame(kind, record)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    return frame[4:]


@given(RECORDS)
def test_a_frame_comes_back_as_it_was(framed: tuple[FrameKind, Any]) -> None:
    kind, record = decode_frame(payload_of(*framed))
    assert (kind, record) == framed
    assert type(record) is type(framed[1])


@given(appends())
def test_entries_come_back_as_entries(message: AppendRequest) -> None:
    _, decoded = decode_frame(payload_of(FrameKind.RAFT, message))
    assert isinstance(decoded, AppendRequest)
    assert all(type(entry) is Entry and type(entry.kind) is EntryKind for entry in decoded.entries)


@given(RECORDS, st.data())
def test_a_cut_frame_is_refused_or_another_one(framed: tuple[FrameKind, Any], data: st.DataObject) -> None:
    payload = payload_of(*framed)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        kind, _ = decode_frame(cut)
    except JuteError:
        return
    assert kind in (FrameKind.CHANGE, FrameKind.TELL)  # they go on to the end of their frame


@given(RECORDS)
def test_bytes_behind_a_record_are_refused(framed: tuple[FrameKind, Any]) -> None:
    if framed[0] in (FrameKind.RAFT, FrameKind.FORWARD):
        with pytest.raises(JuteError):
            decode_frame(payload_of(*framed) + b"\0")


@given(RECORDS, st.data())
def test_a_changed_byte_raises_nothing_but_jute_errors(framed: tuple[FrameKind, Any], data: st.DataObject) -> None:
    payload = bytearray(payload_of(*framed))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_frame(bytes(payload))
    except JuteError:
        pass


@given(st.one_of(st.binary(max_size=200), st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(0, 11), BLOBS)))
def test_garbage_raises_nothing_but_jute_errors(garbage: Any) -> None:
    payload = garbage if isinstance(garbage, bytes) else bytes(garbage[:2]) + garbage[2]
    try:
        decode_frame(payload)
    except JuteError:
        pass


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "no frame begins with nothing"),
        (b"\x05", "no frame begins with 05"),
        (b"\x01", "no frame begins with 01"),
        (b"\x01\x0b", "no frame begins with 010b"),
        (b"\x01\x04" + bytes(31), "a message of 33 bytes, 34 belong there"),
        (b"\x01\x01" + bytes(51), "an append of 53 bytes"),
        (b"\x02" + Struct(">QI").pack(1, 2**32 - 1), "4294967295 items need at least 17179869180 bytes, 0 are left"),
        (b"\x02" + Struct(">QII").pack(1, 1, 9) + b"12345678", "1 items end at byte 26, their frame at byte 25"),
        (b"\x01\x01" + Struct(">6QI").pack(1, 2, 3, 4, 5, 6, 2**31), "2147483648 entries need at least"),
        (b"\x01\x01" + Struct(">6QIQBI").pack(1, 2, 3, 4, 5, 6, 1, 7, 3, 0), "no entry has kind 3"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(payload: bytes, why: str) -> None:
    with pytest.raises(JuteError, match=why):
        decode_frame(payload)


def test_a_configuration_that_cannot_be_is_refused() -> None:
    impossible = Configuration(frozenset((1,)), learners=frozenset((1,)), highest_id=1)
    with pytest.raises(JuteError, match="both voter and learner"):
        decode_frame(payload_of(FrameKind.RAFT, InstallSnapshot(1, 2, 3, Snapshot(4, 5, impossible))))


def test_a_frame_that_is_too_long_is_not_made() -> None:
    with pytest.raises(ValueError, match=f"{FRAME_BYTES_LIMIT} are allowed"):
        encode_frame(FrameKind.TELL, bytes(FRAME_BYTES_LIMIT))
    assert len(encode_frame(FrameKind.TELL, bytes(FRAME_BYTES_LIMIT - 1))) == 4 + FRAME_BYTES_LIMIT
