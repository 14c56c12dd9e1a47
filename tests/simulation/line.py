"""The connection between a client and a member: what the server takes for its transport, and the client's end of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.reference import NumberedConnection
from tests.simulation.world import Process, World
from znoded.jute.frames import FrameSplitter

FRAME_BYTES_LIMIT = 1 << 30


class Peer:
    """The address of a client."""

    host = "127.0.0.1"
    port = 50_000


class Line:
    """Bytes in order both ways. `frame(payload)` and `closed()` are called at the client's end.

    `stalled_until_s`: so long nothing arrives at the server. What the client sent before it gave the connection up may
    arrive even after that.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        member: Any,
        machine_number: int,
        number: int,
        frame: Callable[[bytes], None],
        closed: Callable[[], None],
    ) -> None:
        self.world = world
        self.process = process
        self.machine_number = machine_number
        self.connection = NumberedConnection(member, number)
        self.stalled_until_s = 0.0
        #: Nothing of what is sent either way arrives any more, and nobody is told.
        self.is_silent = False
        self.is_given_up = False
        self.touched: Callable[[], None] = lambda: None
        self._name = f"line {number}"
        self._frame = frame
        self._closed = closed
        self._splitter = FrameSplitter(FRAME_BYTES_LIMIT)
        self._is_closed = False
        self._is_paused = False
        self._inbox: deque[bytes] = deque()
        self._last_up_s = self._last_down_s = 0.0
        self._producer: Any = None
        self._is_blocked = False
        process.run(partial(self.connection.makeConnection, self))

    # ---- the client's end

    def send(self, data: bytes) -> None:
        """The client sends."""
        world = self.world
        delay_s = world.chance.uniform(0.0002, 0.002)
        arrival_s = max(world.now_s + delay_s, self._last_up_s, self.stalled_until_s)
        self._last_up_s = arrival_s
        parts = (data,)
        if len(data) > 1 and world.chance.random() < 0.05:
            cut = world.chance.randrange(1, len(data))
            parts = data[:cut], data[cut:]  # type: ignore[assignment]
        for part in parts:
            world.at_time(arrival_s, self._name, partial(self.process.run, partial(self._arrive, part)))

    def give_up(self) -> None:
        """The client closes its end; the server sees that behind all that was sent."""
        self.is_given_up = True
        arrival_s = max(self.world.now_s + 0.001, self._last_up_s, self.stalled_until_s)
        self.world.at_time(arrival_s, self._name, partial(self.process.run, self._lose))

    # ---- the network and the server's process

    def _arrive(self, data: bytes) -> None:
        if self._is_closed or self.is_silent:
            return
        if self._is_paused or self._inbox:
            self._inbox.append(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self.connection.dataReceived(data)
        self.touched()

    def _lose(self) -> None:
        if not self._is_closed and not self.is_silent:
            self._is_closed = True
            self.connection.connectionLost()

    def break_off(self) -> None:
        """The network breaks it: both ends see that."""
        self.world.at(0.0005, self._name, partial(self.process.run, self._lose))
        self.world.at(0.0005, self._name, self._close_client)

    def end(self, is_heard: bool) -> None:
        """The server's process ended."""
        self._is_closed = True
        if is_heard:
            self.world.at(self.world.chance.uniform(0.0002, 0.002), self._name, self._close_client)

    def block(self) -> None:
        """The client stops reading."""
        if not self._is_closed and self._producer is not None and not self._is_blocked:
            self._is_blocked = True
            self.process.run(self._producer.pauseProducing)

    def unblock(self) -> None:
        """The client reads again."""
        if self._is_blocked:
            self._is_blocked = False
            if not self._is_closed:
                self.process.run(self._unblock)

    def _unblock(self) -> None:
        if self._producer is not None:
            self._producer.resumeProducing()

    def _down(self, call: Callable[[], None]) -> None:
        """Something comes to the client's end, in order."""
        world = self.world
        arrival_s = max(world.now_s + world.chance.uniform(0.0002, 0.002), self._last_down_s)
        self._last_down_s = arrival_s
        world.at_time(arrival_s, self._name, call)

    def _deliver(self, data: bytes) -> None:
        if self.is_given_up or self.is_silent:
            return
        self.world.digest.update(data)
        for payload in self._splitter.feed(data):
            if not self.is_given_up:
                self._frame(payload)

    def _close_client(self) -> None:
        if not self.is_given_up and not self.is_silent:
            self.is_given_up = True
            self._closed()

    # ---- what the server takes for its transport

    def getPeer(self) -> Peer:
        return Peer()

    def write(self, data: bytes) -> None:
        if not self._is_closed:
            self._down(partial(self._deliver, data))

    def loseConnection(self) -> None:
        if not self._is_closed:
            self._down(self._close_client)
            self.process.at(0, self._lose, self._name)

    def abortConnection(self) -> None:
        """What was written may be lost."""
        if not self._is_closed:
            self.loseConnection()

    def pauseProducing(self) -> None:
        self._is_paused = True

    def resumeProducing(self) -> None:
        self._is_paused = False
        self.process.at(0, self._drain, self._name)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def _drain(self) -> None:
        while self._inbox and not self._is_paused and not self._is_closed:
            self._take(self._inbox.popleft())
