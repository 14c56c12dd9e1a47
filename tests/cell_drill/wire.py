"""One connection of a client of the drill, many requests in flight. Nothing of the server checks the server."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.crash.raw_client import NOTIFICATION_XID, Reply, Session, buffer, create_body

PING, SYNC, DELETE, AUTH, SET_WATCHES2, ADD_WATCH, RECONFIG, CLOSE = 11, 9, 2, 100, 105, 106, 16, -11
PING_XID, AUTH_XID, SET_WATCHES_XID = -2, -4, -8
SEQUENTIAL, EPHEMERAL_SEQUENTIAL = 2, 3
PERSISTENT_RECURSIVE = 1
NODE_CREATED, NODE_DATA_CHANGED = 1, 3
NULL = struct.pack(">i", -1)
STAT = struct.Struct(">qqqqiiiqiiq")
_SPECIAL_XIDS = {PING: PING_XID, AUTH: AUTH_XID, SET_WATCHES2: SET_WATCHES_XID}


class Event(NamedTuple):
    """A watch event as the server sent it; `zxid` is that of the change."""

    zxid: int
    type: int
    path: bytes


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    children: int
    pzxid: int


class Connection(asyncio.Protocol):
    """Requests go out at once; replies come in their order. Everything fails with ConnectionError once it is lost."""

    def __init__(self, session: Session, timeout_ms: int, on_event: Callable[[Event], None]) -> None:
        self.session = session
        self.zxid = session.last_zxid
        self.timeout_ms = timeout_ms
        self.lost = False
        self.heard_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting: deque[tuple[int, float, asyncio.Future[Reply], Callable[[Reply], None] | None]] = deque()
        self._on_event = on_event
        self._xid = 0
        self._received = b""

    @classmethod
    async def open(
        cls, port: int, session: Session, timeout_ms: int, on_event: Callable[[Event], None], patience_s: float
    ) -> Connection:
        """Connect and be let in; `timeout_ms` and the session's id are 0 behind that if the session has expired.

        Raises OSError, TimeoutError among others.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patience_s):
            transport, connection = await loop.create_connection(
                lambda: cls(session, timeout_ms, on_event), "127.0.0.1", port
            )
            try:
                await connection._shake_hands(transport)
            except BaseException:
                transport.abort()
                raise
        return connection

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        session = self.session
        request = struct.pack(">iqiq", 0, session.last_zxid, self.timeout_ms, session.id) + buffer(session.password)
        transport.write(buffer(request + b"\0"))
        _, self.timeout_ms, session_id, _, password = struct.unpack_from(">iiqi16s", await self._opened)
        self.session = Session(session_id, password, session.last_zxid)

    def request(
        self, op: int, body: bytes = b"", on_reply: Callable[[Reply], None] | None = None
    ) -> asyncio.Future[Reply]:
        """Send a request. `on_reply` is called when its reply is read, before anything that comes behind it."""
        reply: asyncio.Future[Reply] = self._loop.create_future()
        if self.lost:
            _fail(reply)
            return reply
        xid = _SPECIAL_XIDS.get(op)
        if xid is None:
            self._xid += 1
            xid = self._xid
        self._waiting.append((xid, self._loop.time(), reply, on_reply))
        self._transport.write(buffer(struct.pack(">ii", xid, op) + body))
        return reply

    @property
    def silent_s(self) -> float:
        """For how long the oldest request has waited."""
        return self._loop.time() - self._waiting[0][1] if self._waiting else 0.0

    def abort(self) -> None:
        self._transport.abort()
        self._lose()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        position = 0
        while len(data) >= position + 4:
            (length,) = struct.unpack_from(">i", data, position)
            if len(data) < position + 4 + length:
                break
            self._frame(data[position + 4 : position + 4 + length])
            position += 4 + length
        self._received = data[position:]

    def _frame(self, frame: bytes) -> None:
        self.heard_s = self._loop.time()
        if not self._opened.done():
            self._opened.set_result(frame)
            return
        xid, zxid, error = struct.unpack_from(">iqi", frame)
        if xid == NOTIFICATION_XID:
            event_type, _, length = struct.unpack_from(">iii", frame, 16)
            self._on_event(Event(zxid, event_type, frame[28 : 28 + length]))
            return
        expected, _, reply, on_reply = self._waiting.popleft()
        assert xid == expected, f"the reply to {xid} came in the place of that to {expected}"
        self.zxid = max(self.zxid, zxid)
        answer = Reply(xid, zxid, error, frame[16:])
        if on_reply is not None:
            on_reply(answer)
        if not reply.done():
            reply.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()

    def _lose(self) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, deque()
        futures: list[asyncio.Future[Any]] = [self._opened, *(reply for _, _, reply, _ in waiting)]
        for future in futures:
            if not future.done():
                _fail(future)


def _fail(future: asyncio.Future[Any]) -> None:
    future.set_exception(ConnectionError("the connection is lost"))
    future.exception()  # nobody has to wait for it


def path_body(path: bytes, watch: bool = False) -> bytes:
    return buffer(path) + bytes([watch])


def delete_body(path: bytes) -> bytes:
    return buffer(path) + struct.pack(">i", -1)


def sequential_body(path: bytes, data: bytes, flags: int) -> bytes:
    return create_body(path, data, flags)


def set_watches_body(zxid: int, data_paths: list[bytes], recursive_paths: list[bytes]) -> bytes:
    lists = [data_paths, [], [], [], recursive_paths]
    return struct.pack(">q", zxid) + b"".join(strings(paths) for paths in lists)


def reconfig_body(joining: bytes, leaving: bytes) -> bytes:
    """Any version; what is empty is sent as null."""
    parts = [buffer(part) if part else NULL for part in (joining, leaving)]
    return b"".join(parts) + NULL + struct.pack(">q", -1)


def auth_body(scheme: bytes, credential: bytes) -> bytes:
    return struct.pack(">i", 0) + buffer(scheme) + buffer(credential)


def strings(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(map(buffer, items))


def data_of(body: bytes) -> tuple[bytes, Stat]:
    """What the reply to a getData holds."""
    (length,) = struct.unpack_from(">i", body)
    return body[4 : 4 + length], Stat._make(STAT.unpack_from(body, 4 + length))


def names_of(body: bytes) -> list[bytes]:
    """What the reply to a getChildren holds."""
    (count,) = struct.unpack_from(">i", body)
    names, offset = [], 4
    for _ in range(count):
        (length,) = struct.unpack_from(">i", body, offset)
        names.append(body[offset + 4 : offset + 4 + length])
        offset += 4 + length
    return names


def stat_of(body: bytes) -> Stat:
    """What the reply to a setData holds."""
    return Stat._make(STAT.unpack(body))
