"""HTTP/1.1 without I/O: the bytes of a request, and the answer made of the bytes that come."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import h11

HEADERS_BYTES_MOST = 64 * 1024


class ProtocolError(Exception):
    """What came is no HTTP, or ended too early."""


class Exchange:
    """One request and its answer, on a connection of its own or one after another."""

    def __init__(self, host: str, authorization: str | None) -> None:
        self._host = host
        self._authorization = authorization
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADERS_BYTES_MOST)
        self.status = 0
        self.is_done = False

    def post(self, path: str, fields: Mapping[str, Any]) -> bytes:
        """The bytes of a request with a JSON body."""
        body = json.dumps(fields).encode()
        headers = [*self._headers(), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        return self._request("POST", path, headers, body)

    def get(self, path: str, query: Mapping[str, object]) -> bytes:
        """The bytes of a request without a body."""
        return self._request("GET", f"{path}?{urlencode(query)}", self._headers(), b"")

    def _headers(self) -> list[tuple[str, str]]:
        headers = [("Host", self._host)]
        if self._authorization is not None:
            headers.append(("Authorization", self._authorization))
        return headers

    def _request(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
        send = self._connection.send
        request = h11.Request(method=method, target=path, headers=headers)
        parts = (send(request), send(h11.Data(data=body)) if body else b"", send(h11.EndOfMessage()))
        return b"".join(part or b"" for part in parts)

    def receive(self, data: bytes) -> Iterator[bytes]:
        """What of the answer's body `data` has; empty `data` is the end of the connection. Raises ProtocolError."""
        try:
            self._connection.receive_data(data)
            while True:
                event = self._connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.Response):
                    self.status = event.status_code
                elif isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self.is_done = True
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    raise ProtocolError("the connection was closed before the answer came")
        except h11.RemoteProtocolError as error:
            raise ProtocolError(str(error)) from error

    def next(self) -> bool:
        """Whether the connection can have another exchange, for which this is ready then."""
        if self._connection.our_state is not h11.DONE or self._connection.their_state is not h11.DONE:
            return False
        self._connection.start_next_cycle()
        self.status = 0
        self.is_done = False
        return True


class Lines:
    """Newline-delimited JSON, in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The lines that `data` completes. Raises ProtocolError."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        try:
            return [json.loads(line) for line in whole if line]
        except ValueError as error:
            raise ProtocolError("a line that is not JSON") from error


def basic(user: str, password: str) -> str:
    """The Authorization header of an identity of scheme digest."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
