"""How much of the log is kept before the checkpoint, so that a member that lags a little needs no snapshot."""

from __future__ import annotations

from collections import deque

#: So many times as much is kept while a member that is there catches up. What is written while a snapshot is on its way
#: has to be there when it has arrived, or the member would need another one, again and again.
CATCHING_UP_FACTOR = 8


class Retention:
    """Knows how large the log's writes were, and from where on they fit into `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._writes: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._first_kept = 0

    def written(self, last_index: int, size_bytes: int) -> None:
        """Entries up to `last_index` were written."""
        self._writes.append((last_index, size_bytes))
        self._bytes += size_bytes

    def keep_from(self, checkpoint_index: int, needed_index: int) -> int:
        """The first entry to keep behind this checkpoint; all behind the checkpoint are kept.

        `needed_index` is the first one that a member which catches up needs.
        """
        while self._writes and self._writes[0][0] <= checkpoint_index:
            last_index, size_bytes = self._writes[0]
            factor = CATCHING_UP_FACTOR if last_index >= needed_index else 1
            if self._bytes <= factor * self._limit_bytes:
                break
            self._writes.popleft()
            self._bytes -= size_bytes
            self._first_kept = last_index + 1
        return min(self._first_kept, checkpoint_index + 1)
