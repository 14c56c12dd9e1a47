"""The ports that clients connect to, plain and TLS."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import ServerFactory
from twisted.internet.tcp import Port
from twisted.protocols.tls import TLSMemoryBIOFactory

from znoded.config import ClientConfig
from znoded.server.connection import ClientConnection
from znoded.server.tls import ReloadingContext

if TYPE_CHECKING:
    from znoded.server.member import Member

#: Connections that may wait to be accepted. Twisted's default of 50 makes a storm of reconnects wait for
#: retransmissions.
BACKLOG = 1024


class ClientFactory(ServerFactory):
    """Makes the protocol of each accepted connection."""

    noisy = False

    def __init__(self, member: Member) -> None:
        self._member = member

    def buildProtocol(self, addr: IAddress | None) -> ClientConnection:
        connection = ClientConnection(self._member)
        connection.factory = self
        return connection


class Listeners:
    """The listening ports of one member."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._plain: list[IListeningPort] = []
        self._tls: list[IListeningPort] = []

    @inlineCallbacks
    def open(self, config: ClientConfig, member: Member) -> Any:
        """Listen on every endpoint of the configuration. Fails with CannotListenError."""
        factory = ClientFactory(member)
        for endpoint in config.listen:
            port = yield self._listen(endpoint, factory)
            member.poller.take_over(port)
            self._plain.append(port)
        if config.tls is not None:
            secure = TLSMemoryBIOFactory(ReloadingContext(config.tls), False, factory)
            secure.noisy = False
            for endpoint in config.tls.listen:
                self._tls.append((yield self._listen(endpoint, secure)))

    def _listen(self, endpoint: str, factory: Any) -> Deferred[IListeningPort]:
        listening: Deferred[IListeningPort] = serverFromString(self._reactor, with_backlog(endpoint)).listen(factory)
        return listening.addCallback(_without_delay)

    @property
    def plain_addresses(self) -> list[IAddress]:
        """Where it listens without TLS, or with the TLS of an `ssl:` endpoint."""
        return [port.getHost() for port in self._plain]

    @property
    def tls_addresses(self) -> list[IAddress]:
        """Where it listens with the TLS of the configuration."""
        return [port.getHost() for port in self._tls]

    def close(self) -> Deferred[list[None]]:
        """Stop accepting connections; those that are open stay."""
        ports = self._plain + self._tls
        self._plain, self._tls = [], []
        return gatherResults([Deferred.fromCoroutine(_stopped(port)) for port in ports])


def with_backlog(endpoint: str) -> str:
    """The endpoint string of a listener to which many may connect at once."""
    return f"{endpoint}:backlog={BACKLOG}" if endpoint.startswith("tcp") and "backlog=" not in endpoint else endpoint


def _without_delay(port: IListeningPort) -> IListeningPort:
    """Have small answers sent at once. Connections inherit it from here, so that it is not set for each."""
    if type(port) is Port:
        port.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return port


async def _stopped(port: IListeningPort) -> None:
    stopping = port.stopListening()
    if stopping is not None:
        await stopping
