"""Whether a member of a cell serves clients now: it is asked what a client would ask, a linearizable read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

#: The answer comes before a probe gives up, which Kubernetes does after 1 s unless it is told otherwise.
PATIENCE_S = 0.75


class Readiness:
    """One read is under way at most, however many probes wait for it."""

    def __init__(
        self, reactor: Any, confirm: Callable[[Callable[[bool], None]], None], missing: Callable[[], str]
    ) -> None:
        """`confirm` is that of a `ReadGate`; `missing()` says what a read that it does not confirm waits for."""
        self._reactor = reactor
        self._confirm = confirm
        self._missing = missing
        self._is_asking = False
        self._waiting: list[tuple[Deferred[str], Any]] = []

    def look(self) -> Deferred[str]:
        """Fires within `PATIENCE_S`, with what is missing; empty if a read was confirmed."""
        answer: Deferred[str] = Deferred()
        self._waiting.append((answer, self._reactor.callLater(PATIENCE_S, self._give_up, answer)))
        if not self._is_asking:
            self._is_asking = True
            self._confirm(self._answered)
        return answer

    def _answered(self, is_confirmed: bool) -> None:
        self._is_asking = False
        waiting, self._waiting = self._waiting, []
        text = "" if is_confirmed or not waiting else self._missing()
        for answer, timer in waiting:
            timer.cancel()
            answer.callback(text)

    def _give_up(self, answer: Deferred[str]) -> None:
        """The read stays under way: those that ask next wait for it too."""
        self._waiting = [each for each in self._waiting if each[0] is not answer]
        answer.callback(self._missing())
