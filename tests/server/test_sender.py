"""What a slow reader does to the way out of a connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactorClock, StringTransport

from znoded.server.sender import PART_BYTES, PlainSender, Sender, sender_for

DATA = bytes(range(256)) * 20_000


class Pair:
    """A TCP connection whose client reads when told to."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.client = socket.create_connection(listening.getsockname())
            self.accepted, _ = listening.accept()
        self.accepted.setblocking(False)
        self.accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        self.reactor = MemoryReactorClock()
        self.transport = Connection(self.accepted, Protocol(), self.reactor)
        self.transport.connected = True
        self.resumed = 0
        self.sender: Sender = sender_for(self.transport, self._resume)

    def _resume(self) -> None:
        self.resumed += 1

    def read(self, count: int) -> bytes:
        return self.client.recv(count, socket.MSG_WAITALL)

    def close(self) -> None:
        self.client.close()
        self.accepted.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_a_part_is_sent_and_the_rest_is_left_to_the_sender(pair: Pair) -> None:
    assert isinstance(pair.sender, PlainSender)
    sent = pair.sender.send_part(DATA, 100)
    while not pair.sender.blocked:
        sent += pair.sender.send_part(DATA, 100 + sent)
    assert 0 < sent < len(DATA) - 100
    assert pair.sender.send_part(DATA, 100 + sent) == 0
    assert pair.transport.dataBuffer == b"", "the transport keeps no copy"
    assert pair.read(sent) == DATA[100 : 100 + sent]
    pair.transport.doWrite()
    assert (pair.resumed, pair.sender.blocked) == (1, False)
    assert pair.sender.send_part(DATA, len(DATA) - 10) == 10
    assert not pair.sender.blocked


def test_a_part_for_a_client_that_is_gone_ends_the_connection(pair: Pair) -> None:
    pair.accepted.shutdown(socket.SHUT_WR)
    assert pair.sender.send_part(DATA, 0) == 0
    assert pair.sender.blocked
    pair.reactor.advance(0)
    assert pair.transport.disconnected


def test_a_transport_that_queues_gets_no_more_than_a_part_at_a_time() -> None:
    transport = StringTransport()
    sender = sender_for(transport, lambda: None)
    assert sender.send_part(DATA, 5) == PART_BYTES
    assert transport.value() == DATA[5 : 5 + PART_BYTES]
    assert transport.producer is not None
    transport.producer.pauseProducing()
    assert sender.send_part(DATA, 0) == 0
