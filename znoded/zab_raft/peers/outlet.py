"""The way out of a connection between members: straight to the socket while it takes all, then a bounded queue."""

from __future__ import annotations

from collections import deque
from typing import Any

from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.tcp import Connection as TcpConnection
from zope.interface import implementer

#: About so much is handed to the transport at once when it has room again.
FLUSH_BYTES = 1 << 20


class Outlet:
    """Writes whole frames in order; at most `limit_bytes` wait here, beside about as much in the transport."""

    def __init__(self, transport: Any, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._transport = transport
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._blocked = False
        self._closed = False

    def send(self, data: bytes) -> bool:
        """Write `data`; false, and nothing done, if there is no room for it, or the connection is gone."""
        if self._closed:
            return False
        if not self._blocked:
            self._write(data)
            return True
        if self._waiting_bytes + len(data) > self.limit_bytes:
            return False
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        return True

    def close(self) -> None:
        """The connection is gone."""
        self._closed = True
        self._waiting.clear()

    def finish(self) -> None:
        """Close the connection when all that was sent has left."""
        self._closed = True
        if self._waiting:
            self._transport.write(b"".join(self._waiting))
            self._waiting.clear()
        self._let_go()
        self._transport.loseConnection()

    def _let_go(self) -> None:
        """Ask the transport for nothing any more."""
        raise NotImplementedError

    def _write(self, data: bytes) -> None:
        raise NotImplementedError

    def _unblocked(self) -> None:
        """The transport has room: hand over what waits, until it has none."""
        self._blocked = False
        while self._waiting and not self._blocked:
            pieces, size_bytes = [], 0
            while self._waiting and size_bytes < FLUSH_BYTES:
                pieces.append(self._waiting.popleft())
                size_bytes += len(pieces[-1])
            self._waiting_bytes -= size_bytes
            self._write(b"".join(pieces))


@implementer(IPullProducer)
class SocketOutlet(Outlet):
    """For plain TCP. The transport's own path arms and disarms the poller for each write, which costs more than it.

    As a pull producer it learns when the transport's queue, which has what the socket did not take, is empty again.
    """

    def __init__(self, transport: Any, limit_bytes: int) -> None:
        super().__init__(transport, limit_bytes)
        self._socket_send = transport.getHandle().send
        self._arming = False

    def _write(self, data: bytes) -> None:
        try:
            sent = self._socket_send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            self._transport.abortConnection()
            return
        if sent < len(data):
            self._blocked = True
            self._transport.write(data[sent:])
            # Registering a pull producer asks it for data at once; only the later calls mean that the queue is empty.
            self._arming = True
            self._transport.registerProducer(self, False)
            self._arming = False

    def _let_go(self) -> None:
        if self._blocked:
            self._transport.unregisterProducer()

    def resumeProducing(self) -> None:
        if not self._arming:
            self._transport.unregisterProducer()
            self._unblocked()

    def stopProducing(self) -> None:
        self.close()


@implementer(IPushProducer)
class TransportOutlet(Outlet):
    """For transports that transform what they carry (TLS): they say when they are full."""

    def __init__(self, transport: Any, limit_bytes: int) -> None:
        super().__init__(transport, limit_bytes)
        transport.registerProducer(self, True)

    def _write(self, data: bytes) -> None:
        self._transport.write(data)

    def _let_go(self) -> None:
        self._transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self._blocked = True

    def resumeProducing(self) -> None:
        self._unblocked()

    def stopProducing(self) -> None:
        self.close()


def outlet_for(transport: Any, limit_bytes: int) -> Outlet:
    """The quickest outlet that the transport allows. Nothing else may write to it from here on."""
    if isinstance(transport, TcpConnection) and not transport.TLS:
        return SocketOutlet(transport, limit_bytes)
    return TransportOutlet(transport, limit_bytes)
