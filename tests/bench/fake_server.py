"""A tiny server of the client protocol that remembers what it was asked, to check the load driver's counts against."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

CREATE, DELETE, GET_DATA, SET_DATA, PING, AUTH, CLOSE_SESSION = 1, 2, 4, 5, 11, 100, -11
AUTH_XID, AUTH_FAILED = -4, -115
SERIALIZABLE_READS = bytes(4) + b"\0\0\0\x05reads" + b"\0\0\0\x0cserializable"
NO_NODE, NODE_EXISTS = -101, -110
STAT = bytes(68)


class FakeServer:
    """Keeps znodes in a dict and one-shot watches in a list. `requests` counts by op, `paths` are the znodes.

    `knows_reads`: sessions can ask for serializable reads.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: Counter[int] = Counter()
        self.sessions = 0
        self.knows_reads = True
        self.pinged = threading.Event()
        self.paths: dict[bytes, bytes] = {b"/": b""}
        self.watchers: list[socketserver.StreamRequestHandler] = []
        #: Added to the xid of each reply, to answer out of order.
        self.xid_shift = 0
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                fake.serve(self)

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._listener = Listener(("127.0.0.1", 0), Handler)
        self.port: int = self._listener.server_address[1]
        self._thread = threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def serve(self, connection: socketserver.StreamRequestHandler) -> None:
        self.read_frame(connection)
        with self.lock:
            self.sessions += 1
            self.send(connection, struct.pack(">iiqi16sb", 0, 30000, self.sessions, 16, bytes(16), 0))
        while payload := self.read_frame(connection):
            with self.lock:
                self.answer(connection, payload)

    @staticmethod
    def read_frame(connection: socketserver.StreamRequestHandler) -> bytes:
        header = connection.rfile.read(4)
        return connection.rfile.read(int.from_bytes(header, "big")) if header else b""

    @staticmethod
    def send(connection: socketserver.StreamRequestHandler, payload: bytes) -> None:
        connection.wfile.write(struct.pack(">i", len(payload)) + payload)

    def answer(self, connection: socketserver.StreamRequestHandler, payload: bytes) -> None:
        xid, op = struct.unpack_from(">ii", payload)
        self.requests[op] += 1
        if op == PING:
            self.pinged.set()
        if op == AUTH:
            assert payload == struct.pack(">ii", AUTH_XID, AUTH) + SERIALIZABLE_READS
            self.send(connection, struct.pack(">iqi", xid, 0, 0 if self.knows_reads else AUTH_FAILED))
            return
        error, body = (0, b"") if op in (PING, CLOSE_SESSION) else self.apply(connection, op, payload[8:])
        self.send(connection, struct.pack(">iqi", xid + self.xid_shift, 0, error) + (b"" if error else body))
        if op == SET_DATA:
            watchers, self.watchers = self.watchers, []
            for watcher in watchers:
                self.send(watcher, struct.pack(">iqi", -1, -1, 0) + bytes(12))

    def apply(self, connection: socketserver.StreamRequestHandler, op: int, record: bytes) -> tuple[int, bytes]:
        length = int.from_bytes(record[:4], "big")
        path, rest = record[4 : 4 + length], record[4 + length :]
        if op == CREATE:
            if path in self.paths:
                return NODE_EXISTS, b""
            if (path.rpartition(b"/")[0] or b"/") not in self.paths:
                return NO_NODE, b""
            self.paths[path] = rest[4 : 4 + int.from_bytes(rest[:4], "big")]
            return 0, record[: 4 + length]
        if path not in self.paths:
            return NO_NODE, b""
        if op == DELETE:
            del self.paths[path]
            return 0, b""
        if op == GET_DATA and rest[-1]:
            self.watchers.append(connection)
        return 0, STAT
