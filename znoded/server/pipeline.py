"""From received bytes to answers: every request of a client in its place.

One pass over what a readable event brought: reads are answered at once, writes go to the log, and what stands behind a
write of the same session waits for it, so that each session's requests take effect and are answered in the order they
were sent. An answer that has to wait is kept as the function that will make it.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.logger import Logger

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import PING_XID, Op
from znoded.jute.primitives import INT, JuteError, Reader, encode_buffer
from znoded.jute.records import AuthRequest, SaslRequest
from znoded.server import auth
from znoded.server.answers import Answer, Answers
from znoded.server.connection import NEW, OPEN, OPENING, OUTPUT_SLICE_BYTES, WRITES, ClientConnection
from znoded.server.read_gate import HELD_BYTES_LIMIT
from znoded.server.replies import REPLY, REPLY_HEADER_BYTES, reply_frame
from znoded.server.sasl import SaslFailure
from znoded.server.turns import TURN_S
from znoded.tree.acl import size_bytes
from znoded.tree.commands import HEAD
from znoded.tree.znode import STAT_BYTES

if TYPE_CHECKING:
    from znoded.server.member import Member

log = Logger()

REQUEST = struct.Struct(">iii")  # frame length, xid, op: 12 bytes, which `serve` has as a number
REQUEST_HEADER_BYTES = 8
#: The least that a read of one path has: the header, the length of the path, the watch flag.
PATH_READ_BYTES = REQUEST_HEADER_BYTES + 5
EXISTS = int(Op.EXISTS)
NODE_READS = frozenset((int(Op.GET_DATA), EXISTS))
#: A request up to this many times the limit is still read to its end, so that its error can be answered; a larger one
#: ends the connection, as Kazoo's own tests ask for 2 MiB at the default limit.
OVERSIZED_FRAMES_READ = 2

#: All that change something: `WRITES`, and the one whose command its leader makes.
CHANGES = WRITES | {int(Op.RECONFIG)}

#: What waits, in a cell, until it is known that nothing newer was committed elsewhere. `sync` does always.
GATED = frozenset(
    int(op)
    for op in (
        Op.EXISTS, Op.GET_DATA, Op.GET_ACL, Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.SYNC, Op.MULTI_READ,
        Op.GET_EPHEMERALS, Op.GET_ALL_CHILDREN_NUMBER,
    )
)  # fmt: skip
NOTHING: frozenset[int] = frozenset()
#: What a member that is cut off from the others cannot do.
NOT_READ_ONLY = CHANGES | {int(Op.SYNC)}

#: What does not stand behind a write, but waits until it is answered. What waits behind a write is answered in one go
#: with it: several of the reads that take long would take too long. Who asks is looked at then: so nobody becomes
#: another by an auth meanwhile.
WAITS_ALONE = frozenset(
    map(int, (Op.GET_ALL_CHILDREN_NUMBER, Op.MULTI_READ, Op.SET_WATCHES, Op.SET_WATCHES2, Op.AUTH, Op.SASL))
)
#: Reads whose answers may be large, with the path in front.
LARGE_READS = frozenset(map(int, (Op.GET_DATA, Op.GET_ACL, Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.GET_EPHEMERALS)))

#: What a place in a connection's queue holds: sends the answer to a request of this xid and record.
Send = Callable[[ClientConnection, int, bytes], None]


class Pipeline:
    """Serves the requests of all connections of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._tree = member.tree
        self._stats = member.stats
        self._outstanding_limit = member.limits.outstanding_per_connection
        self._outstanding_bytes_limit = member.limits.outstanding_bytes_per_connection
        self._frame_bytes = member.limits.frame_bytes
        self.kept_bytes_limit = max(HELD_BYTES_LIMIT, 4 + self._frame_bytes)
        self._senders = {op: self._sender_of(answer) for op, answer in Answers(member).by_op.items()}

    # ---- the way in

    def serve(self, received: Sequence[tuple[ClientConnection, bytes]], confirmed: bool = False) -> None:
        """Serve what each of these connections received; their answers are sent together, at the end.

        `confirmed`: all that was committed when it was received is applied here. Else it was received just now.
        """
        started = time.monotonic()
        heard_ms = int(started * 1000)
        now_ms = int(time.time() * 1000)
        member = self._member
        takes_writes = member.replica.writable
        propose = member.replica.propose
        room, room_bytes = member.room_for_writes()
        own_room, own_room_bytes = self._outstanding_limit, self._outstanding_bytes_limit
        nodes = self._tree.nodes
        acls = self._tree.acls
        zxid = self._tree.zxid
        frame_limit = self._frame_bytes
        gate = member.gate
        gated = NOTHING if gate is None or confirmed else GATED
        unpack = REQUEST.unpack_from
        unpack_int = INT.unpack_from
        pack = REPLY.pack
        pack_head = HEAD.pack
        commands: list[bytes] = []  # that the log does not have yet
        all_requests = 0
        #: Connections with something to send, or a reason not to be read from; with each the reads answered at once,
        #: and whether that is all that came.
        to_settle: list[tuple[ClientConnection, int, bool]] = []
        for connection, data in received:
            try:
                if connection.kept is not None or connection.state is not OPEN:
                    if commands:
                        propose(commands)
                        commands = []
                    data = self._to_serve(connection, data)
                append = connection.out.append
                pending = connection.pending
                writes = connection.writes
                position = requests = answered = made_bytes = 0
                may_stall = False
                turn_began = 0.0  # when the first request was served that can take long
                end = len(data)
                while end - position >= 12:
                    length, xid, op = unpack(data, position)
                    frame_end = position + 4 + length
                    if frame_end > end or not REQUEST_HEADER_BYTES <= length <= frame_limit:
                        break
                    if op in gated and gate is not None and gate.keeps(connection, op):
                        gate.hold(connection, data[position:])
                        position = end
                        if connection.live is not None:
                            connection.live.heard_ms = heard_ms  # heard, although it is not served yet
                        break
                    if pending and op in WAITS_ALONE:
                        connection.waits_for_writes = True
                        break
                    requests += 1
                    if op in writes and takes_writes:
                        if pending is None:
                            pending = connection.pending = deque()
                        connection.sequence = sequence = connection.sequence + 1
                        identities = connection.identities_record
                        head = pack_head(
                            now_ms, connection.session_id, connection.attach, sequence, op, len(identities)
                        )
                        commands.append(head + identities + data[position + 12 : frame_end])
                        pending.append((xid, None, started))
                        position = frame_end
                        connection.waiting_bytes += length
                        if length > connection.largest_write_bytes:
                            connection.largest_write_bytes = length
                        room -= 1
                        room_bytes -= length
                        if (
                            len(pending) >= own_room
                            or connection.waiting_bytes >= own_room_bytes
                            or room <= 0
                            or room_bytes <= 0
                        ):
                            may_stall = True
                            break
                        continue
                    if op in NODE_READS and not pending and length > PATH_READ_BYTES:
                        # getData and exists of a node that anyone may read: a look into the dictionary and a join.
                        path = data[position + 16 : frame_end - 1]
                        node = nodes.get(path)
                        if (
                            node is not None
                            and path not in acls
                            and not data[frame_end - 1]
                            and unpack_int(data, position + 12)[0] == length - PATH_READ_BYTES
                        ):
                            if op == EXISTS:
                                node = node[-STAT_BYTES:]
                            append(pack(REPLY_HEADER_BYTES + len(node), xid, zxid, 0))
                            append(node)
                            answered += 1
                            made_bytes += len(node) + REPLY.size
                            position = frame_end
                            if made_bytes < OUTPUT_SLICE_BYTES:
                                continue
                    if position != frame_end:
                        if commands:
                            propose(commands)
                            commands = []
                        record = data[position + 12 : frame_end]
                        position = frame_end
                        may_stall = True
                        turn_began = turn_began or time.monotonic()
                        self._answer(connection, xid, op, record)
                        pending = connection.pending
                        if connection.state is OPEN and time.monotonic() - turn_began > TURN_S:
                            member.turns.wait(connection)
                    connection.out_bytes += made_bytes
                    made_bytes = 0
                    if connection.out_bytes > OUTPUT_SLICE_BYTES:
                        connection.flush()
                    if connection.state is not OPEN or connection.is_stalled():
                        break
                if requests:
                    all_requests += requests
                    connection.out_bytes += made_bytes
                    connection.last_op = op
                    connection.last_xid = xid
                    connection.stats.packets_received += requests
                    live = connection.live
                    if live is not None:
                        live.heard_ms = heard_ms  # any request keeps the session alive
                if position != end:
                    if commands:
                        propose(commands)
                        commands = []
                    self._keep_rest(connection, data[position:])
                if connection.out or may_stall or position != end:
                    to_settle.append((connection, answered, answered == requests and position == end))
            except Exception:
                log.failure("a connection is closed because serving it failed")
                connection.abort()
        if commands:
            propose(commands)
        self._stats.packets_received += all_requests
        if gate is not None:
            gate.ask()
        if to_settle:
            self._settle(to_settle, started)

    def _to_serve(self, connection: ClientConnection, data: bytes) -> bytes:
        """The part of `data` that is requests to be served now, with what was kept in front of it."""
        if connection.kept is not None:
            if connection.only_hears:
                connection.hear(data)
                if connection.live is not None:
                    connection.live.heard_ms = self._member.monotonic_ms()
                return b""
            data = connection.joined(data)
            if connection.waits_at_gate and connection.live is not None:
                connection.live.heard_ms = self._member.monotonic_ms()  # it may wait for longer than its timeout
            if not data and len(connection.kept or b"") > self.kept_bytes_limit:
                connection.stop_reading()
        if connection.state is NEW and data:
            data = self._member.handshake.consume(connection, data)
        if connection.state is OPENING and data:
            connection.keep(data)
            connection.stop_reading()
        return data if connection.state is OPEN else b""

    def _keep_rest(self, connection: ClientConnection, rest: bytes) -> None:
        """Keep what is left behind the requests that were served, if what begins there can become a request."""
        if connection.state is not OPEN:
            return
        if len(rest) < 4:
            connection.keep(rest, REQUEST.size)
            return
        (length,) = INT.unpack_from(rest)
        if REQUEST_HEADER_BYTES <= length <= self._frame_bytes:
            connection.keep(rest, 4 + length)
        elif length < REQUEST_HEADER_BYTES:
            self._member.cut_off(connection, f"sent a frame of {length} bytes, which cannot hold a request header")
        else:
            self._oversized(connection, rest, length)

    def _oversized(self, connection: ClientConnection, rest: bytes, length: int) -> None:
        """A frame above the limit: read past it and answer with an error, if it is a request at all and not absurd."""
        if len(rest) < REQUEST.size:
            connection.keep(rest, REQUEST.size)
            return
        _, xid, op = REQUEST.unpack_from(rest)
        known = op in CHANGES or op in self._senders or op in (Op.AUTH, Op.SASL)
        if not known or length > self._frame_bytes * OVERSIZED_FRAMES_READ:
            self._member.cut_off(
                connection, f"sent a frame of {length} bytes, and limits.frame_bytes allows {self._frame_bytes}"
            )
            return
        missing_bytes = 4 + length - len(rest)
        if missing_bytes > 0:
            connection.skip(missing_bytes, xid)
            return
        self.oversized(connection, xid)
        self.serve([(connection, rest[4 + length :])])

    def _settle(self, served: list[tuple[ClientConnection, int, bool]], started: float) -> None:
        """Send each connection its answers, and read no more from one that should not send more for now."""
        latency_ms = (time.monotonic() - started) * 1000
        zxid = self._tree.zxid
        all_answered = 0
        for connection, answered, only_read in served:
            if answered:
                all_answered += answered
                connection.last_zxid = zxid
                connection.stats.answered(answered, latency_ms)
            try:
                has_sent = not connection.out or connection.flush()
                # Nothing but a client that does not take the answers is a reason to stop after reads alone.
                if not (only_read and has_sent) and connection.is_stalled():
                    connection.stop_reading()
            except Exception:
                log.failure("a connection is closed because answering it failed")
                connection.abort()
        if all_answered:
            self._stats.answered(all_answered, latency_ms)

    def oversized(self, connection: ClientConnection, xid: int) -> None:
        """A frame above the limit came to its end: answer it."""
        connection.stats.packets_received += 1
        self._stats.packets_received += 1
        self._refuse(connection, xid, ErrorCode.BAD_ARGUMENTS)

    def _answer(self, connection: ClientConnection, xid: int, op: int, record: bytes) -> None:
        send = self._senders.get(op)
        if send is not None and not (op == Op.SYNC and connection.is_read_only):
            if op in LARGE_READS and (connection.pending or connection.is_blocked):
                answer_bytes = self._answer_bytes(connection, op, record)
                connection.waiting_bytes += max(answer_bytes, connection.largest_write_bytes)
            self._in_turn(connection, PING_XID if op == Op.PING else xid, send, record)
        elif op == Op.AUTH:
            self._auth(connection, xid, record)
        elif op == Op.SASL:
            self._sasl(connection, xid, record)
        elif op == Op.CLOSE_SESSION:
            self._close_session(connection, xid)
        elif op in NOT_READ_ONLY and connection.is_read_only:
            self._refuse(connection, xid, ErrorCode.NOT_READ_ONLY)
        elif op in CHANGES and not connection.owns_session:
            connection.abort()  # its session has moved on to another member
        elif op == Op.RECONFIG and self._member.replica.writable:
            self._reconfig(connection, xid, record)
        elif op in CHANGES or op in connection.writes:  # of the member's own sessions, a TXN is one
            # The disk is full. No code stands for that; this one is known to every client and ends none's connection.
            self._refuse(connection, xid, ErrorCode.SYSTEM_ERROR)
        else:
            # An operation that does not exist, or that is not a client's to ask for (createSession, deleteContainer, a
            # lone check).
            self._in_turn(connection, xid, _send_last, reply_frame(xid, -1, ErrorCode.UNIMPLEMENTED))

    def _answer_bytes(self, connection: ClientConnection, op: int, record: bytes) -> int:
        """About how much a read of a path is answered with, as things are."""
        tree = self._tree
        if op == Op.GET_EPHEMERALS:
            session = tree.sessions.get(connection.session_id)
            return sum(INT.size + len(path) for path in session.ephemerals or ()) if session else 0
        if op == Op.GET_ACL:
            return size_bytes(tree.acls.get(record[INT.size :], ()))
        path = record[INT.size : -1] or b"/"
        names_bytes = tree.children_bytes.get(path, 0) + INT.size * len(tree.children.get(path, ()))
        return len(tree.nodes.get(path, b"")) + names_bytes

    def _in_turn(self, connection: ClientConnection, xid: int, send: Send, record: bytes) -> None:
        """Answer now, or behind the session's own writes that are not applied yet."""
        if connection.pending:
            connection.pending.append((xid, send, record))
            connection.waiting_bytes += len(record)
        else:
            send(connection, xid, record)

    def _sender_of(self, answer: Answer) -> Send:
        """Sends what `answer` makes of a request."""

        def send(connection: ClientConnection, xid: int, record: bytes) -> None:
            try:
                error, body = answer(connection, record)
            except JuteError:
                error, body = ErrorCode.MARSHALLING_ERROR, b""
            connection.put(reply_frame(xid, self._tree.zxid, error, body))

        return send

    def _refuse(self, connection: ClientConnection, xid: int, error: ErrorCode) -> None:
        """Answer with an error, in turn."""
        self._in_turn(connection, xid, self._sender_of(lambda _connection, _record: (error, b"")), b"")

    def answer_waiting(self, connection: ClientConnection, despite_block: bool = False) -> None:
        """Answer what stands at the head of the queue, up to the next write that is not applied yet.

        What a slow client cannot take yet is left until it can, or until its next write is applied (`despite_block`).
        """
        pending = connection.pending
        while pending and connection.state is OPEN:
            xid, send, record = pending[0]
            if send is None:
                break
            if connection.is_blocked and not despite_block:
                self._member.delivery.lagging[connection.session_id] = connection
                return
            pending.popleft()
            send(connection, xid, record)
            if connection.out_bytes > OUTPUT_SLICE_BYTES:
                connection.flush()
        self._member.delivery.lagging.pop(connection.session_id, None)

    # ---- who is asking

    def _auth(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        """The identity counts for all that is received from now on; the answer comes in arrival order, for Kazoo."""
        try:
            request = AuthRequest.decode(Reader(record))
            gained = auth.authenticate(request, connection.host, self._member.config.auth)
            auth.require_room(connection.identities, gained, self._member.limits.identity_bytes_per_connection)
        except (JuteError, auth.AuthFailed) as error:
            self._member.complaints.add(connection.host, connection.port, f"its auth request failed: {error}")
            self._in_turn(connection, xid, _send_last, reply_frame(xid, 0, ErrorCode.AUTH_FAILED))
            return
        connection.add_identities(gained)
        is_serializable = auth.reads_serializable(request)
        if is_serializable is not None:
            connection.is_serializable = is_serializable
        self._in_turn(connection, xid, _send, reply_frame(xid, 0, ErrorCode.OK))

    def _sasl(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        try:
            token = SaslRequest.decode(Reader(record)).token
            answer = auth.sasl_step(connection, token or b"", self._member.config.auth)
        except (JuteError, SaslFailure) as error:
            self._member.complaints.add(connection.host, connection.port, f"its SASL exchange failed: {error}")
            no_token = encode_buffer(None)  # the one error that has a body (protocol facts 13)
            self._in_turn(connection, xid, _send_last, reply_frame(xid, 0, ErrorCode.AUTH_FAILED, no_token))
            return
        self._in_turn(connection, xid, _send, reply_frame(xid, 0, ErrorCode.OK, encode_buffer(answer)))

    def _reconfig(self, connection: ClientConnection, xid: int, record: bytes) -> None:
        """A write whose command the leader makes: it depends on who is connected to it."""
        connection.waiting().append((xid, None, time.monotonic()))
        connection.waiting_bytes += len(record)
        connection.sequence += 1
        identities = connection.identities_record
        now_ms = int(time.time() * 1000)
        head = HEAD.pack(
            now_ms, connection.session_id, connection.attach, connection.sequence, Op.RECONFIG, len(identities)
        )
        self._member.replica.propose_change(head + identities + record)

    def _close_session(self, connection: ClientConnection, xid: int) -> None:
        if connection.is_read_only:
            self._in_turn(connection, xid, _send_last, reply_frame(xid, self._tree.zxid, ErrorCode.OK))
            return
        live = connection.live
        if live is None or not connection.owns_session or not self._member.replica.writable:
            self._refuse(connection, xid, ErrorCode.SYSTEM_ERROR)
            return
        live.closing = True
        connection.waiting().append((xid, None, time.monotonic()))
        now_ms = int(time.time() * 1000)
        connection.sequence += 1
        self._member.replica.propose(
            [HEAD.pack(now_ms, connection.session_id, connection.attach, connection.sequence, Op.CLOSE_SESSION, 0)]
        )


def _send(connection: ClientConnection, xid: int, frame: bytes) -> None:
    """Send an answer that was made when its request came."""
    connection.put(frame)


def _send_last(connection: ClientConnection, xid: int, frame: bytes) -> None:
    """The same, and close the connection behind it."""
    connection.put(frame)
    connection.finish()
