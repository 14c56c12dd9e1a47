"""What is answered to each request that is not a write: the reads, the watches, sync and ping.

An answer is an error code and, if that is OK, the reply's record. A record that cannot be decoded raises JuteError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import AddWatchMode, Op
from znoded.jute.primitives import JuteError, Reader, encode_int, encode_ustring, readable
from znoded.jute.records import (
    AddWatchRequest,
    PathRequest,
    PathWatchRequest,
    SetWatches2Request,
    SetWatchesRequest,
    WatchKindRequest,
)
from znoded.server.connection import ClientConnection
from znoded.server.set_watches import set_watches
from znoded.tree import reads

if TYPE_CHECKING:
    from znoded.server.member import Member

ROOT = b"/"

Reply: TypeAlias = tuple[int, bytes]
Answer: TypeAlias = Callable[[ClientConnection, bytes], Reply]


class Answers:
    """Answers the requests of all connections of one member. `by_op` has the answer to each op."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._tree = member.tree
        self._watches = member.watches
        self.by_op: Mapping[int, Answer] = {
            Op.EXISTS: self._exists,
            Op.GET_DATA: self._get_data,
            Op.GET_ACL: self._get_acl,
            Op.GET_CHILDREN: self._get_children,
            Op.GET_CHILDREN2: self._get_children2,
            Op.SYNC: self._sync,
            Op.PING: self._ping,
            Op.CHECK_WATCHES: self._check_watches,
            Op.REMOVE_WATCHES: self._remove_watches,
            Op.MULTI_READ: self._multi_read,
            Op.SET_WATCHES: self._set_watches,
            Op.SET_WATCHES2: self._set_watches2,
            Op.GET_EPHEMERALS: self._get_ephemerals,
            Op.GET_ALL_CHILDREN_NUMBER: self._get_all_children_number,
            Op.ADD_WATCH: self._add_watch,
            Op.WHO_AM_I: self._who_am_i,
        }

    # ---- reads

    def _get_data(self, connection: ClientConnection, record: bytes) -> Reply:
        return self._read(connection, record, reads.get_data, self._watches.add_data)

    def _get_children(self, connection: ClientConnection, record: bytes) -> Reply:
        return self._read(connection, record, reads.get_children, self._watches.add_children)

    def _get_children2(self, connection: ClientConnection, record: bytes) -> Reply:
        return self._read(connection, record, reads.get_children2, self._watches.add_children)

    def _exists(self, connection: ClientConnection, record: bytes) -> Reply:
        """A node that is not there is watched as well, for its creation."""
        return self._read(connection, record, reads.exists, self._watches.add_data, (ErrorCode.OK, ErrorCode.NO_NODE))

    def _read(
        self,
        connection: ClientConnection,
        record: bytes,
        read: reads.Read,
        add_watch: Callable[[bytes, ClientConnection], None],
        watched: tuple[ErrorCode, ...] = (ErrorCode.OK,),
    ) -> Reply:
        """A read with a watch flag. The watch is set if the read's outcome is one of `watched`.

        One on the empty path is no watch on the root, and never fires, as in ZooKeeper.
        """
        request = PathWatchRequest.decode(Reader(record))
        path = _required(request.path)
        if request.watch and not self._member.may_watch(connection, 1, len(path)):
            return ErrorCode.QUOTA_EXCEEDED, b""
        error, body = read(self._tree, path or ROOT, connection.identities)
        if request.watch and error in watched:
            add_watch(path, connection)
        return error, body

    def _get_acl(self, connection: ClientConnection, record: bytes) -> Reply:
        return reads.get_acl(self._tree, _required(_path(record)) or ROOT, connection.identities)

    def _get_all_children_number(self, connection: ClientConnection, record: bytes) -> Reply:
        return reads.get_all_children_number(self._tree, _required(_path(record)), connection.identities)

    def _get_ephemerals(self, connection: ClientConnection, record: bytes) -> Reply:
        return reads.get_ephemerals(self._tree, connection.session_id, _path(record))

    def _multi_read(self, connection: ClientConnection, record: bytes) -> Reply:
        return reads.multi_read(self._tree, record, connection.identities, self._member.limits.multi_read_bytes)

    def _who_am_i(self, connection: ClientConnection, record: bytes) -> Reply:
        return reads.who_am_i(connection.identities)

    def _sync(self, connection: ClientConnection, record: bytes) -> Reply:
        """Behind the session's own writes, where it stands, it has nothing to wait for: one voter has applied all."""
        path = _path(record)
        return ErrorCode.OK, encode_ustring(None if path is None else readable(path))

    def _ping(self, connection: ClientConnection, record: bytes) -> Reply:
        return ErrorCode.OK, b""

    # ---- watches

    def _add_watch(self, connection: ClientConnection, record: bytes) -> Reply:
        request = AddWatchRequest.decode(Reader(record))
        path = _watched(request.path)
        if request.mode == AddWatchMode.PERSISTENT:
            add = self._watches.add_persistent
        elif request.mode == AddWatchMode.PERSISTENT_RECURSIVE:
            add = self._watches.add_recursive
        else:
            return ErrorCode.MARSHALLING_ERROR, b""
        if not self._member.may_watch(connection, 1, len(path)):
            return ErrorCode.QUOTA_EXCEEDED, b""
        add(path, connection)
        return ErrorCode.OK, encode_int(0)

    def _check_watches(self, connection: ClientConnection, record: bytes) -> Reply:
        return self._by_kind(connection, record, self._watches.check)

    def _remove_watches(self, connection: ClientConnection, record: bytes) -> Reply:
        return self._by_kind(connection, record, self._watches.remove)

    def _by_kind(
        self, connection: ClientConnection, record: bytes, act: Callable[[int, bytes, ClientConnection], bool]
    ) -> Reply:
        request = WatchKindRequest.decode(Reader(record))
        try:
            found = act(request.type, _watched(request.path), connection)
        except KeyError:
            return ErrorCode.MARSHALLING_ERROR, b""
        return (ErrorCode.OK if found else ErrorCode.NO_WATCHER), b""

    def _set_watches(self, connection: ClientConnection, record: bytes) -> Reply:
        old = SetWatchesRequest.decode(Reader(record))
        request = SetWatches2Request(old.relative_zxid, old.data, old.exist, old.child, (), ())
        return set_watches(self._member, connection, request), b""

    def _set_watches2(self, connection: ClientConnection, record: bytes) -> Reply:
        return set_watches(self._member, connection, SetWatches2Request.decode(Reader(record))), b""


def _path(record: bytes) -> bytes | None:
    return PathRequest.decode(Reader(record)).path


def _watched(path: bytes | None) -> bytes:
    """The path of a watch: null is one of its own, which never fires. Java writes it so, too."""
    return b"null" if path is None else path


def _required(path: bytes | None) -> bytes:
    """The path of a read, which cannot be null; an empty one is the root's (protocol facts 2)."""
    if path is None:
        raise JuteError("a null path")
    return path
