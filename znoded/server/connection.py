"""One client connection: its life from accept to close, the bytes in, the frames out.

    NEW ── connect request ──> OPENING ── session ready ──> OPEN ── close, expiry, takeover ──> ENDED
     └── four-letter word ──────────────────────────────────────────────────────────────────────^

What a request means is the pipeline's affair. Here lie the framing of partial input and the back-pressure: a client
that does not read is not read from, and costs a bounded amount of memory.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from znoded.jute.ops import Op
from znoded.server.auth import with_identities
from znoded.server.sender import Sender, sender_for
from znoded.server.stats import RequestStats
from znoded.server.tls import subject_rfc2253

if TYPE_CHECKING:
    from znoded.server.member import Member
    from znoded.server.sessions import LiveSession
    from znoded.tree.acl import Identity

    #: A request that waits for its turn: its xid, who answers it, its record. A write that is in the log has no one to
    #: answer it yet, and the time it was received in place of a record.
    Waiting = tuple[int, Callable[["ClientConnection", int, bytes], None] | None, Any]

#: Input is parsed until this much output has been made; then it is sent before more is parsed.
OUTPUT_SLICE_BYTES = 256 * 1024
#: What is kept waits for the read gate, and no number of bytes ends that.
UNTIL_CONFIRMED = sys.maxsize

#: The ops whose commands are made of what the client sent.
WRITES = frozenset(
    int(op)
    for op in (
        Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI,
    )
)  # fmt: skip
NO_WRITES: frozenset[int] = frozenset()

IPV6_GROUPS = struct.Struct(">8H")


def shown_address(host: str) -> str:
    """The address of a client as ZooKeeper shows it: of IPv6 all eight groups, as Java writes them.

    A client that comes by IPv4 to a socket for both is shown as such: ACLs name it so.
    """
    if "." in host:  # others that begin so stand for an IPv4 host in another way
        host = host.removeprefix("::ffff:")
    if ":" not in host:
        return host
    address, percent, scope = host.partition("%")
    groups = IPV6_GROUPS.unpack(socket.inet_pton(socket.AF_INET6, address))
    return ":".join(f"{group:x}" for group in groups) + percent + scope


class State(IntEnum):
    """Where a connection is in its life."""

    NEW = 0
    OPENING = 1
    OPEN = 2
    ENDED = 3


# The members under names of their own: to look one up in an enumeration takes longer than the rest of a check.
NEW, OPENING, OPEN, ENDED = State


@implementer(IHandshakeListener)
class ClientConnection(Protocol):
    """A client's connection. The watch table and the session tracker hold it as the watcher and the session's owner."""

    __slots__ = (
        "_need_bytes", "_sender", "_skip_bytes", "_skip_xid", "accepted_ms", "answered_sequence", "attach", "host",
        "identities", "identities_record", "in_line", "is_read_only", "is_reading", "is_serializable", "kept",
        "largest_write_bytes", "last_op", "last_received", "last_xid", "last_zxid", "live", "member",
        "out", "out_bytes", "pending", "port", "read_only_byte", "sasl", "sequence", "session_id", "state", "stats",
        "touched", "waiting_bytes", "waits_for_writes", "writes", "writes_answered",
    )  # fmt: skip
    #: Whether it is the member's own, and no limit of those who connect counts for it.
    is_own = False

    def __init__(self, member: Member) -> None:
        self.member = member
        self.state: State = NEW
        self.session_id = 0
        self.live: LiveSession | None = None
        self.attach = 0
        self.sequence = 0  # of its last write
        self.answered_sequence = 0  # of the last one that was answered
        self.identities: tuple[Identity, ...] = ()
        self.identities_record = b""
        self.read_only_byte = False
        #: Reads are answered with what is known here, without asking if that is the newest.
        self.is_serializable = member.config.client.reads == "serializable"
        #: Served by a member that is cut off.
        self.is_read_only = False
        #: The writes that may go to the log.
        self.writes = WRITES
        self.sasl: Any = None
        #: Requests received and not answered yet, oldest first. None until there was one, to keep idle sessions small.
        self.pending: deque[Waiting] | None = None
        #: The size of their records, or of what will be the answer; with those answered since all was taken.
        self.waiting_bytes = 0
        self.largest_write_bytes = 0  # of those: a read behind them may find it
        self.waits_for_writes = False  # a request that takes long comes when its writes are answered
        self.in_line = False  # its requests took long, and others have their turn
        #: Frames to send at the next flush.
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.touched = False  # in the delivery's list of connections to flush
        #: Received and not served yet; None if there is nothing, and nothing to skip.
        self.kept: bytearray | None = None
        self._need_bytes = 0  # how much that must be before it is worth another look
        self._skip_bytes = 0  # what is left of an oversized frame
        self._skip_xid = 0
        self.is_reading = True
        self.stats = RequestStats()
        self.last_op = 0
        self.last_xid = -1
        self.last_zxid = 0  # applied when it was answered last
        self.last_received = 0.0  # when the write answered last was received
        self.writes_answered = 0  # since the last flush

    # ---- life

    def connectionMade(self) -> None:
        transport: Any = self.transport
        peer = transport.getPeer()
        self.host: str = shown_address(getattr(peer, "host", "127.0.0.1"))
        self.port: int = getattr(peer, "port", 0)
        self._sender: Sender = sender_for(transport, self._resume)
        self.accepted_ms = self.member.monotonic_ms()
        self.add_identities(((b"ip", self.host.encode()),))
        self.member.connection_made(self)

    def handshakeCompleted(self) -> None:
        """TLS is up: a certificate the client showed and the context accepted names it."""
        certificate: Any = self.transport.getPeerCertificate()  # type: ignore[union-attr]
        if certificate is not None:
            self.add_identities(((b"x509", subject_rfc2253(certificate.to_cryptography())),))

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:
        self.state = ENDED
        self.kept = None
        self.out.clear()
        self.out_bytes = 0
        self.member.connection_lost(self)

    @property
    def has_ended(self) -> bool:
        """Whether the connection is closed, or about to be once what was written has left."""
        return self.state is ENDED

    def finish(self) -> None:
        """Send what is waiting, then close. Nothing received from now on is looked at."""
        if self.state is ENDED:
            return
        self.state = ENDED
        self.kept = None  # with TLS more comes until the client has closed, too
        if self.out:
            self._sender.send(b"".join(self.out))
            self.out.clear()
            self.out_bytes = 0
        self._sender.finish()
        self.member.admission.linger(self, self.member.monotonic_ms())

    def abort(self) -> None:
        """Close at once and without a word."""
        self.state = ENDED
        transport: Any = self.transport
        transport.abortConnection()

    @property
    def owns_session(self) -> bool:
        """Whether its session is its own, and was not taken over by another connection."""
        return self.live is not None and self.live.connection is self

    def forbid_writes(self) -> None:
        """From now on it may read only."""
        self.writes = NO_WRITES

    def add_identities(self, gained: tuple[Identity, ...]) -> None:
        """The client showed who else it is. Identities belong to the connection and are never taken away."""
        self.identities, self.identities_record = with_identities(self.identities, gained)

    # ---- in

    def dataReceived(self, data: bytes) -> None:
        self.member.pipeline.serve([(self, data)])

    def joined(self, data: bytes) -> bytes:
        """What can be served of `data` and of what is kept from before it; nothing, if more has to come first."""
        if self._skip_bytes:
            skipped_bytes = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped_bytes
            if self._skip_bytes:
                return b""
            self.kept = None
            self.member.pipeline.oversized(self, self._skip_xid)
            return data[skipped_bytes:]
        if self.kept is None:
            return data
        self.kept += data
        return self._take_kept() if len(self.kept) >= self._need_bytes else b""

    def keep(self, data: bytes, need_bytes: int = 0) -> None:
        """Keep what cannot be served yet, and look at it again when there are `need_bytes`."""
        self.kept = bytearray(data)
        self._need_bytes = need_bytes

    @property
    def only_hears(self) -> bool:
        """Whether what comes is kept until the connection goes on."""
        return not self.is_reading and not self._skip_bytes and self.state is OPEN

    @property
    def waits_at_gate(self) -> bool:
        """Whether what is kept is whole requests, which the read gate holds."""
        return self.kept is not None and self._need_bytes == UNTIL_CONFIRMED

    def skip(self, size_bytes: int, xid: int) -> None:
        """Look at nothing of the next `size_bytes`, which end the request `xid`."""
        self.keep(b"")
        self._skip_bytes = size_bytes
        self._skip_xid = xid

    def take_kept(self, size_bytes: int) -> tuple[bytes, bytes]:
        """The first `size_bytes` of what is kept, and the rest. Nothing is kept any more."""
        kept = bytes(self.kept or b"")
        self.kept = None
        return kept[:size_bytes], kept[size_bytes:]

    def serve_behind(self, data: bytes) -> None:
        """Serve this, which came behind what was served just now, and read on."""
        if data and self.kept is not None and self.waits_at_gate:  # where an oversized frame was skipped to
            self.kept += data
        elif data and self.is_stalled() and not self._skip_bytes:  # of what is skipped, nothing is kept
            self.keep(bytes(self.kept or b"") + data)
            self.stop_reading()
        elif data:
            self.member.pipeline.serve([(self, data)])
        self.go_on()

    def _take_kept(self) -> bytes:
        return self.take_kept(len(self.kept or b""))[0]

    def is_stalled(self) -> bool:
        """Whether nothing more may be read from this client for now."""
        if self.state is OPENING or self._sender.blocked or self.in_line or self.waits_for_writes:
            return True
        if not self.pending:
            return False  # without a write of its own under way nothing would tell it to go on
        return self.member.is_over_outstanding_limit(len(self.pending), self.waiting_bytes)

    def stop_reading(self) -> None:
        """Serve nothing more of what the client sends until `go_on`.

        It stays in the network, but for that of a client that is slow to take what it asked for: a ping may be in it.
        """
        if self.state is ENDED:
            return
        self.is_reading = False
        hears_on = self._sender.blocked and not self._skip_bytes
        if hears_on and self.kept is None:
            self.keep(b"")
        self._receive(hears_on and self._may_keep_more)

    def hear(self, data: bytes) -> None:
        """Keep what came while nothing is served, as long as it is not too much."""
        assert self.kept is not None
        self.kept += data
        self._receive(self._sender.blocked and self._may_keep_more)  # TLS may bring more of what it had already

    @property
    def _may_keep_more(self) -> bool:
        return len(self.kept or b"") <= self.member.pipeline.kept_bytes_limit

    def _receive(self, on: bool) -> None:
        transport: Any = self.transport
        if on:
            transport.resumeProducing()
        else:
            transport.pauseProducing()

    def go_on(self) -> None:
        """Read on, if the reason for the pause is gone: first what was received before it."""
        if self.is_reading or self.has_ended or not self.member.serving:
            return
        if self.is_stalled():
            self.stop_reading()  # for another reason, perhaps, and it has to be heard now
            return
        if self.live is not None and self.live.closing:
            return  # its session is about to end
        self.is_reading = True
        if self.kept and not self._skip_bytes and not self.waits_at_gate:  # which serves what waits there
            self.member.pipeline.serve([(self, self._take_kept())])
        if self.is_reading and not self.has_ended:
            self._receive(True)

    def _resume(self) -> None:
        """The peer has taken all that was queued."""
        if self.state is ENDED:
            return
        if self.out:
            self.flush()
        self.member.pipeline.answer_waiting(self)
        self.member.delivery.flush_later(self)
        self.member.delivery.flush()
        self.go_on()

    # ---- out

    def flush(self) -> bool:
        """Send the frames in `out`, a slice at a time: whether the peer has taken all.

        While it does not read, they stay, up to a limit.
        """
        out = self.out
        sender = self._sender
        if sender.blocked:
            self._check_output_limit()  # only of who has had a chance to read: not of what fills the socket just now
            return False
        while self.out_bytes > OUTPUT_SLICE_BYTES and not sender.blocked:
            sender.send(self._take_slice())
        if out and not sender.blocked and self.state is not ENDED:
            data = b"".join(out)
            out.clear()
            self.out_bytes = 0
            sender.send(data)
        return not sender.blocked

    def _take_slice(self) -> bytes:
        count = size_bytes = 0
        for frame in self.out:
            count += 1
            size_bytes += len(frame)
            if size_bytes >= OUTPUT_SLICE_BYTES:
                break
        data = b"".join(self.out[:count])
        del self.out[:count]
        self.out_bytes -= size_bytes
        return data

    def forget_waiting_bytes(self) -> None:
        """Nothing counts any more, if all was answered and taken."""
        if not self.pending and not self._sender.blocked:
            self.waiting_bytes = self.largest_write_bytes = 0

    @property
    def is_blocked(self) -> bool:
        """Whether the peer has not read what was sent before."""
        return self._sender.blocked

    def put(self, frame: bytes) -> None:
        """Queue a frame for the next flush."""
        self.out.append(frame)
        self.out_bytes += len(frame)
        self.stats.packets_sent += 1
        self.member.stats.packets_sent += 1

    def notify(self, frame: bytes) -> None:
        """Queue a watch notification behind what was answered so far."""
        if self.state is ENDED:
            return  # it lingers until the last answer is taken
        self.put(frame)
        if self._sender.blocked:
            self._check_output_limit()

    def _check_output_limit(self) -> None:
        """Cut off a client that does not read while its output grows beyond the limit, and what it had asked for."""
        if self.out_bytes > self.member.limits.queued_bytes_per_connection + self.waiting_bytes:
            size = f"{self.out_bytes} bytes wait for it (limits.queued_bytes_per_connection)"
            self.member.cut_off(self, f"does not read: {size}")

    def waiting(self) -> deque[Waiting]:
        """The queue of requests not answered yet, made when first needed."""
        if self.pending is None:
            self.pending = deque()
        return self.pending
