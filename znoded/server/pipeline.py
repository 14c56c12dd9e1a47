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
from znoded.jute.ops import PING_XID, Op
from znoded.jute.primitives import INT, JuteError, Reader, encode_buffer
from znoded.jute.records import AuthRequest, SaslRequest
from znoded.server import auth
from znoded.server.answers import Answer, Answers
from znoded.server.connection import NEW, OPEN, OUTPUT_SLICE_BYTES, ClientConnection
from znoded.server.frames import REPLY, REPLY_HEADER_BYTES, reply_frame
from znoded.server.sasl import SaslFailure
from znoded.server.turns import TURN_S
from znoded.tree.commands import HEAD
from znoded.tree.znode import STAT_BYTES

if TYPE_CHECKING:
    from znoded.server.member import Member

REQUEST = struct.Struct(">iii")  # frame length, xid, op
REQUEST_HEADER_BYTES = 8
#: The least that a read of one path has: the header, the length of the path, the watch flag.
PATH_READ_BYTES = REQUEST_HEADER_BYTES + 5
EXISTS = int(Op.EXISTS)
NODE_READS = frozenset((int(Op.GET_DATA), EXISTS))
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

#: What a place in a connection's queue holds: sends the answer to a request of this xid and record.
Send = Callable[[ClientConnection, int, bytes], None]


class Pipeline:
    """Serves the requests of all connections of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._tree = member.tree
        self._stats = member.stats
        self._pending_limit = member.limits.outstanding_per_connection
        self._frame_bytes = member.limits.frame_bytes
        self._senders = {op: self._sender_of(answer) for op, answer in Answers(member).by_op.items()}

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
            if op in NODE_READS and not connection.pending and length > PATH_READ_BYTES:
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
        known = op in WRITES or op in self._senders or op in (Op.AUTH, Op.SASL)
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
        self._refuse(connection, xid, ErrorCode.BAD_ARGUMENTS)

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
        send = self._senders.get(op)
        if send is not None:
            self._in_turn(connection, PING_XID if op == Op.PING else xid, send, record)
        elif op == Op.AUTH:
            self._auth(connection, xid, record)
        elif op == Op.SASL:
            self._sasl(connection, xid, record)
        elif op == Op.CLOSE_SESSION:
            self._close_session(connection, xid)
        elif op in WRITES:
            # The disk is full. No code stands for that; this one is known to every client and ends none's connection.
            self._refuse(connection, xid, ErrorCode.SYSTEM_ERROR)
        else:
            # An operation that does not exist, or that is not a client's to ask for (createSession, deleteContainer, a
            # lone check).
            self._in_turn(connection, xid, _send_last, reply_frame(xid, -1, ErrorCode.UNIMPLEMENTED))

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

    def write_applied(self, connection: ClientConnection, zxid: int, error: int, body: bytes) -> None:
        """The oldest write of this connection was applied: answer it, and what waited for it."""
        pending = connection.pending
        if not pending:
            return
        xid, _, connection.last_received = pending.popleft()
        connection.out.append(REPLY.pack(REPLY_HEADER_BYTES + len(body), xid, zxid, error) + body)
        connection.out_bytes += REPLY.size + len(body)
        connection.last_xid = xid
        connection.writes_answered += 1
        if pending and pending[0][1] is not None:
            self.answer_waiting(connection)

    def count_writes(self, connection: ClientConnection) -> None:
        """Count the writes that a batch answered, all with the latency of the last: a clock look-up for each shows."""
        count, connection.writes_answered = connection.writes_answered, 0
        self._count_answers(connection, connection.last_xid, count, connection.last_received)

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

    def _close_session(self, connection: ClientConnection, xid: int) -> None:
        if connection.live is None or not self._member.replica.writable:
            self._refuse(connection, xid, ErrorCode.SYSTEM_ERROR)
            return
        connection.live.closing = True
        connection.waiting().append((xid, None, time.monotonic()))
        now_ms = int(time.time() * 1000)
        sequence = connection.sequence + 1
        head = HEAD.pack(now_ms, connection.session_id, connection.attach, sequence, Op.CLOSE_SESSION, 0)
        self._hand_over(connection, [head])


def _send(connection: ClientConnection, xid: int, frame: bytes) -> None:
    """Send an answer that was made when its request came."""
    connection.put(frame)


def _send_last(connection: ClientConnection, xid: int, frame: bytes) -> None:
    """The same, and close the connection behind it."""
    connection.put(frame)
    connection.finish()
