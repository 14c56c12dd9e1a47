"""A small blocking ZooKeeper client of its own, so that nothing of the server checks the server."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

CREATE, EXISTS, GET_DATA, SET_DATA, GET_CHILDREN, MULTI = 1, 3, 4, 5, 8, 14
PERSISTENT, EPHEMERAL = 0, 1
NO_NODE = -101
NOTIFICATION_XID = -1
OPEN_ACL = struct.pack(">ii", 1, 31) + struct.pack(">i5si6s", 5, b"world", 6, b"anyone")
PATIENCE_S = 60.0


class Session(NamedTuple):
    """What it takes to come back to a session."""

    id: int
    password: bytes
    last_zxid: int


class Reply(NamedTuple):
    xid: int
    zxid: int
    error: int
    body: bytes


class RawClient:
    """One connection and its session. Raises `OSError` when the connection breaks."""

    def __init__(self, port: int, timeout_ms: int, session: Session = Session(0, bytes(16), 0)) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = self._socket.makefile("rb")
        self.zxid = session.last_zxid
        self._xid = 0
        request = struct.pack(">iqiq", 0, session.last_zxid, timeout_ms, session.id) + buffer(session.password) + b"\0"
        self._socket.sendall(buffer(request))
        _protocol, self.timeout_ms, self.id, _length, self.password = struct.unpack_from(">iiqi16s", self._frame())

    @property
    def session(self) -> Session:
        return Session(self.id, self.password, self.zxid)

    def send(self, op: int, body: bytes) -> None:
        self._xid += 1
        self._socket.sendall(buffer(struct.pack(">ii", self._xid, op) + body))

    def receive(self) -> Reply:
        frame = self._frame()
        xid, zxid, error = struct.unpack_from(">iqi", frame)
        reply = Reply(xid, zxid, error, frame[16:])
        if reply.xid != NOTIFICATION_XID:
            self.zxid = max(self.zxid, reply.zxid)
        return reply

    def call(self, op: int, body: bytes) -> Reply:
        self.send(op, body)
        return self.receive()

    def create(self, path: bytes, flags: int = PERSISTENT) -> None:
        reply = self.call(CREATE, create_body(path, b"", flags))
        assert reply.error == 0, (path, reply)

    def children(self, path: bytes) -> set[bytes]:
        reply = self.call(GET_CHILDREN, buffer(path) + b"\0")
        assert reply.error == 0, (path, reply)
        (count,) = struct.unpack_from(">i", reply.body)
        names, offset = set(), 4
        for _ in range(count):
            (length,) = struct.unpack_from(">i", reply.body, offset)
            names.add(reply.body[offset + 4 : offset + 4 + length])
            offset += 4 + length
        return names

    def data(self, path: bytes) -> bytes:
        reply = self.call(GET_DATA, buffer(path) + b"\0")
        assert reply.error == 0, (path, reply)
        (length,) = struct.unpack_from(">i", reply.body)
        return reply.body[4 : 4 + length]

    def owner(self, path: bytes) -> int | None:
        """The session that an ephemeral node belongs to, None when there is no node. Leaves a watch."""
        reply = self.call(EXISTS, buffer(path) + b"\1")
        if reply.error == NO_NODE:
            return None
        assert reply.error == 0, (path, reply)
        (owner,) = struct.unpack_from(">q", reply.body, 44)
        return int(owner)

    def close(self) -> None:
        """Close the connection; the session lives on until its timeout."""
        self._buffer.close()
        self._socket.close()

    def _frame(self) -> bytes:
        head = self._buffer.read(4)
        if len(head) < 4:
            raise ConnectionError("the server closed the connection")
        (length,) = struct.unpack(">i", head)
        frame = self._buffer.read(length)
        if len(frame) < length:
            raise ConnectionError("the connection broke within a frame")
        return frame


def buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def create_body(path: bytes, data: bytes, flags: int = PERSISTENT) -> bytes:
    return buffer(path) + buffer(data) + OPEN_ACL + struct.pack(">i", flags)


def set_data_body(path: bytes, data: bytes) -> bytes:
    return buffer(path) + buffer(data) + struct.pack(">i", -1)


def multi_body(*creates: bytes) -> bytes:
    parts = [struct.pack(">i?i", CREATE, False, -1) + create_body(path, b"") for path in creates]
    return b"".join(parts) + struct.pack(">i?i", -1, True, -1)
