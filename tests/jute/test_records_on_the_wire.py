"""Each record's bytes, field by field, as protocol facts 1, 2 and 8 list them."""

from __future__ import annotations

import pytest

from tests.jute.by_op import REPLIES, REQUESTS
from tests.jute.factory import acl, i4, i8, multi, stat, string, strings, vector
from tests.jute.strategies import ALL_RECORDS
from znoded.jute.fields import Record
from znoded.jute.multi import MultiReadReply, MultiReadRequest, MultiReply, MultiRequest
from znoded.jute.ops import Op
from znoded.jute.primitives import Reader
from znoded.jute.records import (
    Acl,
    AddWatchRequest,
    AuthRequest,
    CheckRequest,
    ClientInfo,
    ConnectRequest,
    ConnectResponse,
    Create2Reply,
    CreateReply,
    CreateRequest,
    CreateTtlRequest,
    DeleteContainerRequest,
    DeleteRequest,
    EmptyRecord,
    ErrorReply,
    GetAclReply,
    GetAllChildrenNumberReply,
    GetChildren2Reply,
    GetChildrenReply,
    GetDataReply,
    GetEphemeralsReply,
    PathRequest,
    PathWatchRequest,
    ReconfigRequest,
    ReplyHeader,
    RequestHeader,
    SaslReply,
    SaslRequest,
    SetAclRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    StatReply,
    SyncReply,
    WatcherEvent,
    WatchKindRequest,
    WhoAmIReply,
)
from znoded.jute.stat import Stat

OPEN = (Acl(31, b"world", b"anyone"),)
OPEN_BYTES = vector(acl(31, b"world", b"anyone"))
PATH = string(b"/a")
STAT = Stat(3, 4, 1000, 2000, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = stat(*STAT)

CASES: list[tuple[Record, bytes]] = [
    (ConnectRequest(0, 5, 10000, 6, b"p" * 16), i4(0) + i8(5) + i4(10000) + i8(6) + string(b"p" * 16)),
    (ConnectRequest(0, 5, 10000, 6, None, True), i4(0) + i8(5) + i4(10000) + i8(6) + i4(-1) + b"\1"),
    (ConnectResponse(0, 10000, 6, b"p" * 16), i4(0) + i4(10000) + i8(6) + string(b"p" * 16)),
    (ConnectResponse(0, 10000, 6, b"p" * 16, False), i4(0) + i4(10000) + i8(6) + string(b"p" * 16) + b"\0"),
    (RequestHeader(7, Op.EXISTS), i4(7) + i4(3)),
    (ReplyHeader(7, 9, -101), i4(7) + i8(9) + i4(-101)),
    (EmptyRecord(), b""),
    (WatcherEvent(3, 3, b"/a"), i4(3) + i4(3) + PATH),
    (PathRequest(b"/a"), PATH),
    (PathRequest(None), i4(-1)),
    (PathWatchRequest(b"/a", True), PATH + b"\1"),
    (CreateRequest(b"/a", b"d", OPEN, 3), PATH + string(b"d") + OPEN_BYTES + i4(3)),
    (CreateRequest(None, None, None, 0), i4(-1) * 3 + i4(0)),
    (CreateTtlRequest(b"/a", b"d", OPEN, 5, 60000), PATH + string(b"d") + OPEN_BYTES + i4(5) + i8(60000)),
    (DeleteRequest(b"/a", -1), PATH + i4(-1)),
    (DeleteContainerRequest(b"/a"), PATH),
    (SetDataRequest(b"/a", b"", 4), PATH + i4(0) + i4(4)),
    (SetAclRequest(b"/a", (Acl(1, b"auth", None),), 4), PATH + vector(acl(1, b"auth", None)) + i4(4)),
    (CheckRequest(b"/a", 4), PATH + i4(4)),
    (ReconfigRequest(b"j", None, b"m", 9), string(b"j") + i4(-1) + string(b"m") + i8(9)),
    (WatchKindRequest(b"/a", 3), PATH + i4(3)),
    (AddWatchRequest(b"/a", 1), PATH + i4(1)),
    (SetWatchesRequest(9, (b"/a",), (), None), i8(9) + strings(b"/a") + i4(0) + i4(-1)),
    (
        SetWatches2Request(9, (b"/a",), (), (b"/b", b"/c"), (b"/d",), (b"/e",)),
        i8(9) + strings(b"/a") + i4(0) + strings(b"/b", b"/c") + strings(b"/d") + strings(b"/e"),
    ),
    (AuthRequest(0, b"digest", b"u:p"), i4(0) + string(b"digest") + string(b"u:p")),
    (SaslRequest(b""), i4(0)),
    (CreateReply(b"/a"), PATH),
    (Create2Reply(b"/a", STAT), PATH + STAT_BYTES),
    (StatReply(STAT), STAT_BYTES),
    (GetDataReply(None, STAT), i4(-1) + STAT_BYTES),
    (GetAclReply(OPEN, STAT), OPEN_BYTES + STAT_BYTES),
    (GetChildrenReply((b"a", b"b")), strings(b"a", b"b")),
    (GetChildren2Reply((b"a", b"b"), STAT), strings(b"a", b"b") + STAT_BYTES),
    (SyncReply(b"/a"), PATH),
    (SaslReply(None), i4(-1)),
    (GetEphemeralsReply(()), i4(0)),
    (GetAllChildrenNumberReply(4), i4(4)),
    (ErrorReply(0), i4(0)),
    (ClientInfo(b"ip", b"::1"), string(b"ip") + string(b"::1")),
    (WhoAmIReply((ClientInfo(b"ip", b"::1"),)), vector(string(b"ip") + string(b"::1"))),
    (
        MultiRequest(
            (
                (Op.CREATE, CreateRequest(b"/a", b"", OPEN, 0)),
                (Op.DELETE, DeleteRequest(b"/a", -1)),
                (Op.SET_DATA, SetDataRequest(b"/a", b"", -1)),
                (Op.CHECK, CheckRequest(b"/a", -1)),
                (Op.CREATE2, CreateRequest(b"/a", b"", OPEN, 1)),
                (Op.CREATE_CONTAINER, CreateRequest(b"/a", b"", OPEN, 4)),
                (Op.CREATE_TTL, CreateTtlRequest(b"/a", b"", OPEN, 6, 5)),
            )
        ),
        multi(
            (1, PATH + i4(0) + OPEN_BYTES + i4(0)),
            (2, PATH + i4(-1)),
            (5, PATH + i4(0) + i4(-1)),
            (13, PATH + i4(-1)),
            (15, PATH + i4(0) + OPEN_BYTES + i4(1)),
            (19, PATH + i4(0) + OPEN_BYTES + i4(4)),
            (21, PATH + i4(0) + OPEN_BYTES + i4(6) + i8(5)),
        ),
    ),
    (
        MultiReply(
            (
                (Op.CREATE, CreateReply(b"/a")),
                (Op.DELETE, EmptyRecord()),
                (Op.SET_DATA, StatReply(STAT)),
                (Op.CHECK, EmptyRecord()),
                (Op.CREATE2, Create2Reply(b"/a", STAT)),
            )
        ),
        multi((1, PATH), (2, b""), (5, STAT_BYTES), (13, b""), (15, PATH + STAT_BYTES), err=0),
    ),
    (
        MultiReadRequest(
            ((Op.GET_DATA, PathWatchRequest(b"/a", False)), (Op.GET_CHILDREN, PathWatchRequest(b"/a", False)))
        ),
        multi((4, PATH + b"\0"), (8, PATH + b"\0")),
    ),
    (
        MultiReadReply(((Op.GET_DATA, GetDataReply(b"d", STAT)), (Op.GET_CHILDREN, GetChildrenReply((b"k",))))),
        multi((4, string(b"d") + STAT_BYTES), (8, strings(b"k")), err=0),
    ),
    (MultiReadReply(((Op.ERROR, ErrorReply(-101)),)), multi((-1, i4(-101)), err=-101)),
]


@pytest.mark.parametrize(("value", "encoded"), CASES, ids=lambda case: type(case).__name__)
def test_a_record_is_its_fields_in_order(value: Record, encoded: bytes) -> None:
    assert value.encode() == encoded
    assert type(value).decode(Reader(encoded)) == value


def test_every_record_has_a_case() -> None:
    assert {type(value) for value, _ in CASES} == set(ALL_RECORDS)


def test_bytes_behind_a_record_are_left_alone() -> None:
    reader = Reader(PATH + i4(3) + b"more")
    assert DeleteRequest.decode(reader) == DeleteRequest(b"/a", 3)
    assert reader.remaining == 4


def test_negative_acl_counts_are_no_acl() -> None:
    for count in (-1, -2, -(2**31)):
        assert not SetAclRequest.decode(Reader(PATH + i4(count) + i4(0))).acl


def test_a_watch_list_of_count_minus_two_is_empty_and_of_minus_one_null() -> None:
    request = SetWatchesRequest.decode(Reader(i8(9) + i4(-2) + i4(-1) + i4(0)))
    assert (request.data, request.exist, request.child) == ((), None, ())


def test_create_ttl_passes_any_flags_in_a_multi() -> None:
    body = multi((21, PATH + i4(0) + OPEN_BYTES + i4(9) + i8(5)))
    assert MultiRequest.decode(Reader(body)).ops[0][1] == CreateTtlRequest(b"/a", b"", OPEN, 9, 5)


def test_the_end_mark_of_a_multi_counts_by_its_done_byte_alone() -> None:
    assert MultiRequest.decode(Reader(i4(5) + b"\7" + i4(3))) == MultiRequest(())


def test_every_op_that_a_client_may_send_has_its_request_and_reply() -> None:
    internal = {Op.CREATE_SESSION, Op.ERROR, Op.NOTIFICATION}
    assert set(REQUESTS) == set(Op) - internal
    assert set(REPLIES) - {Op.NOTIFICATION} == set(REQUESTS) - {Op.CHECK}


def test_every_record_is_that_of_an_op_or_stands_before_or_in_one() -> None:
    others = {ConnectRequest, ConnectResponse, RequestHeader, ReplyHeader, ClientInfo}
    assert {*REQUESTS.values(), *REPLIES.values()} | others == set(ALL_RECORDS)
