"""The connection to one other member: made, and made again when it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from znoded.zab_raft.peers.connection import DelayedCall
from znoded.zab_raft.peers.dialler import Dialled, Dialler
from znoded.zab_raft.peers.handshake import Purpose, Refused

log = Logger()

QUEUE_BYTES_LIMIT = 32 << 20
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
#: Nothing flows back on a connection for frames.
ANSWER_BYTES_LIMIT = 1024


class LinkEvents(Protocol):
    """What a link tells; never within a call to it."""

    def link_opened(self, raft_id: int) -> None:
        """Frames can be sent."""

    def link_lost(self, raft_id: int, by_other: bool) -> None:
        """What was sent last may be lost. It is being made again."""


class Backoff:
    """How long to wait before the next try: from 50 ms on, twice as long each time, up to a second, less up to half."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._pause_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause_s * (1 - self._random() / 2)

    def reset(self) -> None:
        self._pause_s = FIRST_PAUSE_S


class Link:
    """Frames to one member, in order. `address` is "host:port"."""

    def __init__(
        self,
        dialler: Dialler,
        raft_id: int,
        number: int,
        address: str,
        events: LinkEvents,
        random: Callable[[], float],
    ) -> None:
        self.number = number
        self.address = address
        self._dialler = dialler
        self._raft_id = raft_id
        self._events = events
        self._backoff = Backoff(random)
        self._connection: Dialled | None = None
        self._dialling: Deferred[Any] | None = None
        self._pause: DelayedCall | None = None
        self._opened_s = 0.0
        self._stopped = False
        self._reported_unreachable = False

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closing

    def start(self) -> None:
        """Dial, and go on until `stop`."""
        self._pause = None
        self._dialling = self._dialler.dial(Purpose.FRAMES, self._raft_id, self.number, self.address)
        self._dialling.addCallbacks(self._opened, self._failed)

    def hurry(self) -> None:
        """The member is known to be there: do not wait for the next try."""
        if self._pause is not None:
            self._pause.cancel()
            self._backoff.reset()
            self.start()

    def send(self, frame: bytes) -> bool:
        """False if there is no connection, or no room."""
        return self._connection is not None and self._connection.send(frame)

    def break_off(self) -> None:
        """Close the connection, and make it anew."""
        if self._connection is not None:
            self._connection.close()

    def stop(self) -> None:
        """Close for good; nothing is told from here on."""
        self._stopped = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self, connection: Dialled) -> None:
        self._dialling = None
        connection.open(QUEUE_BYTES_LIMIT, ANSWER_BYTES_LIMIT, _no_answer)
        connection.on_ended = self._lost
        self._connection = connection
        self._opened_s = self._dialler.reactor.seconds()
        self._reported_unreachable = False
        log.info("connected to member {number} at {address}", number=self.number, address=self.address)
        self._events.link_opened(self._raft_id)

    def _failed(self, failure: Failure) -> None:
        self._dialling = None
        if self._stopped:
            return
        if not self._reported_unreachable and not failure.check(Refused):
            self._reported_unreachable = True
            log.info(
                "no connection to member {number} at {address}: {why}; it is tried again",
                number=self.number,
                address=self.address,
                why=failure.getErrorMessage(),
            )
        self._try_again()

    def _lost(self, by_other: bool) -> None:
        self._connection = None
        if self._stopped:
            return
        if self._dialler.reactor.seconds() - self._opened_s >= LONGEST_PAUSE_S:
            self._backoff.reset()
        self._try_again()
        self._events.link_lost(self._raft_id, by_other)

    def _try_again(self) -> None:
        self._pause = self._dialler.reactor.callLater(self._backoff.next_s(), self.start)


def _no_answer(payload: bytes) -> None:
    """A later version may say something here; this one has no use for it."""
