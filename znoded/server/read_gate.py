"""The read gate of a cell's member: a read waits until all that was committed before it arrived is applied here.

One round of questions is with the leader, the next one collects meanwhile: the cost is for a round, not for a read.
What a connection sends behind a read that waits, waits with it, so that its requests keep their order.

Who is answered may count on a session timeout from the moment at which it asked, as the holder of a lock does. So the
leader is told whom this member heard before it confirms anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from znoded.jute.ops import Op
from znoded.server.connection import OPEN, UNTIL_CONFIRMED, ClientConnection

if TYPE_CHECKING:
    from znoded.server.pipeline import Pipeline

#: How long to wait, without a leader, before it is asked for again.
RETRY_S = 0.05
#: A connection is read from until so much of it waits.
HELD_BYTES_LIMIT = 256 * 1024

SYNC = int(Op.SYNC)


class ReadGate:
    """Holds what connections sent until their member has confirmed that its state is new enough for it."""

    def __init__(
        self,
        reactor: Any,
        pipeline: Pipeline,
        confirm: Callable[[Callable[[bool], None]], None],
        report: Callable[[Iterable[ClientConnection]], None],
    ) -> None:
        """`confirm(then)` calls `then(True)` when all that was committed before is applied, `then(False)` if never.

        `report` tells the leader that these were heard.
        """
        self.confirm = confirm
        self._report = report
        self._reactor = reactor
        self._pipeline = pipeline
        self._collecting: list[ClientConnection] = []
        #: With each connection, how many of the bytes that it keeps came before the leader was asked.
        self._asked: list[tuple[ClientConnection, int]] = []

    def keeps(self, connection: ClientConnection, op: int) -> bool:
        """Whether a request of this kind has to wait. Those that do not want it are served from what is here."""
        return op == SYNC or not connection.is_serializable

    def hold(self, connection: ClientConnection, data: bytes) -> None:
        """Have `data`, and what the connection sends behind it, served when it is confirmed. `ask` has to follow."""
        connection.keep(data, UNTIL_CONFIRMED)
        self._collecting.append(connection)

    def ask(self) -> None:
        """Begin the next round with all that is held, unless one is under way."""
        if self._collecting and not self._asked:
            self._asked = [(connection, len(connection.kept or b"")) for connection in self._collecting]
            self._report(self._collecting)
            self._collecting = []
            self.confirm(self._answered)

    def _answered(self, is_confirmed: bool) -> None:
        if not is_confirmed:
            self._reactor.callLater(RETRY_S, self.confirm, self._answered)
            return
        asked, self._asked = self._asked, []
        open_ones = [(connection, size) for connection, size in asked if connection.state is OPEN and connection.kept]
        confirmed = [(connection, *connection.take_kept(size_bytes)) for connection, size_bytes in open_ones]
        self._pipeline.serve([(connection, data) for connection, data, _ in confirmed], confirmed=True)
        for connection, _, rest in confirmed:
            connection.serve_behind(rest)
        self.ask()
