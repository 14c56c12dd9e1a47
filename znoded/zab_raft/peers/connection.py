"""What both ends of a connection between members have in common: payloads in, payloads out, and an end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from znoded.jute.frames import FrameSplitter, frame
from znoded.jute.primitives import JuteError
from znoded.zab_raft.peers.handshake import HANDSHAKE_BYTES_LIMIT, Mistrusted, Refused, verdict
from znoded.zab_raft.peers.outlet import Outlet, outlet_for

HANDSHAKE_TIMEOUT_S = 5.0
#: A connection whose bytes are not acknowledged for so long is given up: after a cut, TCP itself would try again only
#: after as long as the cut had lasted.
UNACKNOWLEDGED_MS = 5_000


class DelayedCall(Protocol):
    """The part of Twisted's IDelayedCall that is used."""

    def active(self) -> bool: ...

    def cancel(self) -> None: ...


class PeerConnection(TwistedProtocol):
    """One end of a connection. `where` is the other end's address for the log; `closing` also once it is closed.

    A subclass takes each payload of the handshake in `shake`, and ends it with `open`: from then on payloads go to
    `on_payload`, and `send` writes. `on_payload` may raise JuteError. Whatever breaks the rules is given to `refuse`.
    """

    where = "?"
    host = "?"

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._splitter = FrameSplitter(HANDSHAKE_BYTES_LIMIT)
        self._outlet: Outlet
        self._timeout: DelayedCall | None = None
        self.closing = False
        self.on_payload: Callable[[bytes], None] = self._shake

    def connectionMade(self) -> None:
        assert self.transport is not None
        peer: Any = self.transport.getPeer()
        self.host = str(getattr(peer, "host", peer))
        self.where = f"{self.host}:{peer.port}" if hasattr(peer, "port") else self.host
        _tune(self.transport)
        self._outlet = outlet_for(self.transport, HANDSHAKE_BYTES_LIMIT)
        self._timeout = self._reactor.callLater(HANDSHAKE_TIMEOUT_S, self._timed_out)

    def dataReceived(self, data: bytes) -> None:
        try:
            for payload in self._splitter.feed(data):
                self.on_payload(payload)
                if self.closing:
                    return
        except JuteError as error:
            self.refuse(str(error))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_timeout()
        self._outlet.close()
        by_other, self.closing = not self.closing, True
        self.ended(by_other, reason.getErrorMessage())

    # What a subclass does

    def shake(self, payload: bytes) -> None:
        """A payload of the handshake. Raises JuteError, Mistrusted or Refused."""
        raise NotImplementedError

    def refused(self, reason: str) -> None:
        """This connection is closed for a reason that is to be logged."""

    def ended(self, by_other: bool, why: str) -> None:
        """It is closed, for a reason that the transport gives; by the other end or by the network, or by this end."""

    # What it does for them

    def open(self, limit_bytes: int, frame_bytes_limit: int, on_payload: Callable[[bytes], None]) -> None:
        """The handshake is done: payloads up to that size go to `on_payload`, up to `limit_bytes` wait to be sent."""
        self._stop_timeout()
        self._outlet.limit_bytes = limit_bytes
        self._splitter = FrameSplitter(frame_bytes_limit)
        self.on_payload = on_payload

    def send(self, frame: bytes) -> bool:
        """Send a whole frame; false if there is no room, or it is closed."""
        return not self.closing and self._outlet.send(frame)

    def say(self, payload: bytes) -> None:
        """Send a payload of the handshake."""
        self._outlet.send(frame(payload))

    def refuse(self, reason: str) -> None:
        """Have a reason logged, and close."""
        if not self.closing:
            self.refused(reason)
            self.close()

    def close(self) -> None:
        """Close at once; what was not sent is lost."""
        if not self.closing:
            self.closing = True
            self._outlet.close()
            self._transport.abortConnection()

    def close_when_sent(self) -> None:
        """Take nothing more, and close when everything has left."""
        if not self.closing:
            self.closing = True
            self._outlet.finish()

    @property
    def _transport(self) -> Any:
        return self.transport

    def _shake(self, payload: bytes) -> None:
        try:
            self.shake(payload)
        except Mistrusted as error:
            self.say(verdict(str(error)))
            self.refused(str(error))
            self.close_when_sent()
        except Refused as error:
            self.refused(f"the other side says: {error}")
            self.close()

    def _timed_out(self) -> None:
        self.refuse(f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        self._transport.abortConnection()  # also if it was being closed, and the other end does not read

    def _stop_timeout(self) -> None:
        if self._timeout is not None and self._timeout.active():
            self._timeout.cancel()


def address_of(text: str) -> tuple[str, int]:
    """Host and port of "host:port"; an IPv6 address may stand in brackets."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _tune(transport: Any) -> None:
    """Small frames leave at once, and a connection that is dead is noticed."""
    if hasattr(transport, "setTcpNoDelay"):
        transport.setTcpNoDelay(True)
    tcp = getattr(transport, "transport", transport)  # that of TLS, or itself
    handle = tcp.getHandle() if hasattr(tcp, "getHandle") else None
    if isinstance(handle, socket.socket) and handle.family in (socket.AF_INET, socket.AF_INET6):
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
