"""A Twisted program that uses the client, run in a process of its own: a reactor starts only once."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from tests.server_process import free_port
from znoded.client import ApiError, Events, Unavailable
from znoded.client.twisted_io import twisted_client

ROOT = "/twisted"


async def use_everything(reactor: Any, port: int) -> None:
    """Keys, a session, a lock, a watch; a member that is not there is passed over."""
    client = twisted_client(reactor, [("127.0.0.1", free_port()), ("127.0.0.1", port)])
    start = await client.put(ROOT, b"1")
    async with await client.session() as session, await client.lock(session, f"{ROOT}-lock") as held:
        done = await held.guard(client.txn(session).set(ROOT, b"2")).commit()
        assert done.succeeded
        with pytest.raises(ApiError):
            await client.lock(session, f"{ROOT}-lock", timeout_s=0)
    async for line in client.watch(key=ROOT, after=start):
        assert isinstance(line, Events)
        assert [event.value for event in line.events] == [b"2"]
        break
    client.close()


async def give_up(reactor: Any) -> None:
    """Without any member it gives up in time."""
    client = twisted_client(reactor, [("127.0.0.1", free_port())], patience_s=0.3)
    with pytest.raises(Unavailable):
        await client.get("/")


def main(reactor: Any, port: str) -> Deferred[None]:
    async def both() -> None:
        await use_everything(reactor, int(port))
        await give_up(reactor)

    work: Coroutine[Any, Any, None] = both()
    return Deferred.fromCoroutine(work).addTimeout(30, reactor)


if __name__ == "__main__":
    react(main, sys.argv[1:])
