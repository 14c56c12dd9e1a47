"""A lock taken by the API and one taken by Kazoo, or by the recipes on Kazoo, on the same path: one holder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from tests.client.conftest import api_table
from tests.server_process import ServerProcess, free_port
from znoded.client import ApiError, Client
from znoded.client.asyncio_io import asyncio_client
from znoded.recipes import FencedLock

Taken = Callable[[], Any]


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, tuple[str, int]]]:
    """Where ZooKeeper clients reach it, and where its API is."""
    port = free_port()
    directory: Path = tmp_path_factory.mktemp("recipes")
    with ServerProcess(directory, f"tick_ms = 250\n{api_table(port)}") as server:
        yield server.address, ("127.0.0.1", port)


@pytest.fixture
def kazoo(member: tuple[str, tuple[str, int]]) -> Iterator[KazooClient]:
    client = KazooClient(member[0], timeout=10)
    client.start()
    yield client
    client.stop()
    client.close()


class PlainLock:
    """Kazoo's own lock, in the words of the other."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._lock = client.Lock(path)

    def try_acquire(self) -> PlainLock | None:
        return self if self._lock.acquire(blocking=False) else None

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("recipe", [FencedLock, PlainLock])
def test_there_is_one_holder(member: tuple[str, tuple[str, int]], kazoo: KazooClient, recipe: Any) -> None:
    path = f"/{uuid4().hex}"

    async def main() -> None:
        client: Client = asyncio_client([member[1]])
        async with await client.session() as session:
            lease = recipe(kazoo, path).try_acquire()
            assert lease is not None
            with pytest.raises(ApiError) as caught:
                await client.lock(session, path, timeout_s=0.3)
            assert caught.value.code == "lock_timeout"
            waiting = asyncio.create_task(client.lock(session, path))
            await asyncio.sleep(0.1)
            lease.release()
            held = await waiting
            assert await asyncio.to_thread(recipe(kazoo, path).try_acquire) is None
            await held.release()
            last = await asyncio.to_thread(recipe(kazoo, path).try_acquire)
            assert last is not None
            last.release()
        client.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_lock_delay_keeps_a_lock_whose_session_expired(
    member: tuple[str, tuple[str, int]], kazoo: KazooClient
) -> None:
    path = f"/{uuid4().hex}"
    kazoo.create(f"/zookeeper/lock_delay{path}", b"2000", makepath=True)

    async def main() -> None:
        client: Client = asyncio_client([member[1]])
        session = await client.session(timeout_ms=500)
        held = await client.lock(session, path)
        session._stop()  # as a process that is paused
        async with await client.session() as other:
            waiting = asyncio.create_task(client.lock(other, path))
            while await client.check_fence(path, held.token):
                await asyncio.sleep(0.05)
            assert not waiting.done()
            with pytest.raises(ApiError) as caught:
                await held.guard(client.txn().put(f"{path}-guarded", b"")).commit()
            assert caught.value.code == "session_expired"
            assert (await waiting).token > held.token
        client.close()

    asyncio.run(asyncio.wait_for(main(), 30))
