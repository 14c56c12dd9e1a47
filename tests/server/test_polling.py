"""Which ports the poller reads, and what comes to them."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet import ssl, unix
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import ServerFactory
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from tests.server.harness import House
from znoded.server.connection import ClientConnection
from znoded.server.polling import PolledServer, SocketPoller


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


def connected(house: House) -> tuple[socket.socket, PolledServer]:
    """A client, and the transport of its connection."""
    client = socket.socket()
    made: list[ClientConnection] = []

    def make(_address: None) -> ClientConnection:
        made.append(ClientConnection(house.member))
        return made[0]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = SimpleNamespace(socket=listener, factory=SimpleNamespace(buildProtocol=make), reactor=house.clock)
        client.connect(listener.getsockname())
        house.member.poller._accept(cast(Any, port), lambda: None)
    return client, cast(PolledServer, made[0].transport)


def test_one_that_sent_everything_is_closed_without_the_reactors_writers() -> None:
    house = House()
    client, transport = connected(house)
    transport.loseConnection()
    transport.loseConnection()
    assert transport.connected
    assert not house.clock.writers
    house.clock.advance(0)
    with client:
        assert client.recv(1) == b""
    assert transport.disconnected
    assert len(house.member.admission) == 0


def test_one_with_something_to_send_is_left_to_the_reactor() -> None:
    house = House()
    client, transport = connected(house)
    transport.write(b"the last word")
    transport.loseConnection()
    house.clock.advance(0)
    assert transport.connected
    assert house.clock.writers == {transport}
    transport.doWrite()
    with client:
        assert client.recv(100) == b"the last word"
    transport.connectionLost(Failure(ConnectionDone()))
