"""A proxy between a client and its server, which cuts, stalls, and loses answers on demand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

from tests.server_process import free_port

_HEADER = struct.Struct(">iii")  # the length of the frame, the xid, the op


class Proxy:
    """Clients connect to `address`. As a context manager it ends with the block."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._goes = threading.Event()
        self._goes.set()
        self._is_cut = False
        self._op_to_lose: int | None = None
        self.lost_answer = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections, and those that are made until `mend`."""
        self._is_cut = True
        self._close_all()

    def stall(self) -> None:
        """Let nothing through until `mend`, and tell nobody."""
        self._goes.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._goes.set()

    def lose_answer_to(self, op: int) -> None:
        """Pass the next request of this kind on, and end its connection before the answer."""
        self._op_to_lose = op
        self.lost_answer.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_cut = True
        self._goes.set()
        self._listener.close()
        self._close_all()

    def _close_all(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [near, far]
                for source, target, is_request in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pass, args=(source, target, is_request), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._goes.wait()
                loses = is_request and len(data) >= _HEADER.size and _HEADER.unpack_from(data)[2] == self._op_to_lose
                if loses:
                    with contextlib.suppress(OSError):
                        source.shutdown(socket.SHUT_RDWR)
                    self._op_to_lose = None
                target.sendall(data)
                if loses:
                    self.lost_answer.set()
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.close()
