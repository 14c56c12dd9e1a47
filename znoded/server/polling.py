"""How plain connections are accepted and read: by a poller of our own, which is one readable descriptor to the reactor.

Twisted enters a logging context and looks up methods for each readable socket, which costs as much as answering a read.
Here all sockets that are ready are read in one go. What is written, and how a connection is closed, stays with Twisted.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from twisted.internet.address import IPv6Address
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IListeningPort, IReadDescriptor
from twisted.internet.tcp import Connection, Port, Server
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from znoded.server.connection import ClientConnection

RECEIVE_BYTES = 64 * 1024
#: Sockets read, and connections accepted, before the reactor has its turn again. Of a crowd of new clients, the first
#: are let in while the last still connect.
READY_LIMIT = 512
ACCEPT_LIMIT = 16

log = Logger()

_DONE = Failure(ConnectionDone())
_LOST = Failure(ConnectionLost())


@implementer(IReadDescriptor)
class SocketPoller:
    """Accepts and reads many connections for a reactor."""

    def __init__(self, reactor: Any, serve: Callable[[Sequence[tuple[ClientConnection, bytes]]], None]) -> None:
        """`serve` gets all that connections received at one time, a pair for each."""
        self._reactor = reactor
        self._serve = serve
        self._epoll = select.epoll()
        self._transports: dict[int, PolledServer] = {}

    def start(self) -> None:
        """Be polled by the reactor."""
        self._reactor.addReader(self)

    def stop(self) -> None:
        """Read nothing any more."""
        self._reactor.removeReader(self)
        self._epoll.close()
        self._transports.clear()

    def take_over(self, port: IListeningPort) -> None:
        """Accept and read what comes to this port, if that is plain TCP. Its protocols have to be ClientConnections.

        The ports of `unix:` endpoints are a kind of TCP port to Twisted; the factory of `ssl:` ones adds TLS.
        """
        if type(port) is Port and not isinstance(port.factory, TLSMemoryBIOFactory):
            cast(Any, port).doRead = partial(self._accept, port, port.doRead)

    def _accept(self, port: Port, accept_by_twisted: Callable[[], None]) -> None:
        """Accept who waits, and serve what they sent meanwhile: most clients send their first request at once."""
        accepted: list[PolledServer] = []
        while len(accepted) < ACCEPT_LIMIT:
            try:
                client, address = port.socket.accept()
            except BlockingIOError:
                break
            except OSError:
                accept_by_twisted()  # which knows what to do when descriptors or memory run out
                break
            try:
                accepted.append(PolledServer(self, client, address, port))
            except Exception:
                log.failure("a connection is closed because accepting it failed")
                client.close()
        self._receive(accepted)

    def add(self, descriptor: int, transport: PolledServer) -> None:
        """Read this one when it is ready."""
        if self._transports.get(descriptor) is not transport:  # not one of this number that was accepted in vain
            self._epoll.register(descriptor, select.EPOLLIN)
        self._transports[descriptor] = transport

    def remove(self, descriptor: int, transport: PolledServer) -> None:
        """Leave it alone, whether it was being read or not."""
        if self._transports.get(descriptor) is transport:
            del self._transports[descriptor]
            try:
                self._epoll.unregister(descriptor)
            except (OSError, ValueError):
                pass  # a closed socket has left by itself, as all have when the poller is closed

    def fileno(self) -> int:
        """The descriptor that is readable when any socket is."""
        return self._epoll.fileno()

    def doRead(self) -> None:
        """Read every socket that is ready."""
        transports = self._transports
        self._receive([transports[descriptor] for descriptor, _ in self._epoll.poll(0, READY_LIMIT)])

    def _receive(self, transports: Sequence[PolledServer]) -> None:
        """Receive from all of these, then serve all that came.

        What is done for many in one go finds the processor's caches warm, and wakes a machine full of clients once:
        their answers are sent together.
        """
        received: list[tuple[ClientConnection, bytes]] = []
        ended: list[tuple[PolledServer, Failure]] = []
        for transport in transports:
            try:
                data = transport.receive(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                ended.append((transport, _LOST))
                continue
            if data:
                received.append((transport.protocol, data))
            else:
                ended.append((transport, _DONE))
        if received:
            self._serve(received)
        for transport, reason in ended:
            if not transport.disconnected:
                transport.connectionLost(reason)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""

    def logPrefix(self) -> str:
        """How the reactor names it."""
        return "clients"


class PolledServer(Server):
    """The transport of an accepted connection that a poller reads."""

    protocol: ClientConnection
    logstr = repstr = "a client"

    def __init__(self, poller: SocketPoller, client: socket.socket, address: tuple[Any, ...], port: Port) -> None:
        """`client` is the socket that `port` accepted, and `address` its peer's."""
        self._poller = poller
        protocol = cast(Any, port.factory).buildProtocol(None)
        # Twisted's own initialisation of a Server makes texts for logs as well, for longer than all the rest takes.
        Connection.__init__(self, client, protocol, port.reactor)
        self.server = port
        self.client = address
        self.hostname = address[0]
        if client.family == socket.AF_INET6:
            self._addressType = IPv6Address
        self.receive: Callable[[int], bytes] = client.recv
        self.connected = 1
        self.startReading()
        protocol.makeConnection(self)

    def startReading(self) -> None:
        """Have the poller read it."""
        self._descriptor = self.fileno()  # which is -1 once it is closed
        self._poller.add(self._descriptor, self)

    def loseConnection(self) -> None:
        """Close it once everything is sent. Where that is so already, Twisted would have the reactor write first."""
        if self.dataBuffer or self._tempDataBuffer or self.disconnecting or not self.connected:
            super().loseConnection()  # type: ignore[no-untyped-call]
        else:
            self.disconnecting = True
            self.stopReading()
            cast(Any, self.reactor).callLater(0, self.connectionLost, _DONE)  # which does nothing the second time

    def stopReading(self) -> None:
        """Leave what the client sends in the network."""
        self._poller.remove(self._descriptor, self)
        super().stopReading()  # type: ignore[no-untyped-call]
