"""Every request, reply and notification record of the client protocol (protocol facts 1, 2 and 12).

Strings are their UTF-8 bytes; None is null. Those of multi and multiRead are in `multi`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

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
from znoded.jute.primitives import Reader, encode_int, encode_ustring

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
