"""The client and a cell of three: it goes on wherever a member is, and misses nothing."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.conftest import ApiCell
from znoded.client import ApiError, Client, Events, Unavailable
from znoded.client.asyncio_io import asyncio_client

TIMEOUT_S = 60.0


async def put_until_done(client: Client, key: str, value: bytes) -> None:
    """A put that may be repeated: the value is its own."""
    while True:
        try:
            await client.put(key, value, parents=True)
        except Unavailable:
            continue
        except ApiError as error:
            if error.code != "outcome_unknown":
                raise
            continue
        return


def test_every_member_serves_sessions_locks_and_writes_of_all(api_cell: ApiCell) -> None:
    async def main() -> None:
        clients = [asyncio_client([address]) for address in api_cell.addresses]
        await clients[0].put("/a", b"1")
        for client in clients:
            item = await client.get("/a")
            assert item is not None
            assert item.value == b"1"
        session = await clients[0].session()
        for client in clients:
            await client.call("session/keepalive", {"session": session.secret})
        held = await clients[1].lock(session, "/lock")
        for client in clients:
            assert await client.check_fence("/lock", held.token)
            with pytest.raises(ApiError):
                await client.lock(session, "/lock", timeout_s=0.1)
        await session.close()
        assert not await clients[2].check_fence("/lock", held.token)
        for client in clients:
            client.close()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_a_watch_and_a_session_outlive_the_leader(api_cell: ApiCell) -> None:
    async def main() -> None:
        client, watcher = asyncio_client(api_cell.addresses), asyncio_client(api_cell.addresses)
        start = await client.put("/a", b"")
        told: list[tuple[int, bytes | None]] = []

        async def follow() -> None:
            async for line in watcher.watch(key="/a", after=start):
                if isinstance(line, Events):
                    told.extend((line.revision, event.value) for event in line.events)

        following = asyncio.create_task(follow())
        session = await client.session(timeout_ms=5_000)
        held = await client.lock(session, "/lock")
        leader = await asyncio.to_thread(api_cell.cell.leader)
        for number in range(20):
            await put_until_done(client, "/a", b"%d" % number)
            if number == 5:
                await asyncio.to_thread(leader.kill)
        await put_until_done(client, "/a", b"last")
        while not told or told[-1][1] != b"last":
            await asyncio.sleep(0.05)
        following.cancel()
        revisions = [revision for revision, _ in told]
        assert revisions == sorted(set(revisions)), "a change was told twice or out of order"
        assert list(dict.fromkeys(value for _, value in told)) == [*(b"%d" % number for number in range(20)), b"last"]
        assert await client.check_fence("/lock", held.token)
        held.check()
        await session.close()
        client.close()
        watcher.close()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
