"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
PATIENCE_S = 20.0


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Return once the condition holds; fail if it does not come to that."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what or condition
        time.sleep(0.01)


class InThread(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._result: list[T] = []
        self._error: list[BaseException] = []

        def work() -> None:
            try:
                self._result.append(call())
            except BaseException as error:
                self._error.append(error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        """What it returned or raised, once it has."""
        self._thread.join(PATIENCE_S)
        assert self.is_done, "it goes on and on"
        if self._error:
            raise self._error[0]
        return self._result[0]
