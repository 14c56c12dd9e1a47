"""The way out of a stream: past twisted.web, straight to the socket, when the head of the answer is sent."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from znoded.admin.api.unread import Unread
from znoded.server.sender import sender_for

#: A stream that is ended gets so long to read what it is still owed.
LINGER_S = 5.0


class Writer(Protocol):
    """Who writes into a sink: a stream."""

    def resumed(self) -> None:
        """The client has read what was sent."""

    def cut(self) -> int:
        """See `Debtor`: let go of the client with `Sink.abort`."""


class StreamSink:
    """Sends bytes that it shares with other sinks: it keeps no copy of what its client has not read yet."""

    def __init__(self, request: Any, writer: Writer, unread: Unread) -> None:
        request.write(b"")
        self._writer = writer
        self._unread = unread
        self._waiting: deque[bytes] = deque()
        self._sent = 0  # of the first of them
        self._is_finishing = False
        self._reactor = request.channel.site.reactor
        self._transport = request.channel.transport
        self._transport.unregisterProducer()
        self._sender = sender_for(self._transport, self._resumed)
        self._sender.follow()
        self._gone: Deferred[None] = request.notifyFinish().addErrback(lambda _lost: None)
        self._gone.addBoth(lambda _gone: self._let_go())

    @property
    def blocked(self) -> bool:
        """Whether the client has not read what was sent before."""
        return self._sender.blocked or bool(self._waiting)

    def send(self, data: bytes) -> None:
        """Write, at once if that is possible."""
        if not self._waiting and not self._sender.blocked:
            self._sent = self._sender.send_part(data, 0)
            if self._sent == len(data):
                self._sent = 0
                return
        self._unread.hold(data)
        self._waiting.append(data)
        self._write()

    def finish(self) -> None:
        """Close when all that was sent is read, or after a while."""
        aborting = self._reactor.callLater(LINGER_S, self._transport.abortConnection)
        self._gone.addBoth(lambda _gone: aborting.active() and aborting.cancel())
        self._is_finishing = True
        if not self._waiting:
            self._sender.finish()

    def abort(self) -> None:
        """Close, whatever was not read."""
        self._let_go()
        self._transport.abortConnection()

    def cut(self) -> int:
        """See `Debtor`."""
        return self._writer.cut()

    def _write(self) -> None:
        while self._waiting and not self._sender.blocked:
            data = self._waiting[0]
            self._sent += self._sender.send_part(data, self._sent)
            if self._sent == len(data):
                self._unread.release(self._waiting.popleft())
                self._sent = 0
        if self._waiting:
            self._unread.owe(self)
        else:
            self._unread.paid(self)

    def _resumed(self) -> None:
        self._write()
        if self._waiting:
            return
        if self._is_finishing:
            self._sender.finish()
        elif not self._sender.blocked:
            self._writer.resumed()

    def _let_go(self) -> None:
        while self._waiting:
            self._unread.release(self._waiting.popleft())
        self._unread.paid(self)
