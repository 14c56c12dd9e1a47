"""A member with its API, without sockets, disk or clock: requests go in as bytes, answers come out as bytes."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import patch

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from tests.server.harness import House, Transport
from znoded.admin.api.site import ApiSite

Fields = dict[str, Any]


def b64(value: bytes) -> str:
    """A value as JSON has it."""
    return base64.b64encode(value).decode()


class ApiHouse(House):
    """Commits what is proposed as time passes."""

    site: ApiSite

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        started_ms = self.member.monotonic_ms()
        self.member.monotonic_ms = lambda: started_ms + int(self.clock.seconds() * 1000)  # type: ignore[method-assign]
        self.site = ApiSite(self.member, self.clock)
        self.site.start()
        self.settle()

    def settle(self) -> None:
        """Let everything happen that needs no time, however many turns a busy machine takes for it."""
        while self.replica.collected or self._is_due():
            self.clock.advance(0)
            if self.replica.collected:
                self.replica.commit()

    def commit(self) -> None:
        """Apply what was proposed, in the midst of a turn."""
        with patch.object(self.clock, "advance"):
            self.replica.commit()

    def turn(self) -> None:
        """One turn of the reactor, with which nothing happens that was asked for in it."""
        for call in [call for call in self.clock.calls if call.getTime() <= self.clock.seconds()]:
            if call.active():
                self.clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)

    def _is_due(self) -> bool:
        return any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls())

    def pass_time(self, time_s: float, step_s: float = 0.5) -> None:
        """Let time go by in steps."""
        while time_s > 0:
            self.clock.advance(min(step_s, time_s))
            self.settle()
            time_s -= step_s

    def dial(self, host: str = "127.0.0.1", to: str = "192.0.2.1") -> HttpClient:
        """A connection to the API, from a host to an address."""
        return HttpClient(self, host, to)

    def ask(self, path: str, fields: Fields | None = None, **options: Any) -> tuple[int, Fields]:
        """Status and content of an answer to a request on a connection of its own."""
        client = self.dial()
        client.send(path, fields, **options)
        self.settle()
        return client.answer()

    def done(self, path: str, fields: Fields | None = None, **options: Any) -> Fields:
        """The content of an answer that has to be a success."""
        status, content = self.ask(path, fields, **options)
        assert status == 200, content
        return content

    def refused(self, path: str, fields: Fields | None = None, **options: Any) -> str:
        """The name of the error."""
        status, content = self.ask(path, fields, **options)
        assert status >= 400, content
        return str(content["error"]["code"])

    def put(self, key: str, value: bytes = b"", **options: Any) -> int:
        """Put a key: the revision."""
        op = {"op": "put", "key": key, "value": b64(value), "parents": True, **options}
        return int(self.done("txn", {"then": [op]})["revision"])

    def session(self, timeout_ms: int = 10_000) -> str:
        """A new session."""
        return str(self.done("session/create", {"timeout_ms": timeout_ms})["session"])


class HttpClient:
    """One connection to the API."""

    def __init__(self, house: ApiHouse, host: str, to: str) -> None:
        self.house = house
        self.transport = Transport(hostAddress=Peer(to), peerAddress=Peer(host))  # type: ignore[arg-type]
        self.channel: Any = house.site.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def send(
        self,
        path: str,
        fields: Fields | None = None,
        *,
        method: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        user: str = "",
    ) -> None:
        """Send a request; a path without fields is got."""
        if fields is not None:
            body = json.dumps(fields).encode()
        method = method or ("GET" if body is None else "POST")
        told = {"Host": "x", **({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        if user:
            told["Authorization"] = "Basic " + b64(user.encode())
        if body is not None:
            told["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        whole = path if path.startswith("/") else f"/v1/{path}"
        self.channel.dataReceived(f"{method} {whole} HTTP/1.1\r\n{head}\r\n".encode() + (body or b""))

    @property
    def is_answered(self) -> bool:
        """Whether anything came."""
        return bool(self.transport.value())

    def answer(self) -> tuple[int, Fields]:
        """Status and content of the answer that came."""
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        self.transport.clear()
        assert head, "there is no answer"
        return int(head.split()[1]), json.loads(body) if body else {}

    def lines(self) -> list[Fields]:
        """The lines of a stream since the last look."""
        return [json.loads(line) for line in self.text().splitlines() if line]

    def text(self) -> str:
        """The content of the chunks since the last look."""
        data = self.transport.value()
        self.transport.clear()
        if data.startswith(b"HTTP/"):
            data = data.partition(b"\r\n\r\n")[2]
        content = b""
        while data:
            size, _, data = data.partition(b"\r\n")
            content += data[: int(size, 16)]
            data = data[int(size, 16) + 2 :]
        return content.decode()

    def drop(self) -> None:
        """The client goes away."""
        self.channel.connectionLost(Failure(ConnectionLost()))


class Peer:
    """The address of one end of a connection."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.port = 50_000
