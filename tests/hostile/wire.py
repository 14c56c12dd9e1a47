"""Clients on real sockets: one that talks plainly, and an honest one that watches over its answers meanwhile."""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.jute.factory import frame, i4, i8, request, string
from tests.server.harness import create, get_data, set_data
from tests.server_process import ServerProcess
from znoded.jute.ops import Op
from znoded.jute.primitives import Reader

#: How long any answer may take; a busy machine is no failure, a server that stands still is.
ANSWER_TIMEOUT_S = 10.0


class Wire:
    """One connection."""

    def __init__(self, server: ServerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), ANSWER_TIMEOUT_S)
        self._received = b""

    def shake(self, timeout_ms: int = 10_000) -> bytes:
        """Open a session: the connect response, empty if the server closed instead."""
        self.send(frame(i4(0), i8(0), i4(timeout_ms), i8(0), string(bytes(16)), b"\0"))
        return self.receive()

    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        self.socket.sendall(data)

    def receive_exactly(self, size_bytes: int) -> bytes:
        """So many bytes, whatever frames they are. Raises OSError."""
        while len(self._received) < size_bytes:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._received += data
        data, self._received = self._received[:size_bytes], self._received[size_bytes:]
        return data

    def receive(self) -> bytes:
        """The next frame; empty if the server closed the connection."""
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return b""
            if not data:
                return b""
            self._received += data
        end = 4 + int.from_bytes(self._received[:4], "big")
        payload, self._received = self._received[4:end], self._received[end:]
        return payload

    def ask(self, data: bytes) -> tuple[int, int]:
        """Send a request: the xid and the error of the answer, (0, 0) if the server closed the connection."""
        self.send(data)
        payload = self.receive()
        if not payload:
            return 0, 0
        reader = Reader(payload)
        xid, _, error = reader.int(), reader.long(), reader.int()
        return xid, error

    @property
    def is_closed(self) -> bool:
        """Whether the server closed the connection; what it sent before is thrown away."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 20):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.socket.settimeout(ANSWER_TIMEOUT_S)
        return True

    def wait_until_closed(self) -> None:
        """Throw away what comes until the server closes. Raises TimeoutError."""
        with suppress(ConnectionResetError, BrokenPipeError):
            while self.socket.recv(1 << 20):
                pass

    def wait_until_cut_off(self) -> None:
        """Wait, without taking what came, until the server aborts the connection. Raises TimeoutError."""
        poll = select.poll()
        poll.register(self.socket, 0)  # an end is told in any case
        if not poll.poll(ANSWER_TIMEOUT_S * 1000):
            raise TimeoutError("the server did not cut the connection off")

    def close(self) -> None:
        """Break off."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HonestClient(threading.Thread):
    """Writes and reads its own node until told to stop. What went wrong is in `fault`."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(server)
        self._stopping = threading.Event()
        self.fault: BaseException | None = None
        self.rounds = 0
        self.slowest_s = 0.0
        assert self._wire.shake()
        auth = request(-4, Op.AUTH, i4(0), string(b"digest"), string(b"honest:secret"))
        assert self._wire.ask(auth) == (-4, 0)
        mine = i4(1) + i4(31) + string(b"auth") + string(b"")
        for path in (b"/honest", b"/honest/node"):
            assert self._wire.ask(request(1, Op.CREATE, string(path), string(b""), mine, i4(0)))[1] in (0, -110)

    def run(self) -> None:
        """Work until told to stop."""
        try:
            while not self._stopping.is_set():
                self._work()
        except BaseException as fault:
            self.fault = fault

    def _work(self) -> None:
        self.rounds += 1
        data = b"%d" % self.rounds
        began_s = time.monotonic()
        assert self._wire.ask(set_data(1, b"/honest/node", data)) == (1, 0)
        self._wire.send(get_data(2, b"/honest/node"))
        payload = self._wire.receive()
        assert payload.startswith(i4(2)), payload
        assert payload[16:].startswith(string(data))
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    def finish(self) -> None:
        """Stop working, and fail if anything was wrong."""
        self._stopping.set()
        self.join(2 * ANSWER_TIMEOUT_S)
        self._wire.close()
        if self.fault is not None:
            raise self.fault


@contextmanager
def unharmed(server: ServerProcess, slowest_s: float = 2.0, grown_bytes: int = 100 << 20) -> Iterator[HonestClient]:
    """Inside the block an honest client works; after it, all its answers were right, and none took long.

    The server's memory has not grown by more than `grown_bytes`, and its log holds no error.
    """
    before_bytes = anonymous_bytes(server)
    honest = HonestClient(server)
    honest.start()
    most_bytes = MostBytes(server)
    most_bytes.start()
    try:
        yield honest
    finally:
        most_bytes.finish()
        honest.finish()
    assert honest.rounds > 5
    assert honest.slowest_s < slowest_s
    assert most_bytes.most - before_bytes < grown_bytes
    assert_log_is_clean(server)


class MostBytes(threading.Thread):
    """Looks at the server's memory now and then."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._stopping = threading.Event()
        self.most = 0

    def run(self) -> None:
        """Look until told to stop."""
        while not self._stopping.wait(0.05):
            self.most = max(self.most, anonymous_bytes(self._server))

    def finish(self) -> None:
        """Look a last time."""
        self._stopping.set()
        self.join()
        self.most = max(self.most, anonymous_bytes(self._server))


def anonymous_bytes(server: ServerProcess) -> int:
    """The memory of the server that is its own and no file's."""
    match = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def assert_log_is_clean(server: ServerProcess) -> None:
    """The server met no error that it did not expect."""
    text = server.log_path.read_text(errors="replace")
    assert "Traceback" not in text
    assert "Unhandled" not in text


def log_lines(server: ServerProcess, part: str) -> list[str]:
    """The lines of the log that hold `part`."""
    return [line for line in server.log_path.read_text(errors="replace").splitlines() if part in line]


def make_node(server: ServerProcess, path: bytes, data: bytes = b"") -> None:
    """Create a node."""
    with Wire(server) as wire:
        assert wire.shake()
        assert wire.ask(create(1, path, data)) == (1, 0)
