"""The records of multi and multiRead: operations or results, each behind a header of its own (protocol facts 8)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Codec, Record, record
from znoded.jute.ops import CreateFlags, Op
from znoded.jute.primitives import JuteError, Reader
from znoded.jute.records import (
    CheckRequest,
    Create2Reply,
    CreateReply,
    CreateRequest,
    CreateTtlRequest,
    DeleteRequest,
    EmptyRecord,
    ErrorReply,
    GetChildrenReply,
    GetDataReply,
    PathWatchRequest,
    SetDataRequest,
    StatReply,
)

MultiItems: TypeAlias = tuple[tuple[Op, Record], ...]

#: What stands before each op and each result: type, done, err.
MULTI_HEADER = struct.Struct(">i?i")
#: What stands behind the last.
MULTI_END = MULTI_HEADER.pack(Op.ERROR, True, -1)
_FLAGS_WITHOUT_TTL = range(CreateFlags.PERSISTENT, CreateFlags.PERSISTENT_WITH_TTL)

_WRITES: Mapping[int, type[Record]] = {
    Op.CREATE: CreateRequest,
    Op.DELETE: DeleteRequest,
    Op.SET_DATA: SetDataRequest,
    Op.CHECK: CheckRequest,
    Op.CREATE2: CreateRequest,
    Op.CREATE_CONTAINER: CreateRequest,
    Op.CREATE_TTL: CreateTtlRequest,
}
_WRITE_RESULTS: Mapping[int, type[Record]] = {
    Op.CREATE: CreateReply,
    Op.DELETE: EmptyRecord,
    Op.SET_DATA: StatReply,
    Op.CHECK: EmptyRecord,
    Op.CREATE2: Create2Reply,
    Op.ERROR: ErrorReply,
}
_READS: Mapping[int, type[Record]] = {
    Op.GET_DATA: PathWatchRequest,
    Op.GET_CHILDREN: PathWatchRequest,
}
_READ_RESULTS: Mapping[int, type[Record]] = {
    Op.GET_DATA: GetDataReply,
    Op.GET_CHILDREN: GetChildrenReply,
    Op.ERROR: ErrorReply,
}


def _reader_of_items(allowed: Mapping[int, type[Record]]) -> Callable[[Reader], MultiItems]:
    """A reader of records between headers, up to the end mark; an op that is not allowed is a JuteError."""

    def read(reader: Reader) -> MultiItems:
        items: list[tuple[Op, Record]] = []
        while True:
            type_, done, _ = reader.unpack(MULTI_HEADER)
            if done:
                return tuple(items)
            if type_ not in allowed:
                raise JuteError(f"op {type_} in a multi; allowed are {', '.join(str(int(op)) for op in allowed)}")
            items.append((Op(type_), allowed[type_].decode(reader)))

    return read


_read_any_writes = _reader_of_items(_WRITES)


def _read_writes(reader: Reader) -> MultiItems:
    """As ZooKeeper does, refuse the whole request for a create whose flags its op cannot have (protocol facts 8).

    Not so for createTTL: there ZooKeeper 3.9.5 lets bad flags fail that op alone, as a bad argument.
    """
    items = _read_any_writes(reader)
    for op, item in items:
        if isinstance(item, CreateRequest) and item.flags not in _FLAGS_WITHOUT_TTL:
            raise JuteError(f"op {op} with flags {item.flags} in a multi")
    return items


def _encode_requests(items: MultiItems) -> bytes:
    return b"".join([MULTI_HEADER.pack(op, False, -1) + item.encode() for op, item in items]) + MULTI_END


def _encode_results(items: MultiItems) -> bytes:
    parts: list[bytes] = []
    for op, item in items:
        err = item.err if isinstance(item, ErrorReply) else ErrorCode.OK
        parts.append(MULTI_HEADER.pack(op, False, err) + item.encode())
    return b"".join(parts) + MULTI_END


@record
class MultiRequest(Record):
    """multi: writes and checks that succeed or fail as one; any other op, or bad flags of a create: JuteError."""

    ops: Annotated[MultiItems, Codec(_read_writes, _encode_requests, MULTI_HEADER.size)]


@record
class MultiReply(Record):
    """multi: the result of each op; creates with a Stat as CREATE2, and every one as ERROR when the multi failed."""

    results: Annotated[MultiItems, Codec(_reader_of_items(_WRITE_RESULTS), _encode_results, MULTI_HEADER.size)]


@record
class MultiReadRequest(Record):
    """multiRead: getData and getChildren only, anything else is a JuteError. Their watch flags mean nothing."""

    ops: Annotated[MultiItems, Codec(_reader_of_items(_READS), _encode_requests, MULTI_HEADER.size)]


@record
class MultiReadReply(Record):
    """multiRead: the result of each op, ERROR for those that failed."""

    results: Annotated[MultiItems, Codec(_reader_of_items(_READ_RESULTS), _encode_results, MULTI_HEADER.size)]
