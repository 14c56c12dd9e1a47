"""A transport in memory, between a connection and who speaks to it in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from znoded.jute.frames import FrameSplitter

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection

#: Replies are parsed up to this size, which none of a TXN of a frame's size gets near.
REPLY_BYTES = 1 << 30


class LocalTransport:
    """The transport of a connection without a socket.

    What the member says is heard in the reactor's next turn, not in the midst of it.
    """

    def __init__(
        self,
        reactor: Any,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
        resumed: Callable[[], None],
    ) -> None:
        """`received` takes the payload of a frame; `lost` is called once, `resumed` when `is_taking` is true again."""
        self._reactor = reactor
        self._frame_received = received
        self._lost = lost
        self._resumed = resumed
        self._frames = FrameSplitter(REPLY_BYTES)
        self._to_hear: list[bytes] = []
        self._is_closing = False
        self.connection: ClientConnection | None = None
        self.is_taking = True

    def connect(self, connection: ClientConnection) -> None:
        """Be the transport of `connection`."""
        self.connection = connection
        connection.makeConnection(self)  # type: ignore[no-untyped-call]

    def send(self, data: bytes) -> None:
        """What the member receives, at once."""
        if self.connection is not None and not self._is_closing:
            self.connection.dataReceived(data)

    def _hear(self) -> None:
        data, self._to_hear = b"".join(self._to_hear), []
        for payload in self._frames.feed(data):
            self._frame_received(payload)

    def _end(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.connectionLost()
            self._lost()

    # ---- what a connection asks of its transport

    def getPeer(self) -> Any:
        """It comes from nowhere: the connection takes this for the own machine."""
        return None

    def write(self, data: bytes) -> None:
        """What the member says."""
        if not self._to_hear:
            self._reactor.callLater(0, self._hear)
        self._to_hear.append(data)

    def loseConnection(self) -> None:
        """Close, behind what was written."""
        if not self._is_closing:
            self._is_closing = True
            self._reactor.callLater(0, self._end)

    abortConnection = loseConnection

    def pauseProducing(self) -> None:
        """The member takes no more for now."""
        self.is_taking = False

    def resumeProducing(self) -> None:
        """The member goes on."""
        self.is_taking = True
        self._reactor.callLater(0, self._resumed)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Nothing written here ever has to wait."""

    def unregisterProducer(self) -> None:
        """The same."""
