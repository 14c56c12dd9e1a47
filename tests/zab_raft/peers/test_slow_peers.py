"""Connections that come to nothing, on a clock that the test moves; and the way out when the other end is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogLevel, capturedLogs, formatEvent

from znoded.zab_raft.peers.acceptor import Acceptor, Incoming
from znoded.zab_raft.peers.connection import HANDSHAKE_TIMEOUT_S
from znoded.zab_raft.peers.gate import NOT_IN_A_CELL_YET, Gate
from znoded.zab_raft.peers.handshake import Hello
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.incarnations import Incarnations
from znoded.zab_raft.peers.outlet import Outlet, SocketOutlet, outlet_for
from znoded.zab_raft.peers.refusal_log import LINES_LIMIT, PERIOD_S, RefusalLog

OWN = Identity(bytes(range(16)), 1, 1, bytes(16))


class NoGuests:
    def accepted(self, connection: Incoming, hello: Hello) -> None:
        raise AssertionError("nobody is accepted here")

    def gone(self, connection: Incoming, by_other: bool) -> None:
        raise AssertionError("nobody was here")


def test_a_slow_handshake_is_cut_off(tmp_path: Path) -> None:
    clock = Clock()
    gate = Gate(OWN, "", b"", Incarnations(str(tmp_path)))
    acceptor = Acceptor(clock, gate, RefusalLog(clock.seconds), NoGuests(), bytes)
    address = IPv4Address("TCP", "10.0.0.9", 4711)
    connection: Any = acceptor.buildProtocol(address)
    transport = StringTransport(peerAddress=address)
    connection.makeConnection(transport)
    connection.dataReceived(b"\0\0\1\0some")
    clock.advance(HANDSHAKE_TIMEOUT_S - 0.1)
    connection.dataReceived(b"more")
    assert not transport.disconnected
    with capturedLogs() as events:
        clock.advance(0.1)
    assert transport.disconnected
    assert [formatEvent(event) for event in events] == [
        "peer connection with 10.0.0.9:4711 refused: no handshake within 5 s"
    ]


def test_refusals_are_logged_once_a_minute_and_never_as_a_flood() -> None:
    clock = Clock()
    refusals = RefusalLog(clock.seconds)
    with capturedLogs() as events:
        for _ in range(3):
            refusals.add("a", "a:1", "no")
        for number in range(100):
            refusals.add(f"host {number}", "", "no")
        assert len(events) == LINES_LIMIT
        clock.advance(PERIOD_S)
        refusals.add("a", "a:2", "no")
    assert [formatEvent(event) for event in events[LINES_LIMIT:]] == [
        "53 more peer connections were refused in the last minute",
        "peer connection with a:2 refused: no",
    ]


def test_a_member_that_is_still_blank_is_no_reason_to_warn() -> None:
    clock = Clock()
    refusals = RefusalLog(clock.seconds)
    with capturedLogs() as events:
        for reason in (f"member 2 {NOT_IN_A_CELL_YET}", f"the other side says: member 2 {NOT_IN_A_CELL_YET}"):
            refusals.add("a", "a:1", reason)
            refusals.add("a", "a:1", reason)
        clock.advance(PERIOD_S)
        refusals.add("a", "a:1", "no")
    assert [event["log_level"] for event in events] == [LogLevel.info, LogLevel.info, LogLevel.warn]


def outlet(limit_bytes: int = 10) -> tuple[Outlet, Any]:
    transport: Any = StringTransport()
    return outlet_for(transport, limit_bytes), transport


def test_what_waits_is_bounded_and_keeps_its_order() -> None:
    out, transport = outlet()
    assert out.send(b"first ")
    transport.producer.pauseProducing()
    assert out.send(b"second ")
    assert not out.send(b"third ")
    assert out.send(b"3rd")
    assert transport.value() == b"first "
    transport.producer.resumeProducing()
    assert transport.value() == b"first second 3rd"
    assert out.send(b"!" * 100)


def test_a_full_transport_is_not_filled_further() -> None:
    out, transport = outlet(4 << 20)
    transport.producer.pauseProducing()
    for _ in range(4):
        assert out.send(bytes(1 << 20))
    write = transport.write

    def write_and_fill(data: bytes) -> None:
        write(data)
        transport.producer.pauseProducing()

    transport.write = write_and_fill
    transport.producer.resumeProducing()
    assert len(transport.value()) == 1 << 20
    transport.producer.resumeProducing()
    assert len(transport.value()) == 2 << 20


def test_what_waits_still_leaves_before_the_end() -> None:
    out, transport = outlet()
    transport.producer.pauseProducing()
    out.send(b"why")
    out.finish()
    assert transport.value() == b"why"
    assert transport.producer is None
    assert transport.disconnecting
    assert not out.send(b"more")


def test_nothing_is_sent_on_a_connection_that_is_gone() -> None:
    out, transport = outlet()
    transport.producer.stopProducing()
    assert not out.send(b"x")
    assert transport.value() == b""


class FailingSocket:
    def send(self, data: bytes) -> int:
        raise BrokenPipeError


class PlainTransport(StringTransport):
    def getHandle(self) -> FailingSocket:
        return FailingSocket()


def test_a_socket_that_fails_ends_the_connection() -> None:
    transport: Any = PlainTransport()  # type: ignore[no-untyped-call]
    out = SocketOutlet(transport, 10)
    out.send(b"x")
    assert transport.disconnected
    assert not out.send(b"y")
