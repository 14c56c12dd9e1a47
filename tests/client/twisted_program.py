"""A Twisted program that uses the client, run in a process of its own: a reactor starts only once."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater, react

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


class ClosingMember(Protocol):
    """Answers one transaction, and closes the connection though it did not say so."""

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        body = b'{"succeeded": true, "results": [{"key": "/a", "item": null}], "revision": 7}'
        transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        transport.loseConnection()


async def be_cut(reactor: Any) -> None:
    """A connection that the member closed is not used again."""
    listening = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(Factory.forProtocol(ClosingMember))
    client = twisted_client(reactor, [("127.0.0.1", listening.getHost().port)])
    for _ in range(3):
        assert await client.put("/a", b"") == 7
        await deferLater(reactor, 0.05)
    client.close()
    await listening.stopListening()


def main(reactor: Any, port: str) -> Deferred[None]:
    async def both() -> None:
        await use_everything(reactor, int(port))
        await give_up(reactor)
        await be_cut(reactor)

    work: Coroutine[Any, Any, None] = both()
    return Deferred.fromCoroutine(work).addTimeout(30, reactor)


if __name__ == "__main__":
    react(main, sys.argv[1:])
