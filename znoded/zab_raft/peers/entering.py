"""A blank member asks the others, in rounds, until it is clear which cell it is in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from znoded.jute.frames import frame
from znoded.zab_raft.peers.connection import DelayedCall
from znoded.zab_raft.peers.dialler import Dialled, Dialler
from znoded.zab_raft.peers.founding import (
    ANSWER_BYTES_LIMIT,
    Answer,
    Decision,
    Table,
    Wait,
    decide,
    decode_answer,
)
from znoded.zab_raft.peers.handshake import Purpose, Refused
from znoded.zab_raft.peers.identity import NO_RAFT_ID

#: A round ends when all have answered or cannot be reached, or at the latest after so long.
ROUND_S = 2.0
#: Between rounds, and up to as much again.
PAUSE_S = 0.2

log = Logger()


class Entering:
    """Fires `decided` with `Found` or `Join`, unless that is cancelled."""

    def __init__(self, dialler: Dialler, table: Table, random: Callable[[], float]) -> None:
        self.decided: Deferred[Decision] = Deferred(lambda _: self.stop())
        self._dialler = dialler
        self._number = dialler.gate.identity.number
        self._table = table
        self._random = random
        self._answers: dict[int, Answer] = {}
        self._asking: dict[int, Deferred[Any]] = {}
        self._connections: list[Dialled] = []
        self._call: DelayedCall | None = None
        self._why = ""
        self._told: set[tuple[int, str]] = set()

    def start(self) -> None:
        """Begin a round."""
        self._answers.clear()
        self._call = self._dialler.reactor.callLater(ROUND_S, self._end_round)
        others = {number: where for number, where in self._table.addresses.items() if number != self._number}
        for number, address in others.items():
            self._asking[number] = self._dialler.dial(Purpose.ENTER, NO_RAFT_ID, number, address)
        for number, asking in list(self._asking.items()):
            asking.addCallback(partial(self._ask, number)).addErrback(partial(self._failed, number))
        if not others:
            self._end_round()

    def stop(self) -> None:
        """Ask no more."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
        asking, self._asking = list(self._asking.values()), {}
        for each in asking:
            each.cancel()
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _ask(self, number: int, connection: Dialled) -> None:
        self._connections.append(connection)
        connection.open(ANSWER_BYTES_LIMIT, ANSWER_BYTES_LIMIT, partial(self._answered, number, connection))
        connection.on_ended = partial(self._ended, number)
        connection.send(frame(self._table.digest))

    def _answered(self, number: int, connection: Dialled, payload: bytes) -> None:
        self._answers[number] = decode_answer(payload)
        connection.close()
        self._over(number)

    def _ended(self, number: int, by_other: bool) -> None:
        if by_other:
            self._tell(number, "it closed the connection")
        self._over(number)

    def _failed(self, number: int, failure: Failure) -> None:
        if not failure.check(Refused):  # which is logged
            self._tell(number, failure.getErrorMessage())
        self._over(number)

    def _tell(self, number: int, why: str) -> None:
        """Log why a member that is being asked does not answer, each reason once."""
        if number in self._asking and (number, why) not in self._told:
            self._told.add((number, why))
            log.info(
                "no answer of member {number} at {address}: {why}; it is asked again",
                number=number,
                address=self._table.addresses[number],
                why=why,
            )

    def _over(self, number: int) -> None:
        if self._asking.pop(number, None) is not None and not self._asking:
            self._end_round()

    def _end_round(self) -> None:
        for number in self._asking:
            self._tell(number, f"nothing came within {ROUND_S:g} s")
        self.stop()
        decision = decide(self._number, self._table, self._answers)
        if not isinstance(decision, Wait):
            self.decided.callback(decision)
            return
        if decision.why != self._why:
            self._why = decision.why
            log.info("not in a cell yet: {why}", why=decision.why)
        self._call = self._dialler.reactor.callLater(PAUSE_S * (1 + self._random()), self.start)
