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
        self._users: dict[str, int] = {}  # the threads that are in the block of an object
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, object_name: str, token: int) -> Iterator[None]:
        """In the block, nobody else is let in to this object, and no older token will be after it.

        A block may be in that of another object; threads that do so have to take the objects in one order. Raises
        StaleToken, and RuntimeError in a block of the same object, which would wait for itself.
        """
        thread = threading.get_ident()
        with self._changed:
            if self._users.get(object_name) == thread:
                raise RuntimeError(f"this thread is in a block of {object_name} already")
            self._changed.wait_for(lambda: object_name not in self._users)
            highest = self._highest.get(object_name, token)
            if token < highest:
                raise StaleToken(object_name, token, highest)
            self._highest[object_name] = token
            self._users[object_name] = thread
        try:
            yield
        finally:
            with self._changed:
                del self._users[object_name]
                self._changed.notify_all()

    def highest(self, object_name: str) -> int | None:
        """The highest token seen; None if there was none."""
        return self._highest.get(object_name)
