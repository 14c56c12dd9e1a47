"""Turns: a connection whose requests take long stands in line, so that everybody else is served in between."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection

log = Logger()

#: What the requests of one connection may take before it goes to the end of the line.
TURN_S = 0.005


class Turns:
    """The line of one member. In each round of the reactor one connection of it goes on."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._line: deque[ClientConnection] = deque()

    def wait(self, connection: ClientConnection) -> None:
        """Stop this connection, which is not in the line yet, until its turn comes."""
        connection.in_line = True
        self._line.append(connection)
        if len(self._line) == 1:
            self._reactor.callLater(0, self._next)

    def _next(self) -> None:
        connection = self._line[0]
        connection.in_line = False
        try:
            connection.go_on()  # may put it at the end of the line, where it must not be the first
        except Exception:
            log.failure("a connection is closed because serving it failed")
            connection.abort()
        self._line.popleft()
        if self._line:
            self._reactor.callLater(0, self._next)
