"""The client under Twisted: call `Deferred.fromCoroutine` with what it has, or await it in a coroutine of yours."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from znoded.client.client import Client
from znoded.client.io import is_readable, keep_alive

T = TypeVar("T")


class TwistedStream(Protocol):
    """A connection of Twisted. What comes while nobody reads waits in the network."""

    def __init__(self) -> None:
        self._received: list[bytes] = []
        self._has_ended = False
        self._reader: Deferred[None] | None = None

    def connectionMade(self) -> None:
        transport: Any = self.transport
        keep_alive(transport.fileno())

    def dataReceived(self, data: bytes) -> None:
        self._received.append(data)
        self._pause(True)
        self._wake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.called:
            reader.callback(None)

    def _pause(self, is_paused: bool) -> None:
        transport: Any = self.transport
        (transport.pauseProducing if is_paused else transport.resumeProducing)()

    async def read(self) -> bytes:
        """Some bytes; none when the peer closed it."""
        if not self._received and not self._has_ended:
            self._pause(False)
            self._reader = Deferred()
            await self._reader
        data, self._received = b"".join(self._received), []
        return data

    async def write(self, data: bytes) -> None:
        """Send all of them; requests are small enough to wait in memory."""
        if self._has_ended:
            raise ConnectionError("the connection is closed")
        transport: Any = self.transport
        transport.write(data)

    def is_closed(self) -> bool:
        """Whether the peer closed it."""
        transport: Any = self.transport
        return self._has_ended or is_readable(transport.fileno())

    def close(self) -> None:
        """Give it up."""
        transport: Any = self.transport
        transport.abortConnection()


class TwistedIo:
    """A reactor."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    async def connect(self, host: str, port: int, tls: Any) -> TwistedStream:
        """A connection; `tls` is what `twisted.internet.ssl.optionsForClientTLS` gives."""
        endpoint: Any = HostnameEndpoint(self._reactor, host, port)
        if tls is not None:
            endpoint = wrapClientTLS(tls, endpoint)
        try:
            stream: TwistedStream = await connectProtocol(endpoint, TwistedStream())
        except (CancelledError, ConnectingCancelledError):
            raise CancelledError from None
        except Exception as error:
            raise ConnectionError(f"no connection to {host}:{port}: {error}") from error
        return stream

    async def sleep(self, time_s: float) -> None:
        """Return after so long."""
        await deferLater(self._reactor, time_s)

    async def within(self, timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or TimeoutError."""
        try:
            return await Deferred.fromCoroutine(work).addTimeout(timeout_s, self._reactor)
        except DeferredTimeout:
            raise TimeoutError(f"not within {timeout_s:g} s") from None

    def now_s(self) -> float:
        """The reactor's clock."""
        return float(self._reactor.seconds())

    def spawn(self, work: Coroutine[Any, Any, None]) -> Callable[[], None]:
        """Run it beside; what is returned cancels it."""
        running = Deferred.fromCoroutine(work)
        running.addErrback(lambda failure: failure.trap(CancelledError) and None)
        return running.cancel


def twisted_client(
    reactor: Any,
    members: Sequence[tuple[str, int]],
    *,
    user: tuple[str, str] | None = None,
    tls: Any = None,
    patience_s: float = 30.0,
) -> Client:
    """A client for coroutines of Twisted; see `Client` for the parameters."""
    return Client(TwistedIo(reactor), members, user=user, tls=tls, patience_s=patience_s)
