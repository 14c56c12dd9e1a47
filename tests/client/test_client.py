"""The client under asyncio, against a running member."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest

from tests.server_process import free_port
from znoded.client import ApiError, Client, Events, LockLost, Progress, Unavailable
from znoded.client.asyncio_io import asyncio_client
from znoded.client.io import KEEP_ALIVE

Address = tuple[str, int]
TIMEOUT_S = 30.0


@pytest.fixture
def root() -> str:
    """A key of its own for each test."""
    return f"/{uuid4().hex}"


@pytest.fixture
def run(address: Address) -> Callable[[Callable[[Client], Coroutine[Any, Any, None]]], None]:
    """Runs a coroutine function with a client."""

    def run_with_client(work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            client = asyncio_client([address])
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await work(client)
            finally:
                client.close()

        asyncio.run(main())

    return run_with_client


Run = Callable[[Callable[[Client], Awaitable[None]]], None]


def test_keys_are_put_got_and_deleted(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        assert await client.get(root) is None
        revision = await client.put(root, b"\x00\xff")
        item = await client.get(root)
        assert item is not None
        assert (item.value, item.create_revision, item.session) == (b"\x00\xff", revision, None)
        await client.put(root, b"2")
        past = await client.get(root, revision=revision)
        assert past is not None
        assert past.value == b"\x00\xff"
        await client.delete(root, version=1)
        assert await client.get(root, serializable=True) is None
        with pytest.raises(ApiError) as caught:
            await client.delete(root)
        assert caught.value.code == "no_such_key"

    run(work)


def test_a_range_is_read_as_of_one_revision(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        for name in "abc":
            await client.put(f"{root}/{name}", name.encode(), parents=True)
        page = await client.range(root, limit=2)
        assert [item.key for item in page.items] == [root, f"{root}/a"]
        assert page.more
        everything = await client.all(root)
        assert [item.value for item in everything.items] == [b"", b"a", b"b", b"c"]

    run(work)


def test_a_transaction_is_put_together(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        made = await client.txn().when_absent(root).create(root, b"1").otherwise().get(root).commit()
        assert made.succeeded
        again = await client.txn().when_absent(root).create(root, b"2").otherwise().get(root).commit()
        assert not again.succeeded
        ((key, item),) = again.results
        assert item is not None
        assert (key, item.value) == (root, b"1")
        third = await client.txn().when_value(root, "=", b"1").when_version(root, "<", 5).set(root, b"3", 0).commit()
        assert third.succeeded
        assert third.revision > made.revision

    run(work)


def test_a_watch_tells_everything_once_whatever_breaks(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        start = await client.put(root, b"")
        told: list[bytes | None] = []

        async def follow() -> None:
            async for line in client.watch(key=root, after=start):
                if isinstance(line, Events):
                    told.extend(event.value for event in line.events)

        following = asyncio.create_task(follow())
        wanted = [b"%d" % number for number in range(30)]
        for number, value in enumerate(wanted):
            await client.put(root, value)
            if number % 10 == 5:
                client.close()  # which has no request under way
                break_streams()
        while len(told) < len(wanted):
            await asyncio.sleep(0.01)
        following.cancel()
        assert told == wanted

    run(work)


def break_streams() -> None:
    """Close the sockets of all connections of this process's event loop."""
    loop = asyncio.get_running_loop()
    for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
        if not transport.is_closing():
            transport.abort()


def test_a_watch_begins_with_a_mark(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        async for line in client.watch(prefix=root):
            assert isinstance(line, Progress)
            break
        with pytest.raises(ApiError) as caught:
            async for _ in client.watch(key=root, after=(1 << 63) - 1):
                pass
        assert caught.value.code == "future_revision"

    run(work)


def test_a_lock_has_a_token_that_guards_writes(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        lock, data = f"{root}/lock", f"{root}/data"
        async with await client.session() as session:
            async with await client.lock(session, lock) as held:
                held.check()
                assert await client.check_fence(lock, held.token)
                assert (await held.guard(client.txn().put(data, b"1")).commit()).succeeded
            assert not await client.check_fence(lock, held.token)
            assert not (await held.guard(client.txn().put(data, b"2")).commit()).succeeded
            assert not await held.release()

    run(work)


def test_a_lock_excludes_and_is_fair(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        async with await client.session() as session:
            tokens: list[int] = []

            async def take() -> None:
                async with await client.lock(session, root) as held:
                    tokens.append(held.token)
                    await asyncio.sleep(0.01)
                    assert tokens[-1] == held.token

            await asyncio.gather(*(take() for _ in range(5)))
            assert tokens == sorted(tokens)

    run(work)


def test_a_wait_that_is_cancelled_or_too_long_leaves_nothing_behind(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        async with await client.session() as session, await client.lock(session, root):
            with pytest.raises(ApiError) as caught:
                await client.lock(session, root, timeout_s=0)
            assert caught.value.code == "lock_timeout"
            waiting = asyncio.create_task(client.lock(session, root))
            while len((await client.range(root)).items) < 3:
                await asyncio.sleep(0.01)
            waiting.cancel()
            while len((await client.range(root)).items) > 2:
                await asyncio.sleep(0.01)

    run(work)


def test_an_election_is_observed(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        leaders = client.observe(root)
        assert (await anext(leaders)).epoch is None
        async with await client.session() as session:
            held = await client.campaign(session, root, value=b"me")
            told = await anext(leaders)
            assert (told.epoch, told.value) == (held.token, b"me")
        assert (await anext(leaders)).epoch is None
        await leaders.aclose()

    run(work)


def test_a_session_is_kept_alive_and_its_loss_is_told(run: Run, root: str) -> None:
    async def work(client: Client) -> None:
        session = await client.session(timeout_ms=600)
        held = await client.lock(session, root)
        await asyncio.sleep(1.5)
        assert not session.is_lost
        lost = asyncio.Event()
        session.on_lost.append(lost.set)
        await client.call("session/close", {"session": session.secret})
        await lost.wait()
        with pytest.raises(LockLost):
            held.check()
        await session.close()

    run(work)


@pytest.mark.parametrize("delay_s", [0.1, 1.0])
def test_a_session_is_as_old_as_the_request_for_it(run: Run, monkeypatch: pytest.MonkeyPatch, delay_s: float) -> None:
    """The member counts from before the answer; an answer that was long on its way is asked after."""

    async def work(client: Client) -> None:
        call = client.call
        asked: list[tuple[str, float]] = []

        async def slowly(path: str, fields: Any) -> Any:
            asked.append((path, client.io.now_s()))
            answer = await call(path, fields)
            await asyncio.sleep(delay_s if path == "session/create" else 0)
            return answer

        monkeypatch.setattr(client, "call", slowly)
        session = await client.session(timeout_ms=1500)
        path, asked_s = asked[-1]
        assert path == ("session/create" if delay_s < 0.5 else "session/keepalive")
        assert session.lost_at_s == pytest.approx(asked_s + 1.5, abs=0.01)
        await session.close()

    run(work)


def test_acls_apply(address: Address, root: str) -> None:
    async def main() -> None:
        alice, stranger = asyncio_client([address], user=("alice", "secret")), asyncio_client([address])
        acl = [{"perms": ["read", "write", "create", "delete", "admin"], "scheme": "auth", "id": ""}]
        await alice.put(root, b"x", acl=acl)
        assert await alice.get(root) is not None
        with pytest.raises(ApiError) as caught:
            await stranger.get(root)
        assert caught.value.code == "no_auth"
        alice.close()
        stranger.close()

    asyncio.run(main())


def test_a_member_that_is_not_there_is_passed_over(address: Address, root: str) -> None:
    async def main() -> None:
        client = asyncio_client([("127.0.0.1", free_port()), address, ("127.0.0.1", free_port())])
        await client.put(root, b"x")
        client.close()

    asyncio.run(main())


def test_a_connection_that_the_member_closed_is_not_used_again() -> None:
    """Also if the event loop had no turn since: it is closed within the turn in which the answer is had."""

    async def main() -> None:
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            while (await reader.read(65536)).startswith(b"POST /v1/txn "):
                body = b'{"succeeded": true, "results": [{"key": "/a", "item": null}], "revision": 7}'
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = asyncio_client([server.sockets[0].getsockname()])
            for _ in range(2):
                assert await client.put("/a", b"") == 7
            assert len(writers) == 1
            writers[0].get_extra_info("socket").shutdown(socket.SHUT_WR)
            assert await client.put("/a", b"") == 7
            assert len(writers) == 2
            client.close()
            for writer in writers:
                writer.close()

    asyncio.run(main())


def test_without_any_member_it_gives_up_in_time() -> None:
    async def main() -> None:
        client = asyncio_client([("127.0.0.1", free_port())], patience_s=0.3)
        with pytest.raises(Unavailable):
            await client.get("/")
        with pytest.raises(Unavailable):
            async for _ in client.watch(key="/"):
                pass

    asyncio.run(main())


def test_a_member_that_vanishes_is_noticed_while_a_request_waits(run: Run) -> None:
    async def work(client: Client) -> None:
        await client.get("/")
        assert client._idle is not None
        stream: Any = client._idle[0]
        connection = stream._writer.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE["TCP_KEEPIDLE"]

    run(work)
