"""From received bytes to answers: every request of a client in its place.

One pass over what a readable event brought: reads are answered at once, writes go to the log, and what stands behind a
write of the same session waits for it, so that each session's requests take effect and are answered in the order they
were sent. An answer that has to wait is kept as the function that will make it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import PING_XID, AddWatchMode, Op
from znoded.jute.primitives import JuteError, Reader, encode_buffer, encode_int, encode_ustring
from znoded.jute.records import (
    AddWatchRequest,
    AuthRequest,
    PathRequest,
    PathWatchRequest,
    SaslRequest,
    SetWatches2Request,
    SetWatchesRequest,
    WatchKindRequest,
)
from znoded.server import auth
from znoded.server.connection import NEW, OPEN, OUTPUT_SLICE_BYTES, ClientConnection
from znoded.server.frames import REPLY, REPLY_HEADER_BYTES, reply_frame
from znoded.server.sasl import SaslFailure
from znoded.server.turns import TURN_S
from znoded.server.watching import rearm
from znoded.tree import reads
from znoded.tree.commands import HEAD

if TYPE_CHECKING:
    from znoded.server.member import Member

REQUEST = struct.Struct(">iii")  # frame length, xid, op
INT = struct.Struct(">i")
REQUEST_HEADER_BYTES = 8
STAT_BYTES = 68
#: A request up to this many times the limit is still read to its end, so that its error can be answered; a larger one
#: ends the connection, as Kazoo's own tests ask for 2 MiB at the default limit.
OVERSIZED_FRAMES_READ = 2

WRITES = frozenset(
    int(op)
    for op in (
        Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI,
        Op.RECONFIG,
    )
)  # fmt: skip

#: Reads that can take long although their replies are short.
COSTLY = frozenset(map(int, (Op.GET_ALL_CHILDREN_NUMBER, Op.MULTI_READ, Op.SET_WATCHES, Op.SET_WATCHES2)))

Answer = Callable[[ClientConnection, int, bytes], None]


class Pipeline:
    """Serves the requests of all connections of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._tree = member.tree
        self._watches = member.watches
        self._stats = member.stats
        self._pending_limit = member.limits.outstanding_per_connection
        self._frame_bytes = member.limits.frame_bytes
        self._answers: dict[int, Answer] = {
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

    # ---- the way in

    def consume(self, connection: ClientConnection, data: bytes) -> tuple[bytes, int]:
        """Serve every complete frame in `data`.

        Returns the rest, and how many bytes it must have before it is worth another look.
        """
        if connection.state is OPEN:
            return self._consume_requests(connection, data)
        if connection.state is NEW:
            return self._member.handshake.consume(connection, data)
        return data, 0

    def _consume_requests(self, connection: ClientConnection, data: bytes) -> tuple[bytes, int]:
        started = time.monotonic()
        now_ms = room_bytes = 0  # known once there is a write
        takes_writes = self._member.replica.writable
        writes: list[bytes] = []  # commands that the log does not have yet
        sequence = connection.sequence
        identities = connection.identities_record
        nodes = self._tree.nodes
        acls = self._tree.acls
        zxid = self._tree.zxid
        frame_limit = self._frame_bytes
        unpack = REQUEST.unpack_from
        unpack_int = INT.unpack_from
        pack = REPLY.pack
        append = connection.out.append
        position = received = answered = made_bytes = xid = op = 0
        end = len(data)
        while end - position >= 12:
            length, xid, op = unpack(data, position)
            frame_end = position + 4 + length
            if frame_end > end or not REQUEST_HEADER_BYTES <= length <= frame_limit:
                break
            if op in COSTLY and connection.pending:
                # What waits behind a write is answered in one go with it, and several of these would take too long.
                connection.in_line = True
                self._member.when_applied(lambda: self._member.turns.wait(connection))
                break
            received += 1
            if op in WRITES and takes_writes:
                if not now_ms:
                    now_ms = int(time.time() * 1000)
                    room_bytes = self._member.room_for_writes(connection.waiting_bytes)
                    pending = connection.waiting()
                    pending_limit = self._pending_limit
                sequence += 1
                room_bytes -= length
                head = HEAD.pack(now_ms, connection.session_id, connection.attach, sequence, op, len(identities))
                writes.append(head + identities + data[position + 12 : frame_end])
                position = frame_end
                pending.append((xid, None, started))
                if len(pending) < pending_limit and room_bytes > 0:
                    continue
                break
            if (op == 4 or op == 3) and not connection.pending and length > 13:
                # getData and exists of a node that anyone may read: a look into the dictionary and a join.
                path = data[position + 16 : frame_end - 1]
                node = nodes.get(path)
                if (
                    node is not None
                    and path not in acls
                    and not data[frame_end - 1]
                    and unpack_int(data, position + 12)[0] == length - 13
                ):
                    if op == 3:
                        node = node[-STAT_BYTES:]
                    append(pack(REPLY_HEADER_BYTES + len(node), xid, zxid, 0))
                    append(node)
                    answered += 1
                    made_bytes += len(node) + 20
                    position = frame_end
                    if made_bytes < OUTPUT_SLICE_BYTES:
                        continue
            if position != frame_end:
                if writes:
                    self._hand_over(connection, writes)
                    writes = []
                record = data[position + 12 : frame_end]
                position = frame_end
                self._answer(connection, xid, op, record)
                sequence = connection.sequence
                identities = connection.identities_record
                if time.monotonic() - started > TURN_S and connection.state is OPEN:
                    self._member.turns.wait(connection)
            connection.out_bytes += made_bytes
            made_bytes = 0
            if connection.out_bytes > OUTPUT_SLICE_BYTES:
                connection.flush()
            if connection.state is not OPEN or connection.is_stalled():
                break
        connection.out_bytes += made_bytes
        if writes:
            self._hand_over(connection, writes)
        if received:
            self._count(connection, xid, op, received, answered, started)
        if position == end or connection.state is not OPEN:
            return b"", 0
        if end - position >= 4:
            return self._incomplete(connection, data, position)
        return data[position:], 12

    def _incomplete(self, connection: ClientConnection, data: bytes, position: int) -> tuple[bytes, int]:
        """What is left of `data` behind the complete frames, if the frame that begins there has a possible length."""
        (length,) = INT.unpack_from(data, position)
        if REQUEST_HEADER_BYTES <= length <= self._frame_bytes:
            return data[position:], 4 + length
        if length < REQUEST_HEADER_BYTES:
            self._member.cut_off(connection, f"sent a frame of {length} bytes, which cannot hold a request header")
            return b"", 0
        return self._oversized(connection, data[position:], length)

    def _oversized(self, connection: ClientConnection, data: bytes, length: int) -> tuple[bytes, int]:
        """A frame above the limit: read past it and answer with an error, if it is a request at all and not absurd."""
        if len(data) < 12:
            return data, 12
        _, xid, op = REQUEST.unpack_from(data)
        known = op in WRITES or op in self._answers or op in (Op.AUTH, Op.SASL)
        if not known or length > self._frame_bytes * OVERSIZED_FRAMES_READ:
            self._member.cut_off(
                connection, f"sent a frame of {length} bytes, and limits.frame_bytes allows {self._frame_bytes}"
            )
            return b"", 0
        missing_bytes = 4 + length - len(data)
        if missing_bytes > 0:
            connection.skip(missing_bytes, xid)
            return b"", 0
        self.oversized(connection, xid)
        return self._consume_requests(connection, data[4 + length :])

    def oversized(self, connection: ClientConnection, xid: int) -> None:
        """A frame above the limit came to its end: answer it."""
        self._in_turn(connection, xid, self._refuse, encode_int(ErrorCode.BAD_ARGUMENTS))

    def _count(
        self, connection: ClientConnection, xid: int, op: int, received: int, answered: int, started: float
    ) -> None:
        """Count what one readable event brought, and touch the session: any frame keeps it alive."""
        if connection.live is not None:
            connection.live.heard_ms = int(started * 1000)
        connection.last_op = op
        connection.stats.packets_received += received
        self._stats.packets_received += received
        if answered:
            self._count_answers(connection, xid, answered, started)

    def _count_answers(self, connection: ClientConnection, xid: int, answered: int, started: float) -> None:
        connection.last_xid = xid
        connection.last_zxid = self._tree.zxid
        connection.last_latency_ms = latency_ms = (time.monotonic() - started) * 1000
        connection.stats.answered(answered, latency_ms)
        self._stats.answered(answered, latency_ms)

    def _hand_over(self, connection: ClientConnection, commands: list[bytes]) -> None:
        """Send writes to the log; their answers come when they have been applied."""
        connection.sequence += len(commands)
        connection.waiting_bytes += self._member.propose_all(commands)

    def _answer(self, connection: ClientConnection, xid: int, op: int, record: bytes) -> None:
        answer = self._answers.get(op)
        if answer is not None:
            self._in_turn(connection, xid, answer, record)
        elif op == Op.AUTH:
            self._auth(connection, xid, record)
        elif op == Op.SASL:
            self._sasl(connection, xid, record)
        elif op == Op.CLOSE_SESSION:
            self._close_session(connection, xid)
        elif op in WRITES:
            # The disk is full. No code stands for that; this one is known to every client and ends none's connection.
            self._in_turn(connection, xid, self._refuse, encode_int(ErrorCode.SYSTEM_ERROR))
        else:
            # An operation that does not exist, or that is not a client's to ask for (createSession, deleteContainer, a
            # lone check).
            self._in_turn(connection, xid, self._unknown, b"")

    def _in_turn(self, connection: ClientConnection, xid: int, answer: Answer, record: bytes) -> None:
        """Answer now, or behind the session's own writes that are not applied yet."""
        if connection.pending:
            connection.pending.append((xid, answer, record))
            connection.waiting_bytes += len(record)
        else:
            answer(connection, xid, record)

    def answer_waiting(self, connection: ClientConnection, despite_block: bool = False) -> None:
        """Answer what stands at the head of the queue, up to the next write that is not applied yet.

        What a slow client cannot take yet is left until it can, or until its next write is applied (`despite_block`).
        """
        pending = connection.pending
        while pending and connection.state is OPEN:
            xid, answer, record = pending[0]
            if answer is None:
                break
            if connection.is_blocked and not despite_block:
                self._member.delivery.lagging[connection.session_id] = connection
                return
            pending.popleft()
            answer(connection, xid, record)
            if connection.out_bytes > OUTPUT_SLICE_BYTES:
                connection.flush()
        self._member.delivery.lagging.pop(connection.session_id, None)

    def write_applied(self, connection: ClientConnection, zxid: int, error: int, body: bytes) -> None:
        """The oldest write of this connection was applied: answer it, and what waited for it."""
        pending = connection.pending
        if not pending:
            return
        xid, _, connection.last_received = pending.popleft()
        connection.out.append(REPLY.pack(REPLY_HEADER_BYTES + len(body), xid, zxid, error) + body)
        connection.out_bytes += 20 + len(body)
        connection.last_xid = xid
        connection.writes_answered += 1
        if pending and pending[0][1] is not None:
            self.answer_waiting(connection)

    def count_writes(self, connection: ClientConnection) -> None:
        """Count the writes that a batch answered, all with the latency of the last: a clock look-up for each shows."""
        count, connection.writes_answered = connection.writes_answered, 0
        self._count_answers(connection, connection.last_xid, count, connection.last_received)

    # ---- reads

    def _reply(self, connection: ClientConnection, xid: int, error: int, body: bytes = b"") -> None:
        connection.put(reply_frame(xid, self._member.zxid, error, body))
        self._member.stats.packets_sent += 1

    def _refuse(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        """Answer with the error that the record holds."""
        self._reply(connection, xid, int.from_bytes(record, "big", signed=True))

    def _path_watch(self, connection: ClientConnection, xid: int, record: bytes) -> PathWatchRequest | None:
        """The record of a read with a watch flag, or None after an error was answered."""
        try:
            request = PathWatchRequest.decode(Reader(record))
        except JuteError:
            request = None
        if request is None or request.path is None:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return None
        if request.watch and not self._member.may_watch(connection, 1, len(request.path)):
            self._reply(connection, xid, ErrorCode.QUOTA_EXCEEDED)
            return None
        return request

    def _get_data(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        request = self._path_watch(connection, xid, record)
        if request is None:
            return
        error, body = reads.get_data(self._tree, request.path or b"/", connection.identities)
        if request.watch and not error:
            self._watches.add_data(request.path or b"/", connection)
        self._reply(connection, xid, error, body)

    def _exists(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        request = self._path_watch(connection, xid, record)
        if request is None:
            return
        error, body = reads.exists(self._tree, request.path or b"/", connection.identities)
        if request.watch and error in (ErrorCode.OK, ErrorCode.NO_NODE):
            self._watches.add_data(request.path or b"/", connection)
        self._reply(connection, xid, error, body)

    def _get_children(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._list(connection, xid, record, reads.get_children)

    def _get_children2(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._list(connection, xid, record, reads.get_children2)

    def _list(self, connection: ClientConnection, xid: int, record: bytes, read: reads.Read) -> None:
        request = self._path_watch(connection, xid, record)
        if request is None:
            return
        error, body = read(self._tree, request.path or b"/", connection.identities)
        if request.watch and not error:
            self._watches.add_children(request.path or b"/", connection)
        self._reply(connection, xid, error, body)

    def _get_acl(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._read_path(connection, xid, record, reads.get_acl)

    def _get_all_children_number(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._read_path(connection, xid, record, reads.get_all_children_number)

    def _read_path(self, connection: ClientConnection, xid: int, record: bytes, read: reads.Read) -> None:
        try:
            path = PathRequest.decode(Reader(record)).path
        except JuteError:
            path = None
        if path is None:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
        else:
            self._reply(connection, xid, *read(self._tree, path or b"/", connection.identities))

    def _get_ephemerals(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            prefix = PathRequest.decode(Reader(record)).path
        except JuteError:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return
        self._reply(connection, xid, *reads.get_ephemerals(self._tree, connection.session_id, prefix))

    def _multi_read(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        limit_bytes = self._member.limits.multi_read_bytes
        self._reply(connection, xid, *reads.multi_read(self._tree, record, connection.identities, limit_bytes))

    def _who_am_i(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._reply(connection, xid, *reads.who_am_i(connection.identities))

    def _sync(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            path = PathRequest.decode(Reader(record)).path
        except JuteError:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return
        self._reply(connection, xid, 0, encode_ustring(path))

    def _ping(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._reply(connection, PING_XID, 0)

    def _unknown(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        connection.put(reply_frame(xid, -1, ErrorCode.UNIMPLEMENTED))
        connection.finish()

    # ---- watches

    def _add_watch(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            request = AddWatchRequest.decode(Reader(record))
            mode = AddWatchMode(request.mode)
        except ValueError:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return
        if not self._member.may_watch(connection, 1, len(request.path or b"")):
            self._reply(connection, xid, ErrorCode.QUOTA_EXCEEDED)
            return
        add = self._watches.add_recursive if mode is AddWatchMode.PERSISTENT_RECURSIVE else self._watches.add_persistent
        add(request.path or b"", connection)
        self._reply(connection, xid, 0, encode_int(0))

    def _check_watches(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._by_kind(connection, xid, record, self._watches.check)

    def _remove_watches(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        self._by_kind(connection, xid, record, self._watches.remove)

    def _by_kind(
        self, connection: ClientConnection, xid: int, record: bytes, act: Callable[[int, bytes, ClientConnection], bool]
    ) -> None:
        try:
            request = WatchKindRequest.decode(Reader(record))
            found = act(request.type, request.path or b"", connection)
        except (JuteError, KeyError):
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return
        self._reply(connection, xid, ErrorCode.OK if found else ErrorCode.NO_WATCHER)

    def _set_watches(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            old = SetWatchesRequest.decode(Reader(record))
        except JuteError:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return
        request = SetWatches2Request(old.relative_zxid, old.data, old.exist, old.child, (), ())
        self._rearm(connection, xid, request)

    def _set_watches2(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            request = SetWatches2Request.decode(Reader(record))
        except JuteError:
            self._reply(connection, xid, ErrorCode.MARSHALLING_ERROR)
            return
        self._rearm(connection, xid, request)

    def _rearm(self, connection: ClientConnection, xid: int, request: SetWatches2Request) -> None:
        self._reply(connection, xid, rearm(self._member, connection, request))

    # ---- who is asking

    def _auth(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        """The identity counts for all that is received from now on; the answer comes in arrival order, for Kazoo."""
        try:
            request = AuthRequest.decode(Reader(record))
            gained = auth.authenticate(request, connection.host, self._member.config.auth)
            auth.require_room(connection.identities, gained, self._member.limits.identity_bytes_per_connection)
        except (JuteError, auth.AuthFailed) as error:
            self._member.complaints.add(connection.host, connection.port, f"its auth request failed: {error}")
            self._in_turn(connection, xid, self._auth_failed, b"")
            return
        connection.add_identities(gained)
        self._in_turn(connection, xid, self._auth_done, b"")

    def _auth_done(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        connection.put(reply_frame(xid, 0, 0))

    def _auth_failed(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        connection.put(reply_frame(xid, 0, ErrorCode.AUTH_FAILED))
        connection.finish()

    def _sasl(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            token = SaslRequest.decode(Reader(record)).token
            answer = auth.sasl_step(connection, token or b"", self._member.config.auth)
        except (JuteError, SaslFailure) as error:
            self._member.complaints.add(connection.host, connection.port, f"its SASL exchange failed: {error}")
            self._in_turn(connection, xid, self._sasl_failed, b"")
            return
        self._in_turn(connection, xid, self._sasl_token, encode_buffer(answer))

    def _sasl_token(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        connection.put(reply_frame(xid, 0, 0, record))

    def _sasl_failed(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        connection.put(reply_frame(xid, 0, ErrorCode.AUTH_FAILED, encode_buffer(None)))
        connection.finish()

    def _close_session(self, connection: ClientConnection, xid: int) -> None:
        if connection.live is None or not self._member.replica.writable:
            self._in_turn(connection, xid, self._refuse, encode_int(ErrorCode.SYSTEM_ERROR))
            return
        connection.live.closing = True
        connection.waiting().append((xid, None, time.monotonic()))
        now_ms = int(time.time() * 1000)
        sequence = connection.sequence + 1
        head = HEAD.pack(now_ms, connection.session_id, connection.attach, sequence, Op.CLOSE_SESSION, 0)
        self._hand_over(connection, [head])
