"""The way into a connection: who reads its transport, and how that is paused.

Twisted enters a logging context and looks up methods for each readable socket, which costs as much as answering a read.
So the sockets of plain connections are watched by a poller of our own, which the reactor sees as one readable
descriptor: all that is ready is read in one go. Everything else about a connection, its end included, stays with
Twisted.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.tcp import Connection as TcpConnection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection

RECEIVE_BYTES = 64 * 1024
#: Sockets read before the reactor has its turn again.
READY_LIMIT = 512

log = Logger()


@implementer(IReadDescriptor)
class SocketPoller:
    """Reads the sockets of many connections for a reactor."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._epoll = select.epoll()
        self._receivers: dict[int, SocketReceiver] = {}

    def start(self) -> None:
        """Be polled by the reactor."""
        self._reactor.addReader(self)

    def stop(self) -> None:
        """Read nothing any more."""
        self._reactor.removeReader(self)
        self._epoll.close()
        self._receivers.clear()

    def add(self, receiver: SocketReceiver) -> None:
        """Read this one when it is ready."""
        self._receivers[receiver.descriptor] = receiver
        self._epoll.register(receiver.descriptor, select.EPOLLIN)

    def remove(self, receiver: SocketReceiver) -> None:
        """Leave it alone, whether it was being read or not."""
        if self._receivers.get(receiver.descriptor) is receiver:
            del self._receivers[receiver.descriptor]
            try:
                self._epoll.unregister(receiver.descriptor)
            except OSError:
                pass  # a closed socket has left by itself

    def fileno(self) -> int:
        """The descriptor that is readable when any socket is."""
        return self._epoll.fileno()

    def doRead(self) -> None:
        """Read every socket that is ready, then answer them.

        One after the other, answers would find each client waiting, and waking a process takes longer than a read. In
        one go, a machine full of clients is woken once.
        """
        receivers = self._receivers
        served: list[SocketReceiver] = []
        for descriptor, _ in self._epoll.poll(0, READY_LIMIT):
            receiver = receivers.get(descriptor)  # gone, if what came before in this round ended it
            if receiver is not None and receiver.receive():
                served.append(receiver)
        for receiver in served:
            receiver.settle()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""

    def logPrefix(self) -> str:
        """How the reactor names it."""
        return "clients"


class Receiver:
    """Lets a connection be read by Twisted, as its transport does by itself."""

    __slots__ = ("_transport",)

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def start(self) -> None:
        """The connection is set up."""

    def pause(self) -> None:
        """Leave what the client sends in the network."""
        self._transport.pauseProducing()

    def resume(self) -> None:
        """Read on."""
        self._transport.resumeProducing()

    def close(self) -> None:
        """The connection ends; read nothing any more."""


class SocketReceiver(Receiver):
    """Has a connection read by a poller. When its stream ends, or breaks, Twisted takes over and closes it."""

    __slots__ = ("_connection", "_poller", "_receive", "descriptor")

    def __init__(self, transport: Any, connection: ClientConnection, poller: SocketPoller) -> None:
        super().__init__(transport)
        self._connection = connection
        self._poller = poller
        handle = transport.getHandle()
        self._receive = handle.recv
        self.descriptor: int = handle.fileno()
        transport.pauseProducing()
        poller.add(self)

    def start(self) -> None:
        # Most clients send their first request while they wait to be accepted: no need to be told of it.
        if self.receive():
            self.settle()

    def receive(self) -> bool:
        """Hand what has come, if anything has, to the connection. An error in there ends this connection only."""
        try:
            data = self._receive(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._poller.remove(self)
            self._transport.resumeProducing()
            return False
        try:
            self._connection.take(data)
        except Exception:
            log.failure("a connection is closed because serving it failed")
            self._connection.abort()
        return True

    def settle(self) -> None:
        """Send the answers to what was received."""
        self._connection.settle()

    def pause(self) -> None:
        self._poller.remove(self)

    def resume(self) -> None:
        self._poller.add(self)

    def close(self) -> None:
        self._poller.remove(self)


def receiver_for(transport: Any, connection: ClientConnection, poller: SocketPoller) -> Receiver:
    """The quickest receiver that `transport` allows. It is reading when it is made."""
    if isinstance(transport, TcpConnection) and not transport.TLS:
        return SocketReceiver(transport, connection, poller)
    return Receiver(transport)
