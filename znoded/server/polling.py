"""How plain connections are read: by a poller of our own, which the reactor sees as one readable descriptor.

Twisted enters a logging context and looks up methods for each readable socket, which costs as much as answering a read.
Here all sockets that are ready are read in one go. Everything else about a connection stays with Twisted, its end
included: at the end of a stream, or at an error, the reactor takes over and closes.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from twisted.internet.interfaces import IListeningPort, IReadDescriptor
from twisted.internet.tcp import Port, Server
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from znoded.server.connection import ClientConnection

RECEIVE_BYTES = 64 * 1024
#: Sockets read before the reactor has its turn again.
READY_LIMIT = 512


@implementer(IReadDescriptor)
class SocketPoller:
    """Reads the sockets of many connections for a reactor."""

    def __init__(self, reactor: Any, serve: Callable[[Sequence[tuple[ClientConnection, bytes]]], None]) -> None:
        """`serve` gets all that connections received at one time, a pair for each."""
        self._reactor = reactor
        self._serve = serve
        self._epoll = select.epoll()
        self._sockets: dict[int, PolledServer] = {}

    def start(self) -> None:
        """Be polled by the reactor."""
        self._reactor.addReader(self)

    def stop(self) -> None:
        """Read nothing any more."""
        self._reactor.removeReader(self)
        self._epoll.close()
        self._sockets.clear()

    def serve(self, port: IListeningPort) -> None:
        """Read what this port will accept, if that is plain TCP. Its protocols have to be ClientConnections.

        The ports of `unix:` endpoints are a kind of TCP port to Twisted; the factory of `ssl:` ones adds TLS.
        """
        if type(port) is Port and not isinstance(port.factory, TLSMemoryBIOFactory):
            port.transport = cast(Any, partial(PolledServer, self))

    def add(self, descriptor: int, socket: PolledServer) -> None:
        """Read this one when it is ready."""
        if descriptor not in self._sockets:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._sockets[descriptor] = socket

    def remove(self, descriptor: int, socket: PolledServer) -> None:
        """Leave it alone, whether it was being read or not."""
        if self._sockets.get(descriptor) is socket:
            del self._sockets[descriptor]
            try:
                self._epoll.unregister(descriptor)
            except (OSError, ValueError):
                pass  # a closed socket has left by itself, as all have when the poller is closed

    def fileno(self) -> int:
        """The descriptor that is readable when any socket is."""
        return self._epoll.fileno()

    def doRead(self) -> None:
        """Receive from every socket that is ready, then serve all that came.

        What is done for all of them in one go finds the processor's caches warm, and wakes a machine full of clients
        once: their answers are sent together.
        """
        sockets = self._sockets
        received: list[tuple[ClientConnection, bytes]] = []
        for descriptor, _ in self._epoll.poll(0, READY_LIMIT):
            socket = sockets[descriptor]
            try:
                data = socket.receive(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if data:
                received.append((socket.protocol, data))
            else:
                socket.leave_to_reactor()
        if received:
            self._serve(received)

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""

    def logPrefix(self) -> str:
        """How the reactor names it."""
        return "clients"


class PolledServer(Server):
    """The transport of an accepted connection that a poller reads."""

    protocol: ClientConnection

    def __init__(self, poller: SocketPoller, *accepted: Any) -> None:
        """`accepted` are the arguments that a port gives to Twisted's own transport."""
        self._poller = poller
        super().__init__(*accepted)
        self.receive: Callable[[int], bytes] = self.socket.recv

    def startReading(self) -> None:
        """Have the poller read it."""
        self._descriptor = self.fileno()  # which is -1 once it is closed
        self._poller.add(self._descriptor, self)

    def stopReading(self) -> None:
        """Leave what the client sends in the network."""
        self._poller.remove(self._descriptor, self)
        super().stopReading()  # type: ignore[no-untyped-call]

    def leave_to_reactor(self) -> None:
        """Nothing more comes, and the reactor finds out why."""
        self._poller.remove(self._descriptor, self)
        super().startReading()  # type: ignore[no-untyped-call]
