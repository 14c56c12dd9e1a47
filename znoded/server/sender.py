"""The way out of a connection: send at once, queue what the peer is too slow for, and say when it is.

On plain TCP with nothing queued the bytes go straight to the socket. Twisted's own path arms and disarms the poller for
each reply, which costs more than the reply itself. Over TLS, and for what the socket did not take, the transport
queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.internet.tcp import Connection as TcpConnection
from zope.interface import implementer

#: How much a transport that queues gets at a time from `send_part`.
PART_BYTES = 64 * 1024


class Sender:
    """Writes to one transport. `blocked` is true while the peer has not taken what was written before."""

    __slots__ = ("_resumed", "_transport", "blocked")

    def __init__(self, transport: Any, resumed: Callable[[], None]) -> None:
        """`resumed` is called each time the sender stops being blocked."""
        self._transport = transport
        self._resumed = resumed
        self.blocked = False

    def send(self, data: bytes) -> None:
        """Write `data`, which must not be empty. Never raises: a broken connection is reported by the transport."""
        raise NotImplementedError

    def send_part(self, data: bytes, start: int) -> int:
        """Write as much of `data` from `start` on as there is room for: how much that was. It may be blocked then.

        So what many are sent is kept once, by who sends it, and not once for each who is slow.
        """
        raise NotImplementedError

    def follow(self) -> None:
        """Something was written past this sender: what it sends comes behind that."""

    def finish(self) -> None:
        """Close the connection once all that was written has left."""
        raise NotImplementedError


@implementer(IPullProducer)
class PlainSender(Sender):
    """Straight to the socket. As a pull producer it learns when the transport's own queue is empty again."""

    __slots__ = ("_arming", "_socket_send")

    def __init__(self, transport: Any, resumed: Callable[[], None]) -> None:
        super().__init__(transport, resumed)
        self._socket_send = transport.getHandle().send
        self._arming = False

    def send(self, data: bytes) -> None:
        if self.blocked:
            self._transport.write(data)
            return
        try:
            sent = self._socket_send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._transport.abortConnection()
            return
        if sent < len(data):
            self._queue(data[sent:])

    def send_part(self, data: bytes, start: int) -> int:
        if self.blocked:
            return 0
        sent = 0
        try:
            sent = self._socket_send(memoryview(data)[start:] if start else data)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._transport.abortConnection()
            self.blocked = True
            return 0
        if start + sent < len(data):
            self._queue(b"")
            self._transport.startWriting()
        return sent

    def follow(self) -> None:
        if not self.blocked:
            self._queue(b"")

    def _queue(self, rest: bytes) -> None:
        self.blocked = True
        self._transport.write(rest)
        # Registering a pull producer asks it for data at once; only the later calls mean that the queue is empty.
        self._arming = True
        self._transport.registerProducer(self, False)
        self._arming = False

    def resumeProducing(self) -> None:
        if self._arming:
            return
        self._transport.unregisterProducer()
        self.blocked = False
        self._resumed()

    def stopProducing(self) -> None:
        """The connection is gone; nothing is left to resume."""

    def finish(self) -> None:
        if self.blocked:
            self._transport.unregisterProducer()
        self._transport.loseConnection()


@implementer(IPushProducer)
class QueuedSender(Sender):
    """For transports that transform what they carry (TLS): all goes through them, and they say when they are full."""

    __slots__ = ()

    def __init__(self, transport: Any, resumed: Callable[[], None]) -> None:
        super().__init__(transport, resumed)
        transport.registerProducer(self, True)

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def send_part(self, data: bytes, start: int) -> int:
        if self.blocked:
            return 0
        part = data[start : start + PART_BYTES]
        self._transport.write(part)
        return len(part)

    def pauseProducing(self) -> None:
        self.blocked = True

    def resumeProducing(self) -> None:
        self.blocked = False
        self._resumed()

    def stopProducing(self) -> None:
        self.blocked = True

    def finish(self) -> None:
        self._transport.unregisterProducer()
        self._transport.loseConnection()


def sender_for(transport: Any, resumed: Callable[[], None]) -> Sender:
    """The quickest sender that `transport` allows."""
    if isinstance(transport, TcpConnection) and not transport.TLS:
        return PlainSender(transport, resumed)
    return QueuedSender(transport, resumed)
