"""What was handed out and not given back yet, bounded by count and by bytes."""

from __future__ import annotations

from collections import deque

from znoded.zab_raft.core.errors import InvariantBroken


class Inflights:
    """Batches on their way, each known by the index of its last entry, which only grows.

    `full` once there are `most_batches` of them or they have `most_bytes` together: the last one may exceed the bytes.
    """

    def __init__(self, most_batches: int, most_bytes: int) -> None:
        self.bytes = 0
        self._most_batches = most_batches
        self._most_bytes = most_bytes
        self._batches: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def full(self) -> bool:
        return len(self._batches) >= self._most_batches or self.bytes >= self._most_bytes

    def add(self, last_index: int, size_bytes: int) -> None:
        if self._batches and last_index <= self._batches[-1][0]:
            raise InvariantBroken(f"a batch up to {last_index} is added behind one up to {self._batches[-1][0]}")
        self._batches.append((last_index, size_bytes))
        self.bytes += size_bytes

    def free_to(self, index: int) -> None:
        """Give back the batches whose last index is at or before `index`."""
        while self._batches and self._batches[0][0] <= index:
            self.bytes -= self._batches.popleft()[1]

    def clear(self) -> None:
        self._batches.clear()
        self.bytes = 0
