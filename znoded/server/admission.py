"""Which connections may be here: the limits at accept, and the wait for the first request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from znoded.config import Limits

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection


class Admission:
    """Counts the connections of a member.

    Those that have not asked for a session yet wait in the lobby, for a limited time; so do those that are closed as
    soon as they have taken what was sent.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connections_most = limits.connections
        self._connections: dict[ClientConnection, None] = {}
        self._lobby: dict[ClientConnection, None] = {}  # oldest first
        self._count_of: dict[str, int] = {}
        self._own_count = 0
        self.rejected = 0
        self.overstayed_count = 0

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(list(self._connections))

    def cap(self, connections: int) -> None:
        """Let no more than so many connections in, whatever the limits say."""
        self._connections_most = min(self._connections_most or connections, connections)

    def enter(self, connection: ClientConnection) -> str | None:
        """Let a connection in. Returns why not, if it may not."""
        if connection.is_own:
            self._own_count += 1
            self._connections[connection] = None
            return None
        refusal = self._refusal(connection)
        if refusal is not None:
            self.rejected += 1
            return refusal
        self._count_of[connection.host] = self._count_of.get(connection.host, 0) + 1
        self._connections[connection] = None
        self._lobby[connection] = None
        return None

    def _refusal(self, connection: ClientConnection) -> str | None:
        limits = self._limits
        count = self._count_of.get(connection.host, 0)
        if limits.connections_per_address and count >= limits.connections_per_address:
            return f"{count} connections of its address are open already (limits.connections_per_address)"
        others = len(self._connections) - self._own_count
        if self._connections_most and others >= self._connections_most:
            return f"{others} connections are open already (limits.connections)"
        return None

    def leave_lobby(self, connection: ClientConnection) -> None:
        """It has asked for a session."""
        self._lobby.pop(connection, None)

    def linger(self, connection: ClientConnection, now_ms: int) -> None:
        """It is over, but for what its client has not read yet."""
        if connection in self._connections:
            self._lobby.pop(connection, None)
            connection.accepted_ms = now_ms
            self._lobby[connection] = None

    def leave(self, connection: ClientConnection) -> None:
        """It is closed. One that was never let in may leave, too."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        if connection.is_own:
            self._own_count -= 1
            return
        self._lobby.pop(connection, None)
        count = self._count_of.pop(connection.host) - 1
        if count:
            self._count_of[connection.host] = count

    def overstayed(self, now_ms: int) -> list[ClientConnection]:
        """The connections that have been in the lobby for longer than the limit."""
        waiting: list[ClientConnection] = []
        for connection in self._lobby:
            if now_ms - connection.accepted_ms < self._limits.handshake_timeout_ms:
                break
            waiting.append(connection)
        self.overstayed_count += len(waiting)
        return waiting
