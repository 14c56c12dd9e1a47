"""Members in memory, and an io that reaches them, with a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from znoded.client import Client
from znoded.client.twisted_io import TwistedIo

T = TypeVar("T")

#: The clock moves in steps so small that whatever waits for one another has its turn in time.
STEP_S = 0.01
PORT = 2380


class Asked(NamedTuple):
    """A request as a member got it."""

    at_s: float
    path: str
    fields: Mapping[str, Any]


class FakeStream:
    """The client's end of a connection."""

    def __init__(self, member: FakeMember) -> None:
        self._member = member
        self._received = b""
        self._has_ended = False
        self._reader: Deferred[None] | None = None

    async def read(self) -> bytes:
        if not self._received and not self._has_ended:
            self._reader = Deferred()
            await self._reader
        data, self._received = self._received, b""
        return data

    async def write(self, data: bytes) -> None:
        if self._has_ended:
            raise ConnectionError("the connection is closed")
        self._member.receive(self, data)

    def is_closed(self) -> bool:
        return self._has_ended

    def close(self) -> None:
        self._member.streams.discard(self)

    def deliver(self, data: bytes) -> None:
        """Bytes of the member; none: it closes the connection."""
        self._received += data
        self._has_ended = self._has_ended or not data
        reader, self._reader = self._reader, None
        if reader is not None and not reader.called:
            reader.callback(None)


class FakeMember:
    """A member that answers what `answers` has for the path of a request, and else says nothing.

    An answer is its status with its fields, or the bytes of it.
    """

    def __init__(self, clock: Clock) -> None:
        self.answers: dict[str, tuple[int, Mapping[str, Any]] | bytes] = {}
        self.asked: list[Asked] = []
        self.streams: set[FakeStream] = set()
        self.is_reachable = True
        self._clock = clock

    def receive(self, stream: FakeStream, data: bytes) -> None:
        head, body = data.split(b"\r\n\r\n")
        path = urlsplit(head.split()[1].decode()).path.removeprefix("/v1/")
        self.asked.append(Asked(self._clock.seconds(), path, json.loads(body or b"{}")))
        answer = self.answers.get(path)
        if isinstance(answer, tuple):
            status, fields = answer
            content = json.dumps(fields).encode()
            answer = b"HTTP/1.1 %d A\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)
        if answer is not None:
            stream.deliver(answer)

    def asked_for(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == path]

    def close_connections(self) -> None:
        """As it does when it stops."""
        for stream in list(self.streams):
            stream.deliver(b"")


class FakeIo(TwistedIo):
    """Twisted's, with connections to members in memory."""

    def __init__(self, clock: Clock, members: Mapping[str, FakeMember]) -> None:
        super().__init__(clock)
        self._members = members

    async def connect(self, host: str, port: int, tls: Any) -> Any:
        member = self._members[host]
        if not member.is_reachable:
            await Deferred()
        stream = FakeStream(member)
        member.streams.add(stream)
        return stream


class FakeCell:
    """Some members, in the order in which a client asks them."""

    def __init__(self, size: int) -> None:
        self.clock = Clock()
        self.members = [FakeMember(self.clock) for _ in range(size)]

    def client(self, patience_s: float = 30.0) -> Client:
        names = {f"member-{number}": member for number, member in enumerate(self.members)}
        return Client(FakeIo(self.clock, names), [(name, PORT) for name in names], patience_s=patience_s)

    def start(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        return Deferred.fromCoroutine(work)

    def let_pass(self, time_s: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        until_s = self.clock.seconds() + time_s
        while self.clock.seconds() < until_s and not is_enough():
            self.clock.advance(STEP_S)

    def result(self, work: Coroutine[Any, Any, T] | Deferred[T], within_s: float = 200.0) -> T:
        """What comes of it, or the exception."""
        done = work if isinstance(work, Deferred) else self.start(work)
        outcome: list[Any] = []
        done.addBoth(outcome.append)
        self.let_pass(within_s, lambda: bool(outcome))
        assert outcome, f"there was no result within {within_s:g} s"
        if hasattr(outcome[0], "raiseException"):
            outcome[0].raiseException()
        result: T = outcome[0]
        return result
