"""The client under asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from znoded.client.client import Client
from znoded.client.io import is_readable, keep_alive

T = TypeVar("T")

READ_BYTES = 256 * 1024


class AsyncioStream:
    """A connection of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Some bytes; none when the peer closed it."""
        return await self._reader.read(READ_BYTES)

    async def write(self, data: bytes) -> None:
        """Send all of them."""
        self._writer.write(data)
        await self._writer.drain()

    def is_closed(self) -> bool:
        """Whether the peer closed it."""
        return self._writer.is_closing() or is_readable(self._writer.get_extra_info("socket").fileno())

    def close(self) -> None:
        """Give it up."""
        self._writer.close()


class AsyncioIo:
    """The running event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> AsyncioStream:
        """A connection."""
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        keep_alive(writer.get_extra_info("socket").fileno())
        return AsyncioStream(reader, writer)

    async def sleep(self, time_s: float) -> None:
        """Return after so long."""
        await asyncio.sleep(time_s)

    async def within(self, timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            return await work

    def now_s(self) -> float:
        """The loop's clock."""
        return asyncio.get_running_loop().time()

    def spawn(self, work: Coroutine[Any, Any, None]) -> Callable[[], None]:
        """Run it beside; what is returned cancels it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself keeps no hold of it
        task.add_done_callback(self._tasks.discard)

        def cancel() -> None:
            if task is not asyncio.current_task():
                task.cancel()

        return cancel


def asyncio_client(
    members: Sequence[tuple[str, int]],
    *,
    user: tuple[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    patience_s: float = 30.0,
) -> Client:
    """A client for coroutines of asyncio; see `Client` for the parameters."""
    return Client(AsyncioIo(), members, user=user, tls=tls, patience_s=patience_s)
