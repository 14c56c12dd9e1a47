"""The HTTP site of the API: what all its connections share, from the start of the member to its end."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.server import Site

from znoded.admin.api.backend import Backend
from znoded.admin.api.connections import REQUEST_TIMEOUT_S, ApiChannel, ApiRequest
from znoded.admin.api.dispatch import Api
from znoded.admin.api.feed import Feed
from znoded.admin.api.locks import Locks
from znoded.admin.api.unread import Unread
from znoded.server.member import Member

#: Requests may be this many times as large as the command that they become: base64, escapes, names of fields.
BODY_FACTOR = 3
#: How long a member that stops waits for those in line to leave it.
STOP_PATIENCE_S = 3.0


class ApiSite(Site):
    """The API of one member. Keeps no access log, and knows no tracebacks."""

    noisy = False
    displayTracebacks = False
    protocol = ApiChannel  # type: ignore[assignment]

    def __init__(self, member: Member, reactor: Any) -> None:
        self.backend = Backend(member, reactor)
        self.unread = Unread(reactor, member.limits.api_unread_bytes)
        self.feed = Feed(self.backend, self.unread)
        self._member = member
        self.value_limit_bytes = self.backend.value_limit_bytes
        self.body_limit_bytes = BODY_FACTOR * member.limits.frame_bytes
        self._connections: dict[str, int] = {}
        self.connections_count = 0
        #: How many were answered, by the operation (`none` if there is none for them) and what came of it.
        self.requests: Counter[tuple[str, str]] = Counter()
        #: The size of the bodies that are being received.
        self.bodies_bytes = 0
        self.answering: dict[Deferred[Any], None] = {}
        self.locks = Locks(self.backend)
        super().__init__(  # type: ignore[no-untyped-call]
            Api(self), ApiRequest, timeout=REQUEST_TIMEOUT_S, reactor=reactor, parsePOSTFormSubmission=False
        )

    def start(self) -> None:
        """Begin to serve; the member serves."""
        self.backend.start()
        self.feed.start()

    async def stop(self) -> None:
        """Send everybody elsewhere; who stood in line for a lock leaves it first."""
        self.feed.stop()
        for answering in list(self.answering):
            answering.cancel()
        await self.backend.waiting.idle(STOP_PATIENCE_S)
        self.backend.stop()

    def enter(self, host: str) -> bool:
        """Count a connection in, if there is room for it."""
        count = self._connections.get(host, 0)
        is_full = self.connections_count >= self._member.api_connections
        if is_full or 0 < self._member.limits.api_connections_per_address <= count:
            return False
        self.connections_count += 1
        self._connections[host] = count + 1
        return True

    def leave(self, host: str) -> None:
        """Count one out that was let in."""
        self.connections_count -= 1
        self._connections[host] -= 1
        if not self._connections[host]:
            del self._connections[host]

    def acceptableProtocols(self) -> list[bytes]:
        """No HTTP/2: a stream needs its connection for itself."""
        return [b"http/1.1"]

    def log(self, request: Any) -> None:
        """Say nothing about a request."""
