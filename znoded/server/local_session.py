"""A session of the member's own, without a socket, in which it writes for those who have no connection: the HTTP API.

It is a connection like a client's, over a transport in memory. So everything that holds for clients holds for it, and
nothing of it had to be written again: the handshake, the order of writes, the limits, the forwarding to the leader, the
end when the member is cut off or its state replaced. The way of a socket's bytes does not know of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from znoded.jute.frames import frame
from znoded.jute.ops import PING_XID, Op
from znoded.jute.primitives import Reader
from znoded.jute.records import ConnectRequest, ConnectResponse
from znoded.server.connection import WRITES, ClientConnection
from znoded.server.local_transport import LocalTransport
from znoded.server.pipeline import REQUEST, REQUEST_HEADER_BYTES
from znoded.tree.commands import TXN

if TYPE_CHECKING:
    from znoded.server.member import Member

TICK_S = 0.5
#: What waits to be written for all together, at most; of the rest each is told to come back later.
WAITING_WRITES = 10_000
WAITING_BYTES = 64 * 1024 * 1024


class Busy(Exception):
    """More is waiting to be written than may be."""


class OutcomeUnknown(Exception):
    """The write may have taken effect, or may yet, or never will."""


class NotWritten(Exception):
    """The write did not take effect, since there is no leader."""


class Written(NamedTuple):
    """A reply: the error code, the record if there is none, and the zxid of the write."""

    error: int
    body: bytes
    zxid: int


class _Write(NamedTuple):
    record: bytes
    identities: bytes
    deadline_ms: int
    done: Deferred[Written]


class LocalConnection(ClientConnection):
    """A connection of the member to itself. It alone may send TXN."""

    __slots__ = ()
    is_own = True

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self.writes = WRITES | {TXN}


class LocalSession:
    """Writes in one session after another, each as long as the member keeps it open."""

    def __init__(self, member: Member, reactor: Any, patience_ms: int) -> None:
        """`patience_ms`: how long a write may take before whoever asked for it is told that nobody knows."""
        self._member = member
        self._reactor = reactor
        self._patience_ms = patience_ms
        self._transport: LocalTransport | None = None
        self._is_open = False
        self._waiting: deque[_Write] = deque()
        self._waiting_bytes = 0
        self._sent: deque[_Write] = deque()
        self._timer = LoopingCall(self._tick)
        self._timer.clock = reactor

    def start(self) -> None:
        """Open a session as soon as the member lets clients in."""
        self._timer.start(TICK_S)

    def stop(self) -> None:
        """Write nothing any more."""
        if self._timer.running:
            self._timer.stop()
        if self._transport is not None:
            self._transport.loseConnection()

    def write(self, record: bytes, identities: bytes) -> Deferred[Written]:
        """Have a TXN applied for who has these identities, encoded.

        Raises Busy; fails with NotWritten or OutcomeUnknown.
        """
        if len(self._waiting) >= WAITING_WRITES or self._waiting_bytes + len(record) > WAITING_BYTES:
            raise Busy(f"{len(self._waiting)} writes of {self._waiting_bytes} bytes wait already")
        done: Deferred[Written] = Deferred()
        deadline_ms = self._member.monotonic_ms() + self._patience_ms
        self._waiting.append(_Write(record, identities, deadline_ms, done))
        self._waiting_bytes += len(record)
        self._send()
        return done

    # ---- the connection

    def _tick(self) -> None:
        """Open it again if it is closed, keep it alive if not, and let nobody wait for too long."""
        if self._transport is None:
            self._connect()
        elif self._is_open:
            self._transport.send(REQUEST.pack(REQUEST_HEADER_BYTES, PING_XID, Op.PING))
        now_ms = self._member.monotonic_ms()
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            overdue = self._take()
            overdue.done.errback(NotWritten())
        for sent in list(self._sent):
            if sent.deadline_ms <= now_ms and not sent.done.called:
                sent.done.errback(OutcomeUnknown())

    def _connect(self) -> None:
        if self._member.turns_clients_away or not self._member.serving:
            return
        self._transport = LocalTransport(self._reactor, self._received, self._lost, self._send)
        connection = LocalConnection(self._member)
        self._transport.connect(connection)
        request = ConnectRequest(0, 0, self._member.config.session_timeout_max_ms, 0, bytes(16), False)
        self._transport.send(frame(request.encode()))

    def _received(self, payload: bytes) -> None:
        if not self._is_open:
            self._is_open = ConnectResponse.decode(Reader(payload)).session_id != 0
            self._send()
            return
        reader = Reader(payload)
        xid, zxid, error = reader.int(), reader.long(), reader.int()
        if xid == PING_XID:
            return
        sent = self._sent.popleft()
        if not sent.done.called:
            sent.done.callback(Written(error, payload[reader.position :], zxid))
        self._send()

    def _lost(self) -> None:
        self._transport = None
        self._is_open = False
        sent, self._sent = self._sent, deque()
        for write in sent:
            if not write.done.called:
                write.done.errback(OutcomeUnknown())

    def _take(self) -> _Write:
        write = self._waiting.popleft()
        self._waiting_bytes -= len(write.record)
        return write

    def _send(self) -> None:
        """Send what waits, while the connection takes it. Each is served at once, with its own identities."""
        while self._waiting and self._is_open and self._transport is not None and self._transport.is_taking:
            write = self._take()
            self._sent.append(write)
            assert self._transport.connection is not None
            self._transport.connection.identities_record = write.identities
            self._transport.send(REQUEST.pack(REQUEST_HEADER_BYTES + len(write.record), 1, TXN) + write.record)
