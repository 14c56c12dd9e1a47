"""Frames and records that are none: each is a JuteError that says what is wrong, and costs no memory."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.jute import factory
from tests.jute.factory import acl, i4, i8, multi, stat, string, strings, vector
from tests.jute.test_records_on_the_wire import CASES
from znoded.jute.fields import Record
from znoded.jute.frames import FrameSplitter, FrameTooLong
from znoded.jute.multi import MultiReadReply, MultiReadRequest, MultiReply, MultiRequest
from znoded.jute.primitives import JuteError, Reader
from znoded.jute.records import (
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    GetAclReply,
    GetDataReply,
    PathRequest,
    SetAclRequest,
    SetWatches2Request,
    SetWatchesRequest,
    WhoAmIReply,
)

LIMIT_BYTES = 64
HUGE = 2**31 - 1
PATH = string(b"/a")
CREATE = PATH + i4(0) + vector(acl(31, b"world", b"anyone"))


@pytest.mark.parametrize("frame_bytes", [-1, -(2**31), LIMIT_BYTES + 1, HUGE])
def test_a_frame_length_out_of_range_is_refused_at_its_length(frame_bytes: int) -> None:
    with pytest.raises(FrameTooLong, match=f"a frame of {frame_bytes} bytes; 0 to 64 are allowed") as caught:
        FrameSplitter(LIMIT_BYTES).feed(i4(frame_bytes))
    assert (caught.value.frame_bytes, caught.value.payloads) == (frame_bytes, [])


def test_frames_before_a_bad_length_are_not_lost() -> None:
    splitter = FrameSplitter(LIMIT_BYTES)
    assert splitter.feed(factory.frame(b"first")) == [b"first"]
    with pytest.raises(FrameTooLong) as caught:
        splitter.feed(factory.frame(b"second") + i4(HUGE) + b"whatever")
    assert caught.value.payloads == [b"second"]


def test_a_stream_with_a_bad_length_stays_refused() -> None:
    splitter = FrameSplitter(LIMIT_BYTES)
    for data, payloads in ((factory.frame(b"good") + i4(HUGE), [b"good"]), (b"", []), (factory.frame(b"lost"), [])):
        with pytest.raises(FrameTooLong) as caught:
            splitter.feed(data)
        assert caught.value.payloads == payloads


@pytest.mark.parametrize(("value", "encoded"), CASES, ids=lambda case: type(case).__name__)
def test_a_record_cut_anywhere_is_refused(value: Record, encoded: bytes) -> None:
    without_read_only = len(encoded) - 1 if isinstance(value, ConnectRequest | ConnectResponse) else None
    for size_bytes in range(len(encoded)):
        if size_bytes != without_read_only or getattr(value, "read_only", None) is None:
            with pytest.raises(JuteError):
                type(value).decode(Reader(encoded[:size_bytes]))


@pytest.mark.parametrize("length", [-2, -(2**31), 3, HUGE])
def test_a_length_below_minus_one_or_beyond_the_frame_is_refused(length: int) -> None:
    with pytest.raises(JuteError, match=str(length)):
        PathRequest.decode(Reader(i4(length) + b"/\0"))


def test_lengths_are_compared_with_the_frame_and_not_with_the_bytes_behind_it() -> None:
    data = i4(4) + b"/a" + b"next frame"
    with pytest.raises(JuteError, match="4 bytes are needed at byte 4, 2 are left"):
        PathRequest.decode(Reader(data, 0, 6))


@pytest.mark.parametrize(
    ("cls", "encoded"),
    [
        (CreateRequest, PATH + i4(0) + i4(HUGE) + i4(0)),
        (SetAclRequest, PATH + i4(HUGE) + i4(0)),
        (SetAclRequest, PATH + i4(2) + acl(31, b"world", b"anyone")),
        (SetWatchesRequest, i8(0) + i4(HUGE) + i4(0) + i4(0)),
        (SetWatches2Request, i8(0) + i4(0) * 4 + i4(HUGE)),
        (WhoAmIReply, i4(HUGE)),
        (GetAclReply, i4(HUGE) + stat()),
    ],
)
def test_a_count_that_cannot_fit_in_the_frame_is_refused(cls: type[Record], encoded: bytes) -> None:
    with pytest.raises(JuteError, match=r"a vector of \d+ items needs at least \d+ bytes"):
        cls.decode(Reader(encoded))


def test_a_null_string_in_a_vector_is_refused() -> None:
    with pytest.raises(JuteError, match="a null string in a vector at byte 18"):
        SetWatchesRequest.decode(Reader(i8(0) + vector(string(b"/a"), i4(-1)) + i4(0) + i4(0)))


@pytest.mark.parametrize("op", [9999, 0, 3, 4, 6, 7, 8, 9, 11, 12, 14, 16, 17, 20, 22, 100, 106, -1, -10, -11])
def test_an_op_that_is_no_write_makes_the_whole_multi_invalid(op: int) -> None:
    with pytest.raises(JuteError, match=f"op {op} in a multi; allowed are 1, 2, 5, 13, 15, 19, 21"):
        MultiRequest.decode(Reader(multi((1, CREATE + i4(0)), (op, PATH + b"\0"))))


@pytest.mark.parametrize("op", [9999, 0, 1, 2, 3, 5, 6, 12, 13, 14, 15, 22, -1])
def test_an_op_that_is_no_read_makes_the_whole_multi_read_invalid(op: int) -> None:
    with pytest.raises(JuteError, match=f"op {op} in a multi; allowed are 4, 8"):
        MultiReadRequest.decode(Reader(multi((4, PATH + b"\0"), (op, PATH + b"\0" * 9))))


@pytest.mark.parametrize("op", [1, 15, 19])
@pytest.mark.parametrize("flags", [5, 6, 7, -1, HUGE])
def test_bad_create_flags_make_the_whole_multi_invalid(op: int, flags: int) -> None:
    with pytest.raises(JuteError, match=f"op {op} with flags {flags} in a multi"):
        MultiRequest.decode(Reader(multi((op, CREATE + i4(flags)))))


@pytest.mark.parametrize("op", [3, 4, 19, 21])
def test_a_result_of_an_op_that_has_none_is_refused(op: int) -> None:
    with pytest.raises(JuteError, match=f"op {op} in a multi"):
        MultiReply.decode(Reader(multi((op, PATH + stat()), err=0)))
    with pytest.raises(JuteError, match="op 5 in a multi; allowed are 4, 8, -1"):
        MultiReadReply.decode(Reader(multi((5, stat()), err=0)))


def test_a_multi_without_its_end_mark_is_refused() -> None:
    whole = multi((2, PATH + i4(-1)))
    with pytest.raises(JuteError):
        MultiRequest.decode(Reader(whole[:-9]))


@pytest.mark.parametrize(
    ("cls", "encoded"),
    [
        (GetDataReply, i4(HUGE)),
        (SetWatchesRequest, i8(0) + i4(HUGE)),
        (SetAclRequest, PATH + i4(HUGE)),
        (SetWatchesRequest, i8(0) + i4(20_000) + i4(0) * 19_999 + i4(HUGE)),
        (SetAclRequest, PATH + i4(6_000) + acl(0, None, None) * 5_999 + i4(HUGE)),
        (WhoAmIReply, i4(10_000) + i4(-1) * 19_999),
        (MultiRequest, multi(*[(2, i4(-1) * 2)] * 4_000)[:-1]),
    ],
)
def test_memory_is_bounded_by_the_frame_and_not_by_what_it_claims(cls: type[Record], encoded: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(JuteError):
            cls.decode(Reader(encoded))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 * len(encoded) + 8192


def test_an_endless_frame_is_not_collected_beyond_the_limit() -> None:
    tracemalloc.start()
    try:
        splitter = FrameSplitter(1 << 20)
        for _ in range(16):
            splitter.feed(i4(1 << 20) + bytes(1 << 20))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 << 20


def test_one_set_of_strings_is_not_another() -> None:
    with pytest.raises(JuteError):
        SetWatches2Request.decode(Reader(i8(0) + strings(b"/a") * 3))
