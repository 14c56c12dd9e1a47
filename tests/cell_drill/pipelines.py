"""Clients with many requests in flight: what was done of them is always the first n, also across members."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from tests.cell_drill.client import Client
from tests.cell_drill.gaps import Acknowledgements
from tests.cell_drill.wire import Connection, data_of, names_of, path_body
from tests.crash.raw_client import CREATE, GET_CHILDREN, GET_DATA, SET_DATA, Reply, create_body, set_data_body

IN_FLIGHT = 16
BEFORE_ANY = b"-1"
PAUSE_S = 0.008


class Pipeline:
    """Request number n creates a znode, writes the counter, or reads what the request before it wrote there."""

    def __init__(self, client: Client, acknowledgements: Acknowledgements) -> None:
        self.client = client
        self.folder = b""
        self.sent = 0
        self.acknowledged = 0
        self._counter = b""
        self._acknowledgements = acknowledgements

    async def begin(self, folder: bytes) -> None:
        """Start anew in a folder, which is made."""
        self.folder, self._counter = folder, folder + b"-counter"
        self.sent = self.acknowledged = 0
        for path, data in ((self.folder, b""), (self._counter, BEFORE_ANY)):
            await self.client.insist(CREATE, create_body(path, data))

    async def work(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            connection = await self.client.connection()
            try:
                await self._settle(connection)
                await self._stream(connection, stopping)
            except ConnectionError:
                continue

    async def _settle(self, connection: Connection) -> None:
        """Find out how many of the requests without a reply took effect; no other of them may do so any more."""
        children, counter = await asyncio.gather(
            connection.request(GET_CHILDREN, path_body(self.folder)),
            connection.request(GET_DATA, path_body(self._counter)),
        )
        self.sent = self.acknowledged = self.done(names_of(children.body), data_of(counter.body)[0])

    def done(self, names: list[bytes], counter: bytes) -> int:
        """How many requests led to this state. Raises AssertionError if no possible number did."""
        found = {int(name) for name in names}
        for number in range(self.sent, self.acknowledged - 1, -1):
            if counter == counter_after(number) and found == set(range(1, number, 4)):
                return number
        raise AssertionError(
            f"{self.folder!r}: {self.acknowledged} of {self.sent} requests acknowledged, but there are {len(found)} "
            f"znodes and the counter is {counter!r}: the first requests, and no others, must have taken effect"
        )

    async def _stream(self, connection: Connection, stopping: asyncio.Event) -> None:
        in_flight: deque[tuple[int, asyncio.Future[Reply]]] = deque()
        while in_flight or not stopping.is_set():
            while len(in_flight) < IN_FLIGHT and not stopping.is_set():
                in_flight.append((self.sent, self._send(connection, self.sent)))
                self.sent += 1
            number, reply = in_flight.popleft()
            self._check(number, await reply)
            self.acknowledged += 1
            if number % IN_FLIGHT == 0:
                await asyncio.sleep(PAUSE_S * random.random())

    def _send(self, connection: Connection, number: int) -> asyncio.Future[Reply]:
        if number % 4 == 1:
            return connection.request(CREATE, create_body(self.folder + b"/%d" % number, b"x" * 100))
        if number % 4 == 3:
            return connection.request(GET_DATA, path_body(self._counter))
        return connection.request(SET_DATA, set_data_body(self._counter, b"%d" % number))

    def _check(self, number: int, reply: Reply) -> None:
        assert reply.error == 0, f"{self.folder!r}: request {number} was answered with error {reply.error}"
        if number % 4 == 3:
            data, _ = data_of(reply.body)
            assert data == b"%d" % (number - 1), f"{self.folder!r}: read {data!r} behind the write of {number - 1}"
        else:
            self._acknowledgements.add()


def counter_after(requests: int) -> bytes:
    """What the counter holds after so many requests."""
    last = requests - 1
    return b"%d" % (last - last % 2) if requests else BEFORE_ANY
