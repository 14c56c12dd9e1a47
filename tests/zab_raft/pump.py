"""A reactor for tests that runs what other threads hand it only when the test says so."""

from __future__ import annotations

import queue
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

T = TypeVar("T")

PATIENCE_S = 30.0


class PumpReactor(Clock):
    """Twisted's test clock, with `callFromThread`."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def callFromThread(self, callable: Callable[..., object], *args: object, **kwargs: object) -> None:
        self._calls.put(partial(callable, *args, **kwargs))

    def run_calls(self) -> None:
        """Run what threads have asked for until now."""
        while not self._calls.empty():
            self._calls.get()()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run what is due now and what threads ask for, until the condition holds; it must within `PATIENCE_S`."""
        self.advance(0)
        while not condition():
            self._calls.get(timeout=PATIENCE_S)()
            self.advance(0)

    def result_of(self, deferred: Deferred[T]) -> T:
        """Run until the Deferred has fired; return its result or raise its failure."""
        results: list[T] = []
        failures: list[BaseException] = []
        deferred.addCallbacks(results.append, lambda failure: failures.append(failure.value))
        self.run_until(lambda: bool(results or failures))
        if failures:
            raise failures[0]
        return results[0]
