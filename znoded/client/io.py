"""What the client asks of the program that it runs in. Everything else of it is the same under any event loop."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: A connection on which nothing comes for 10 s is asked whether its other end is there, three times 5 s apart. So who
#: waits for long at a member that vanished without a word asks another one.
KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class Stream(Protocol):
    """A connection. Closing it more than once does no harm."""

    async def read(self) -> bytes:
        """Some bytes; none when the peer closed it. Raises OSError."""

    async def write(self, data: bytes) -> None:
        """Send all of them. Raises OSError."""

    def is_closed(self) -> bool:
        """Whether the peer closed it, as far as is known here; asked while nothing is to come."""

    def close(self) -> None:
        """Give it up."""


class Io(Protocol):
    """An event loop. Its awaitables are those that its own coroutines can await."""

    async def connect(self, host: str, port: int, tls: Any) -> Stream:
        """A connection; with TLS if `tls` is not None (what that is, each loop says). Raises OSError."""

    async def sleep(self, time_s: float) -> None:
        """Return after so long."""

    async def within(self, timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Raises TimeoutError, and cancels it, if there is none in time."""

    def now_s(self) -> float:
        """A monotonic clock."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> Callable[[], None]:
        """Run it beside; what is returned cancels it."""


def keep_alive(socket_fd: int) -> None:
    """Have the system look whether the other end of a connection is there, while nothing comes."""
    with socket.socket(fileno=os.dup(socket_fd)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):  # elsewhere it is the system's own time
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_readable(socket_fd: int) -> bool:
    """Whether bytes or the end are there to be read: asked of the system, as the event loop may not have looked yet."""
    poll = select.poll()
    poll.register(socket_fd, select.POLLIN)
    return bool(poll.poll(0))
