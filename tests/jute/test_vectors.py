"""The bytes that a real ZooKeeper was seen to send (protocol facts 17)."""

from __future__ import annotations

from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Record
from znoded.jute.frames import FrameSplitter, frame
from znoded.jute.multi import MultiReply, MultiRequest
from znoded.jute.ops import PING_XID, EventType, KeeperState, Op
from znoded.jute.primitives import Reader
from znoded.jute.records import (
    ClientInfo,
    ConnectRequest,
    ConnectResponse,
    ErrorReply,
    ReplyHeader,
    RequestHeader,
    StatReply,
    WatcherEvent,
    WhoAmIReply,
)
from znoded.jute.stat import Stat

ZXID = 0x4F
ZERO_PASSWORD = bytes(16)
FRAME_BYTES_LIMIT = 1048575


def check(encoded: str, *values: Record, framed: bool = True) -> None:
    """The values encode to the hex, as one frame or bare, and decode from it."""
    expected = bytes.fromhex(encoded)
    payload = b"".join([value.encode() for value in values])
    assert (frame(payload) if framed else payload) == expected
    reader = Reader(FrameSplitter(FRAME_BYTES_LIMIT).feed(expected)[0] if framed else expected)
    assert tuple([type(value).decode(reader) for value in values]) == values
    assert reader.remaining == 0


def test_a_new_session_is_asked_for() -> None:
    check(
        "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010" + "00" * 16 + "00",
        ConnectRequest(0, 0, 10000, 0, ZERO_PASSWORD, False),
    )


def test_an_old_client_leaves_the_read_only_byte_out_and_is_answered_in_kind() -> None:
    assert len(ConnectRequest(0, 0, 10000, 0, ZERO_PASSWORD, None).encode()) == 44
    assert len(ConnectResponse(0, 10000, 1, ZERO_PASSWORD, None).encode()) == 36


def test_a_new_session_is_given() -> None:
    check(
        "00000025 00000000 00002710 0100001140d30000 00000010 ef9c16a450bd88e9e5460fd71936f1d1 00",
        ConnectResponse(0, 10000, 0x0100001140D30000, bytes.fromhex("ef9c16a450bd88e9e5460fd71936f1d1"), False),
    )


def test_an_invalid_session_is_answered_with_zeros() -> None:
    check(
        "00000000 00000000 0000000000000000 00000010" + "00" * 16 + "00",
        ConnectResponse(0, 0, 0, ZERO_PASSWORD, False),
        framed=False,
    )


def test_a_ping_and_its_reply() -> None:
    check("00000008 fffffffe 0000000b", RequestHeader(PING_XID, Op.PING))
    check("00000010 fffffffe 000000000000004f 00000000", ReplyHeader(PING_XID, ZXID, ErrorCode.OK))


def test_a_notification() -> None:
    check(
        "0000001e ffffffff 000000000000004f 00000000 00000003 00000003 00000002 2f77",
        ReplyHeader(-1, ZXID, ErrorCode.OK),
        WatcherEvent(EventType.NODE_DATA_CHANGED, KeeperState.SYNC_CONNECTED, b"/w"),
    )


def test_a_failed_multi_reports_every_op_as_an_error() -> None:
    codes = (
        ErrorCode.OK,
        ErrorCode.BAD_VERSION,
        ErrorCode.RUNTIME_INCONSISTENCY,
        ErrorCode.RUNTIME_INCONSISTENCY,
    )
    check(
        "ffffffff 00 00000000 00000000"
        "ffffffff 00 ffffff99 ffffff99"
        "ffffffff 00 fffffffe fffffffe"
        "ffffffff 00 fffffffe fffffffe"
        "ffffffff 01 ffffffff",
        MultiReply(tuple([(Op.ERROR, ErrorReply(code)) for code in codes])),
        framed=False,
    )


def test_an_empty_multi_is_its_end_mark() -> None:
    check("ffffffff 01 ffffffff", MultiReply(()), framed=False)
    check("ffffffff 01 ffffffff", MultiRequest(()), framed=False)


def test_who_am_i_of_a_local_client() -> None:
    check(
        "00000001 00000002 6970 00000009 3132372e302e302e31",
        WhoAmIReply((ClientInfo(b"ip", b"127.0.0.1"),)),
        framed=False,
    )


def test_the_stat_of_a_new_root() -> None:
    stat = Stat(
        0, 0, 0, 0, version=0, cversion=-1, aversion=0, ephemeral_owner=0, data_length=0, num_children=1, pzxid=0
    )
    check("00" * 36 + "ffffffff" + "00" * 16 + "00000001" + "00" * 8, StatReply(stat), framed=False)
