"""Every request, reply and notification record of the client protocol (protocol facts 1, 2, 8 and 12).

Strings are their UTF-8 bytes; None is null. Which request and which reply belong to an op is in REQUESTS and REPLIES.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple, TypeAlias

from znoded.jute.errors import ErrorCode
from znoded.jute.fields import (
    Boolean,
    Buffer,
    Codec,
    Int,
    Long,
    Record,
    StatField,
    Strings,
    TrailingBoolean,
    UString,
    record,
    vector_of,
)
from znoded.jute.ops import CreateFlags, Op
from znoded.jute.primitives import JuteError, Reader, encode_int, encode_ustring

# ------------------------------------------------------------------------------------------------ handshake and headers


@record
class ConnectRequest(Record):
    """The first payload of a client. `session_id` 0 asks for a new session; `read_only` None: the byte is left out."""

    protocol_version: Int
    last_zxid_seen: Long
    timeout_ms: Int
    session_id: Long
    password: Buffer
    read_only: TrailingBoolean = None


@record
class ConnectResponse(Record):
    """The first payload of a server. `timeout_ms` 0 says the session is gone; `read_only` None leaves the byte out."""

    protocol_version: Int
    timeout_ms: Int
    session_id: Long
    password: Buffer
    read_only: TrailingBoolean = None


@record
class RequestHeader(Record):
    """Stands before every request. `type` is an Op, or a number that is none."""

    xid: Int
    type: Int


@record
class ReplyHeader(Record):
    """Stands before every reply and notification; a record follows only if `err` is 0."""

    xid: Int
    zxid: Long
    err: Int


@record
class EmptyRecord(Record):
    """No bytes: the requests and replies that are only a header."""


@record
class WatcherEvent(Record):
    """A notification. `type` is an EventType, `state` a KeeperState."""

    type: Int
    state: Int
    path: UString


# ------------------------------------------------------------------------------------------------------------- ACLs


class Acl(NamedTuple):
    """One entry of an access control list: `perms` are Perm bits, which the wire does not limit."""

    perms: int
    scheme: bytes | None
    id: bytes | None

    def encode(self) -> bytes:
        """The bytes of the entry."""
        return encode_int(self.perms) + encode_ustring(self.scheme) + encode_ustring(self.id)

    @classmethod
    def decode(cls, reader: Reader) -> Acl:
        """Read an entry. Raises JuteError."""
        return cls(reader.int(), reader.ustring(), reader.ustring())


ACL_VECTOR = vector_of(Codec(Acl.decode, Acl.encode, 12))
Acls = Annotated[tuple[Acl, ...] | None, ACL_VECTOR]

# --------------------------------------------------------------------------------------------------------- requests


@record
class PathRequest(Record):
    """getACL, sync, getAllChildrenNumber, and getEphemerals (whose path is a prefix)."""

    path: UString


@record
class PathWatchRequest(Record):
    """exists, getData, getChildren and getChildren2. `watch` asks for a one-shot watch."""

    path: UString
    watch: Boolean


@record
class CreateRequest(Record):
    """create, create2 and createContainer. `flags` is a CreateFlags, or a number that is none."""

    path: UString
    data: Buffer
    acl: Acls
    flags: Int


@record
class CreateTtlRequest(Record):
    """createTTL: a create that also says how long the node lives without change, in ms."""

    path: UString
    data: Buffer
    acl: Acls
    flags: Int
    ttl_ms: Long


@record
class DeleteRequest(Record):
    """delete. `version` -1 means any."""

    path: UString
    version: Int


@record
class DeleteContainerRequest(Record):
    """deleteContainer, which is internal to a server: a buffer where others have a string."""

    path: Buffer


@record
class SetDataRequest(Record):
    """setData. `version` -1 means any."""

    path: UString
    data: Buffer
    version: Int


@record
class SetAclRequest(Record):
    """setACL. `version` is compared with the Stat's aversion; -1 means any."""

    path: UString
    acl: Acls
    version: Int


@record
class CheckRequest(Record):
    """check, inside a multi only. `version` -1 means that the node exists."""

    path: UString
    version: Int


@record
class ReconfigRequest(Record):
    """reconfig. Null for unused parts; `config_id` -1 means any current configuration (protocol facts 12)."""

    joining: UString
    leaving: UString
    new_members: UString
    config_id: Long


@record
class WatchKindRequest(Record):
    """checkWatches and removeWatches. `type` is a WatcherType."""

    path: UString
    type: Int


@record
class AddWatchRequest(Record):
    """addWatch. `mode` is an AddWatchMode."""

    path: UString
    mode: Int


@record
class SetWatchesRequest(Record):
    """setWatches: the one-shot watches a reconnecting client holds, and the last zxid it saw."""

    relative_zxid: Long
    data: Strings
    exist: Strings
    child: Strings


@record
class SetWatches2Request(Record):
    """setWatches2: as setWatches, and the persistent watches."""

    relative_zxid: Long
    data: Strings
    exist: Strings
    child: Strings
    persistent: Strings
    persistent_recursive: Strings


@record
class AuthRequest(Record):
    """auth. `type` is 0 and ignored."""

    type: Int
    scheme: UString
    auth: Buffer


@record
class SaslRequest(Record):
    """sasl: one step of the client's side."""

    token: Buffer


# ---------------------------------------------------------------------------------------------------------- replies


@record
class CreateReply(Record):
    """create: the path made, with its sequence number."""

    path: UString


@record
class Create2Reply(Record):
    """create2, createContainer and createTTL."""

    path: UString
    stat: StatField


@record
class StatReply(Record):
    """exists, setData and setACL."""

    stat: StatField


@record
class GetDataReply(Record):
    """getData; and reconfig, with the new configuration text."""

    data: Buffer
    stat: StatField


@record
class GetAclReply(Record):
    """getACL."""

    acl: Acls
    stat: StatField


@record
class GetChildrenReply(Record):
    """getChildren: the names of the children, not their paths, in no order."""

    children: Strings


@record
class GetChildren2Reply(Record):
    """getChildren2."""

    children: Strings
    stat: StatField


@record
class SyncReply(Record):
    """sync: the path asked for."""

    path: UString


@record
class SaslReply(Record):
    """sasl: one step of the server's side."""

    token: Buffer


@record
class GetEphemeralsReply(Record):
    """getEphemerals: full paths, in no order."""

    ephemerals: Strings


@record
class GetAllChildrenNumberReply(Record):
    """getAllChildrenNumber: the number of all descendants."""

    total_number: Int


@record
class ErrorReply(Record):
    """An error code as a record: the result of a failed op in a multi, and the reply to addWatch."""

    err: Int


@record
class ClientInfo(Record):
    """One identity of a connection, as whoAmI shows it."""

    scheme: UString
    user: UString


ClientInfos = Annotated[tuple[ClientInfo, ...] | None, vector_of(Codec(ClientInfo.decode, ClientInfo.encode, 8))]


@record
class WhoAmIReply(Record):
    """whoAmI."""

    client_infos: ClientInfos


# ---------------------------------------------------------------------------------------------- multi and multiRead

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


# ------------------------------------------------------------------------------------------------- which is whose

#: The record behind the header of each request.
REQUESTS: Mapping[int, type[Record]] = {
    **_WRITES,
    Op.EXISTS: PathWatchRequest,
    Op.GET_DATA: PathWatchRequest,
    Op.GET_ACL: PathRequest,
    Op.SET_ACL: SetAclRequest,
    Op.GET_CHILDREN: PathWatchRequest,
    Op.SYNC: PathRequest,
    Op.PING: EmptyRecord,
    Op.GET_CHILDREN2: PathWatchRequest,
    Op.MULTI: MultiRequest,
    Op.RECONFIG: ReconfigRequest,
    Op.CHECK_WATCHES: WatchKindRequest,
    Op.REMOVE_WATCHES: WatchKindRequest,
    Op.DELETE_CONTAINER: DeleteContainerRequest,
    Op.MULTI_READ: MultiReadRequest,
    Op.AUTH: AuthRequest,
    Op.SET_WATCHES: SetWatchesRequest,
    Op.SASL: SaslRequest,
    Op.GET_EPHEMERALS: PathRequest,
    Op.GET_ALL_CHILDREN_NUMBER: PathRequest,
    Op.SET_WATCHES2: SetWatches2Request,
    Op.ADD_WATCH: AddWatchRequest,
    Op.WHO_AM_I: EmptyRecord,
    Op.CLOSE_SESSION: EmptyRecord,
}

#: The record behind the header of each successful reply.
REPLIES: Mapping[int, type[Record]] = {
    Op.NOTIFICATION: WatcherEvent,
    Op.CREATE: CreateReply,
    Op.DELETE: EmptyRecord,
    Op.EXISTS: StatReply,
    Op.GET_DATA: GetDataReply,
    Op.SET_DATA: StatReply,
    Op.GET_ACL: GetAclReply,
    Op.SET_ACL: StatReply,
    Op.GET_CHILDREN: GetChildrenReply,
    Op.SYNC: SyncReply,
    Op.PING: EmptyRecord,
    Op.GET_CHILDREN2: GetChildren2Reply,
    Op.MULTI: MultiReply,
    Op.CREATE2: Create2Reply,
    Op.RECONFIG: GetDataReply,
    Op.CHECK_WATCHES: EmptyRecord,
    Op.REMOVE_WATCHES: EmptyRecord,
    Op.CREATE_CONTAINER: Create2Reply,
    Op.DELETE_CONTAINER: EmptyRecord,
    Op.CREATE_TTL: Create2Reply,
    Op.MULTI_READ: MultiReadReply,
    Op.AUTH: EmptyRecord,
    Op.SET_WATCHES: EmptyRecord,
    Op.SASL: SaslReply,
    Op.GET_EPHEMERALS: GetEphemeralsReply,
    Op.GET_ALL_CHILDREN_NUMBER: GetAllChildrenNumberReply,
    Op.SET_WATCHES2: EmptyRecord,
    Op.ADD_WATCH: ErrorReply,
    Op.WHO_AM_I: WhoAmIReply,
    Op.CLOSE_SESSION: EmptyRecord,
}
