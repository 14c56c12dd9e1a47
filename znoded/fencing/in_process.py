"""A guard for a resource that one process owns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from znoded.fencing.errors import StaleToken


class InProcessGuard:
    """Remembers the highest token per object for as long as the process lives; a few dozen bytes for each."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, object_name: str, token: int) -> Iterator[None]:
        """In the block, nobody else is let in, and no older token will be after it. Raises StaleToken."""
        with self._lock:
            highest = self._highest.get(object_name, token)
            if token < highest:
                raise StaleToken(object_name, token, highest)
            self._highest[object_name] = token
            yield

    def highest(self, object_name: str) -> int | None:
        """The highest token seen; None if there was none."""
        return self._highest.get(object_name)
