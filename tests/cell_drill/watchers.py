"""Clients that watch: no event may be missing, come twice, or come behind a reply that shows its change."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Mapping

from tests.cell_drill.client import Client
from tests.cell_drill.wire import (
    ADD_WATCH,
    NODE_CREATED,
    NODE_DATA_CHANGED,
    PERSISTENT_RECURSIVE,
    SET_WATCHES2,
    Connection,
    Event,
    data_of,
    path_body,
    set_watches_body,
)
from tests.crash.raw_client import GET_DATA, Reply, buffer

SETTLE_S = 10.0
POLL_S = 0.05
READ_S = 0.02


class DataWatcher:
    """Watches registers with one-shot watches: it reads one again whenever told that it has changed, and then only.

    So one event lost leaves it with an old version for ever. `failure` is set when a reply showed a change first.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.failure = ""
        self.events = 0
        self._stale: set[bytes] = set()
        self._watched: dict[bytes, int] = {}
        client.on_event = self._event
        client.on_open = self._opened

    def begin(self, paths: Collection[bytes]) -> None:
        self.events = 0
        self._watched.clear()
        self._stale = set(paths)

    async def work(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                await self.step()
            except ConnectionError:
                continue
            await asyncio.sleep(READ_S)

    async def step(self) -> None:
        """Read and watch one that has changed, or look at another one."""
        if self._stale:
            path = random.choice(list(self._stale))
            await self.client.call(GET_DATA, path_body(path, watch=True), lambda reply: self._read(path, reply))
        elif self._watched:
            path = random.choice(list(self._watched))
            await self.client.call(GET_DATA, path_body(path), lambda reply: self._looked(path, reply))

    async def settle(self, versions: Mapping[bytes, int]) -> None:
        """Nobody writes any more: soon all watched versions have to be these."""
        deadline_s = asyncio.get_running_loop().time() + SETTLE_S
        while self._watched != versions and asyncio.get_running_loop().time() < deadline_s:
            try:
                await self.step()
            except ConnectionError:
                pass
            await asyncio.sleep(READ_S)
        assert not self.failure, self.failure
        assert self._watched == versions, f"{self.client.name} missed an event: {self._watched} instead of {versions}"

    def end(self) -> None:
        self._watched.clear()
        self._stale.clear()

    def _read(self, path: bytes, reply: Reply) -> None:
        assert reply.error == 0, f"a read of {path!r} was answered with error {reply.error}"
        if path in self._stale:
            self._stale.discard(path)
            self._watched[path] = data_of(reply.body)[1].version

    def _looked(self, path: bytes, reply: Reply) -> None:
        version = data_of(reply.body)[1].version
        if path in self._watched and version != self._watched[path]:
            self.failure = f"{self.client.name} saw {path!r} at version {version} before the event of its change"

    def _event(self, event: Event) -> None:
        if event.type == NODE_DATA_CHANGED and self._watched.pop(event.path, None) is not None:
            self.events += 1
            self._stale.add(event.path)

    def _opened(self, connection: Connection) -> None:
        if self._watched:
            connection.request(SET_WATCHES2, set_watches_body(connection.zxid, list(self._watched), []))


class FolderWatcher:
    """Has a persistent recursive watch on a folder and counts every change below it once.

    `failure` is set when events come out of order, or anew after a reply that was behind them.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.failure = ""
        self._folder = b""
        self._counts: Counter[tuple[int, bytes]] = Counter()
        self._zxid = 0
        self._caught_up_zxid = 0
        self._counted: set[tuple[int, int, bytes]] = set()
        client.on_event = self._event
        client.on_open = self._opened

    @property
    def events(self) -> int:
        return self._counts.total()

    async def begin(self, folder: bytes) -> None:
        self._counts.clear()
        self._counted.clear()
        self._folder = folder
        reply = await self.client.insist(ADD_WATCH, buffer(folder) + PERSISTENT_RECURSIVE.to_bytes(4, "big"))
        assert reply.error == 0, f"addWatch was answered with error {reply.error}"

    async def work(self, stopping: asyncio.Event) -> None:
        """Read now and then, as clients do: only replies tell a client what it has seen."""
        while not stopping.is_set():
            try:
                await self.client.call(GET_DATA, path_body(self._folder))
            except ConnectionError:
                continue
            await asyncio.sleep(POLL_S)

    async def settle(self, created: Collection[bytes], versions: Mapping[bytes, int]) -> None:
        """Nobody writes any more: soon all that is there must have been told."""
        deadline_s = asyncio.get_running_loop().time() + SETTLE_S
        while (missing := self._missing(created, versions)) and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(POLL_S)
        assert not self.failure, self.failure
        assert not missing, f"{self.client.name}: {len(missing)} event counts are wrong, among them {missing[:5]}"

    def end(self) -> None:
        """The watch stays with the connection; what it tells from now on is nobody's."""
        self._folder = b""

    def _missing(self, created: Collection[bytes], versions: Mapping[bytes, int]) -> list[tuple[bytes, int, int]]:
        told = self._counts
        wanted = {(NODE_CREATED, path): 1 for path in created}
        wanted |= {(NODE_DATA_CHANGED, path): version for path, version in versions.items()}
        return [(key[1], told[key], count) for key, count in wanted.items() if told[key] != count]

    def _event(self, event: Event) -> None:
        if not self._folder or not event.path.startswith(self._folder + b"/"):
            return
        change = (event.zxid, event.type, event.path)
        if event.zxid < self._zxid:
            self.failure = f"{self.client.name}: {change} came behind an event of zxid {self._zxid}"
        if event.zxid <= self._caught_up_zxid:
            self.failure = f"{self.client.name}: {change} came again though {self._caught_up_zxid} was seen"
        self._zxid = event.zxid
        if change not in self._counted:
            self._counted.add(change)
            self._counts[event.type, event.path] += 1

    def _opened(self, connection: Connection) -> None:
        self._zxid, self._caught_up_zxid = 0, connection.zxid
        if self._folder:
            connection.request(SET_WATCHES2, set_watches_body(connection.zxid, [], [self._folder]))
