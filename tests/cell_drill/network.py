"""The network between members, as proxies in front of their peer ports, so that the drill can cut it."""

from __future__ import annotations

import asyncio
import struct
from enum import Enum

from znoded.zab_raft.peers.handshake import Hello


class Cut(Enum):
    """How a network is cut: connections end and are refused, or nothing gets through and nobody is told."""

    REFUSED = "refused"
    SILENT = "silent"


class Network:
    """One proxy for each member. Who dials is told by the first words of a connection, so that pairs can be cut."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._cuts: dict[tuple[int, int], Cut] = {}
        self._links: set[_Link] = set()

    async def serve(self, member: int, port: int, behind_port: int) -> None:
        """Listen on `port` for what is to reach `member` at `behind_port`."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(lambda: _Link(self, member, behind_port).near, "127.0.0.1", port))

    def cut(self, pairs: list[tuple[int, int]], how: Cut) -> None:
        """Cut what the first member of each pair sends to the second."""
        self._cuts.update(dict.fromkeys(pairs, how))
        self._enforce()

    def heal(self) -> None:
        """Let everything through; what was held on the way arrives, as TCP sends it again."""
        self._cuts.clear()
        self._enforce()

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for link in list(self._links):
            link.abort()

    def cut_between(self, source: int, target: int) -> Cut | None:
        return self._cuts.get((source, target))

    def begun(self, link: _Link) -> None:
        self._links.add(link)

    def ended(self, link: _Link) -> None:
        self._links.discard(link)

    def _enforce(self) -> None:
        for link in list(self._links):
            link.enforce()


class _Link:
    """One connection through a proxy: `near` is the dialler's end, `far` leads to the member behind."""

    def __init__(self, network: Network, target: int, port: int) -> None:
        self.near = _End(self)
        self.far = _End(self)
        self.is_silent = False
        self._network = network
        self._source = 0
        self._target = target
        self._port = port
        self._hello = b""
        self._handshake: asyncio.Task[None] | None = None
        network.begun(self)

    def received(self, end: _End, data: bytes) -> None:
        if end is self.far:
            self.near.write(data)
        elif self.far.transport is not None:
            self.far.write(data)
        else:
            self._hello += data
            self._greeted()

    def _greeted(self) -> None:
        """The dialler says who it is before it is connected to anybody."""
        if self._source or len(self._hello) < 4:
            return
        (length,) = struct.unpack_from(">i", self._hello)
        if len(self._hello) < 4 + length:
            return
        self._source = Hello.decode(self._hello[4 : 4 + length]).identity.number
        self.enforce()

    def enforce(self) -> None:
        """Do to this connection what the network is to do to it now."""
        if not self._source:
            return
        cut = self._network.cut_between(self._source, self._target)
        if cut is Cut.REFUSED:
            self.abort()
            return
        self.is_silent = cut is Cut.SILENT
        self.near.read_or_not()
        self.far.read_or_not()
        if not self.is_silent and self._handshake is None:
            self._handshake = asyncio.create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, "127.0.0.1", self._port)
        except OSError:
            self.abort()
            return
        self.far.write(self._hello)
        if self.near.is_lost:
            self.far.close()

    def lost(self) -> None:
        """One end is gone; the other one hears of it, unless the network is silent."""
        if self.is_silent:
            return
        self.near.close()
        self.far.close()
        if self.near.is_lost and (self.far.is_lost or self.far.transport is None):
            self._network.ended(self)

    def abort(self) -> None:
        self._network.ended(self)
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()


class _End(asyncio.Protocol):
    """One end of a link, which is read from while the other end has room and the network lets through."""

    def __init__(self, link: _Link) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self._is_full = False
        self._link = link

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def read_or_not(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        other = self._link.far if self is self._link.near else self._link.near
        if self._link.is_silent or other._is_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        if self.is_lost or other.is_lost:
            self._link.lost()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.read_or_not()

    def data_received(self, data: bytes) -> None:
        self._link.received(self, data)

    def pause_writing(self) -> None:
        self._set_full(True)

    def resume_writing(self) -> None:
        self._set_full(False)

    def _set_full(self, is_full: bool) -> None:
        self._is_full = is_full
        other = self._link.far if self is self._link.near else self._link.near
        other.read_or_not()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._link.lost()
