"""The HTTP side of a connection: how many there may be, how long and how large a request, how much unread."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.server import Request

from znoded.admin.api import errors
from znoded.admin.api.dispatch import NO_OPERATION

if TYPE_CHECKING:
    from znoded.admin.api.site import ApiSite

_DONE = Failure(ConnectionDone())
#: From the first byte of a connection, or the end of its last request, to the whole of the next one.
REQUEST_TIMEOUT_S = 60.0
#: The bodies of all requests that are being received, at most.
BODIES_BYTES = 256 * 1024 * 1024


class ApiChannel(HTTPChannel):
    """One connection."""

    site: ApiSite
    _is_counted = False
    _may_serve = False
    #: Serves the request whose turn is to come.
    _next: Callable[[], None] | None = None
    #: Of its answers that it has not read yet; some of it may have left.
    _unread_bytes = 0

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[no-untyped-call]
        self._is_counted = self.site.enter(self.host)
        if not self._is_counted:
            self.reply_and_close(errors.busy())

    def dataReceived(self, data: bytes) -> None:
        if self._is_counted:
            # Data that waited for an answer comes by here again.
            self._may_serve = self._may_serve or not self._busyReceiving
            super().dataReceived(data)  # type: ignore[no-untyped-call]

    def callLater(self, period_s: float, act: Any) -> Any:
        """The clock of its timeout."""
        return self.site.reactor.callLater(period_s, act)

    @property
    def host(self) -> str:
        """The address of the client, as ACLs name it."""
        transport: Any = self.transport
        return str(getattr(transport.getPeer(), "host", "127.0.0.1")).removeprefix("::ffff:")

    def resetTimeout(self) -> None:
        """A byte now and then does not make a request last longer."""

    def serve(self, serve: Callable[[], None]) -> None:
        """Serve a request: one at once, those sent along with it when others had their turn.

        And none before the client has read what it asked for: answers can be a thousand times as large as requests.
        """
        if self._may_serve and not self._waitingForTransport:
            self._may_serve = False
            serve()
            return
        self._next = serve
        self.setTimeout(REQUEST_TIMEOUT_S)  # type: ignore[no-untyped-call]
        self.callLater(0, self._serve_next)

    def _serve_next(self) -> None:
        if self._next is not None and not self._waitingForTransport:
            serve, self._next = self._next, None
            self.setTimeout(None)  # type: ignore[no-untyped-call]
            serve()

    def written(self, size_bytes: int) -> None:
        """So much of an answer was written; who does not read it owes it. What is small enough, the transport takes."""
        if self._waitingForTransport:
            self._unread_bytes += size_bytes
            self.site.unread.add(size_bytes)
            self.site.unread.owe(self)

    def _was_read(self) -> None:
        self.site.unread.add(-self._unread_bytes)
        self._unread_bytes = 0
        self.site.unread.paid(self)

    def cut(self) -> int:
        """Break off in the midst of an answer: see `Debtor`."""
        self._was_read()
        transport: Any = self.transport
        transport.abortConnection()
        return 1

    def resumeProducing(self) -> None:
        self._was_read()
        super().resumeProducing()  # type: ignore[no-untyped-call]
        if self._next is not None:
            self.callLater(0, self._serve_next)

    def connectionLost(self, reason: Failure = _DONE) -> None:
        self._next = None
        self._was_read()
        if self._is_counted:
            self.site.leave(self.host)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def reply_and_close(self, error: errors.ApiError) -> None:
        """Answer a request that is not read to its end."""
        self.site.requests[NO_OPERATION, error.code] += 1
        body = json.dumps({"error": error.body}).encode() + b"\n"
        head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        transport: Any = self.transport
        transport.write(head % (error.status, error.code.encode(), len(body)) + body)
        transport.loseConnection()


class ApiRequest(Request):
    """One request. Its body is kept in memory, and only up to the limit."""

    channel: ApiChannel
    #: Whether its client is not there any more.
    is_gone = False
    _body_bytes = 0
    _is_refused = False

    def gotLength(self, length: int | None) -> None:
        self.content = self._body = BytesIO()
        if length is not None and length > self.channel.site.body_limit_bytes:
            self._refuse(errors.value_too_large(self.channel.site.value_limit_bytes))

    def handleContentChunk(self, data: bytes) -> None:
        site = self.channel.site
        self._body_bytes += len(data)
        site.bodies_bytes += len(data)
        if self._is_refused:
            return
        if self._body_bytes > site.body_limit_bytes:
            self._refuse(errors.value_too_large(site.value_limit_bytes))
        elif site.bodies_bytes > BODIES_BYTES:
            self._refuse(errors.busy())
        else:
            self._body.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self._count_out()
        if not self._is_refused:
            self.channel.serve(lambda: self._serve(command, path, version))

    def _serve(self, command: bytes, path: bytes, version: bytes) -> None:
        super().requestReceived(command, path, version)  # type: ignore[no-untyped-call]
        self.content = BytesIO()  # it was read, and the answer may take its time

    def write(self, data: bytes) -> None:
        super().write(data)  # type: ignore[no-untyped-call]
        if data and not self.is_gone:
            self.channel.written(len(data))

    def connectionLost(self, reason: Any) -> None:
        self.is_gone = True
        self._count_out()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _count_out(self) -> None:
        self.channel.site.bodies_bytes -= self._body_bytes
        self._body_bytes = 0

    def _refuse(self, error: errors.ApiError) -> None:
        self._is_refused = True
        self.channel.reply_and_close(error)
