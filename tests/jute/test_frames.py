"""Cutting a byte stream into frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.jute import factory
from tests.jute.factory import in_pieces
from znoded.jute.frames import FrameSplitter, frame

LIMIT_BYTES = 64

payloads = st.lists(st.binary(max_size=LIMIT_BYTES), max_size=6)


def test_a_frame_is_the_length_of_the_payload_and_the_payload() -> None:
    assert frame(b"abc") == factory.frame(b"abc") == b"\0\0\0\3abc"
    assert frame(b"") == b"\0\0\0\0"


@given(payloads, st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(sent: list[bytes], data: st.DataObject) -> None:
    stream = b"".join([frame(payload) for payload in sent])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    splitter = FrameSplitter(LIMIT_BYTES)
    assert [payload for piece in in_pieces(stream, cuts) for payload in splitter.feed(piece)] == sent


def test_a_frame_is_given_out_with_its_last_byte_and_not_before() -> None:
    splitter = FrameSplitter(LIMIT_BYTES)
    pieces = [bytes([byte]) for byte in factory.frame(b"abc")]
    assert [splitter.feed(piece) for piece in pieces] == [[], [], [], [], [], [], [b"abc"]]


def test_a_frame_of_exactly_the_limit_is_fine() -> None:
    assert FrameSplitter(LIMIT_BYTES).feed(frame(b"x" * LIMIT_BYTES)) == [b"x" * LIMIT_BYTES]
