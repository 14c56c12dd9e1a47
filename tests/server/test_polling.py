"""Which ports the poller reads, and what comes to them."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet import ssl, unix
from twisted.internet.protocol import ServerFactory
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.tls import TLSMemoryBIOFactory

from tests.server.harness import House
from znoded.server.connection import ClientConnection
from znoded.server.polling import SocketPoller


def is_polled(port: Port) -> bool:
    before = port.doRead
    SocketPoller(MemoryReactorClock(), lambda received: None).take_over(port)
    return port.doRead != before


def test_a_port_for_tcp_is() -> None:
    assert is_polled(Port(0, ServerFactory()))


def test_one_that_wraps_its_protocols_in_tls_is_not() -> None:
    secure = TLSMemoryBIOFactory(ssl.CertificateOptions(), False, ServerFactory())
    assert not is_polled(Port(0, secure))


def test_one_for_unix_sockets_is_not() -> None:
    assert not is_polled(unix.Port(b"a path", ServerFactory()))


def test_a_connection_that_could_not_be_made_is_no_harm_to_the_next_one() -> None:
    """Which gets its descriptor."""
    house = House()
    received: list[tuple[Any, bytes]] = []
    poller = SocketPoller(house.clock, received.extend)
    made: list[ClientConnection] = []

    def make(_address: None) -> ClientConnection:
        connection = ClientConnection(house.member)
        if not made:
            connection.connectionMade = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        made.append(connection)
        return connection

    clients = [socket.socket(), socket.socket()]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = SimpleNamespace(socket=listener, factory=SimpleNamespace(buildProtocol=make), reactor=house.clock)
        for client in clients:
            client.connect(listener.getsockname())
            poller._accept(cast(Any, port), lambda: None)
    clients[1].sendall(b"ruok")
    for _ in range(1_000):
        poller.doRead()
    assert received == [(made[1], b"ruok")]
    for client in clients:
        client.close()
    poller.stop()
