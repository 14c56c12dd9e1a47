"""One watch for all attempts of a client.

Kazoo keeps what watches a znode until that changes, and the same one only once: those that gave up must not leave one
each behind, however many there were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary


class Watching:
    """Gives events to whoever listens when they come; `happened` is what Kazoo is given as the watch."""

    def __init__(self) -> None:
        self._listeners: set[Callable[[Any], None]] = set()
        self._guard = threading.Lock()

    @contextmanager
    def listening(self, listener: Callable[[Any], None]) -> Iterator[None]:
        """Have `listener` called with every event, on one of Kazoo's threads."""
        with self._guard:
            self._listeners.add(listener)
        try:
            yield
        finally:
            with self._guard:
                self._listeners.discard(listener)

    def happened(self, event: Any) -> None:
        """A znode that somebody watches has changed, or the connection."""
        with self._guard:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event)


_by_client: WeakKeyDictionary[Any, Watching] = WeakKeyDictionary()
_guard = threading.Lock()


def watching(client: Any) -> Watching:
    """The one of this KazooClient."""
    with _guard:
        return _by_client.setdefault(client, Watching())
