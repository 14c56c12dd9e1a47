"""A client that keeps its session: it pings, and when its connection is lost or silent it goes to another member."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from tests.cell_drill.wire import AUTH, CLOSE, PING, Connection, Event, auth_body
from tests.crash.raw_client import Reply, Session

TIMEOUT_MS = 10_000
PATIENCE_S = 1.5
CONNECT_PATIENCE_S = 3.0
PING_INTERVAL_S = 0.5
WATCH_INTERVAL_S = 0.05
PAUSE_BETWEEN_MEMBERS_S = 0.03
ALL_SEEN = Session(0, bytes(16), 0)


class Expired(AssertionError):
    """A session that pinged is gone."""


class Client:
    """One session. `ports` are those of all members; it begins with the one at `first`.

    `on_open` is called with each new connection before anybody else uses it, `on_event` with each watch event.
    """

    def __init__(self, name: str, ports: Sequence[int], first: int = 0, patience_s: float = PATIENCE_S) -> None:
        self.name = name
        self.session = ALL_SEEN
        self.timeout_ms = TIMEOUT_MS
        self.on_open: Callable[[Connection], None] = lambda connection: None
        self.on_event: Callable[[Event], None] = lambda event: None
        self.reconnects = 0
        self._ports = ports
        self._port = ports[first % len(ports)]
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._opened = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once the session is there."""
        self._keeper = asyncio.create_task(self._keep(), name=self.name)
        await self.connection()

    async def stop(self, close_session: bool = True) -> None:
        """Leave. Without `close_session` the session is left to its timeout."""
        assert self._keeper is not None
        connection = self._connection
        if close_session and connection is not None and not self._keeper.done():
            try:
                await asyncio.wait_for(connection.request(CLOSE), PATIENCE_S)
            except (OSError, TimeoutError):
                pass
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        if self._connection is not None:
            self._connection.abort()

    def wander(self) -> None:
        """Go to some member, without a word to the one that served until now."""
        if self._connection is not None:
            self._connection.abort()

    @property
    def failure(self) -> BaseException | None:
        """Why the session could not be kept, if so."""
        keeper = self._keeper
        return keeper.exception() if keeper is not None and keeper.done() and not keeper.cancelled() else None

    async def connection(self) -> Connection:
        """The open connection, as soon as there is one. Raises what made the client give up."""
        while self._connection is None or self._connection.lost:
            self._opened.clear()
            assert self._keeper is not None
            opened = asyncio.create_task(self._opened.wait())
            await asyncio.wait([opened, self._keeper], return_when=asyncio.FIRST_COMPLETED)
            opened.cancel()
            if self._keeper.done():
                raise self.failure or asyncio.CancelledError
        return self._connection

    async def call(self, op: int, body: bytes, on_reply: Callable[[Reply], None] | None = None) -> Reply:
        """One request. Raises ConnectionError when its outcome is unknown."""
        connection = await self.connection()
        return await connection.request(op, body, on_reply)

    async def insist(self, op: int, body: bytes) -> Reply:
        """One request that may be made again."""
        while True:
            try:
                return await self.call(op, body)
            except ConnectionError:
                continue

    async def _keep(self) -> None:
        heard_s = asyncio.get_running_loop().time()
        while True:
            connection = await self._open(heard_s)
            if connection is None:
                await asyncio.sleep(PAUSE_BETWEEN_MEMBERS_S * random.random())
                continue
            self._connection = connection
            self._opened.set()
            await self._attend(connection)
            heard_s = connection.heard_s
            self.session = connection.session._replace(last_zxid=connection.zxid)
            self.reconnects += 1

    async def _open(self, heard_s: float) -> Connection | None:
        port, self._port = self._port, random.choice(self._ports)
        try:
            connection = await Connection.open(
                port, self.session, self.timeout_ms, lambda event: self.on_event(event), CONNECT_PATIENCE_S
            )
        except (OSError, TimeoutError):
            return None
        if not connection.session.id:
            silent_s = asyncio.get_running_loop().time() - heard_s
            raise Expired(
                f"{self.name}: session {self.session.id:#x} expired at {port} after {silent_s:.1f} s of silence"
            )
        self.session = connection.session
        self.on_open(connection)
        return connection

    async def _attend(self, connection: Connection) -> None:
        """Ping until the connection is lost, or has been silent for too long."""
        loop = asyncio.get_running_loop()
        pinged_s = loop.time()
        while not connection.lost:
            if loop.time() - pinged_s > PING_INTERVAL_S:
                connection.request(PING)
                pinged_s = loop.time()
            await asyncio.sleep(WATCH_INTERVAL_S)
            if connection.silent_s > self._patience_s:
                connection.abort()


def authenticate(client: Client, credential: bytes) -> None:
    """Have every connection of `client` add this digest identity."""

    def add(connection: Connection) -> None:
        connection.request(AUTH, auth_body(b"digest", credential))

    client.on_open = add
