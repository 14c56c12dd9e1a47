"""What the core wants stored, on its way to the log thread: in order, joined where the disk is slower."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from znoded.zab_raft.cell.log import Readies
from znoded.zab_raft.core.node import Ready
from znoded.zab_raft.log import Batch

#: Records given to the log thread and not durable: the disk has the next one when one is done, the rest is joined.
WRITES_UNDER_WAY = 2


class WriteQueue:
    """`append(batch)` gives a record to the log thread; `install(ready)` begins to put a snapshot in place.

    A snapshot is put in place alone: it waits for what is under way, and what comes later waits until `installed`.
    """

    def __init__(self, append: Callable[[Batch], None], install: Callable[[Ready], None]) -> None:
        self.is_installing = False
        self._append = append
        self._install = install
        self._waiting: deque[Ready] = deque()
        self._under_way: deque[Readies] = deque()
        self._stored_vote = (0, 0)

    @property
    def holds_snapshot(self) -> bool:
        """A snapshot waits for its turn, or is being put in place."""
        return self.is_installing or any(ready.snapshot for ready in self._waiting)

    @property
    def oldest(self) -> Readies | None:
        """The write that the log thread is at; None if there is none."""
        return self._under_way[0] if self._under_way else None

    def add(self, ready: Ready) -> None:
        """Have this stored."""
        self._waiting.append(ready)
        self._write()

    def written(self, batch: Readies) -> None:
        """The oldest write is durable."""
        self._under_way.popleft()
        self._write()

    def installed(self) -> None:
        """The snapshot is in place, and the log begins behind it."""
        self.is_installing = False
        self._write()

    def _write(self) -> None:
        while self._waiting and not self.is_installing:
            if self._waiting[0].snapshot:
                if not self._under_way:
                    self.is_installing = True
                    self._install(self._waiting.popleft())
                return
            if self._under_way and self._changes_nothing(self._waiting[0]):
                self._under_way[-1].readies.append(self._waiting.popleft())
                continue
            if len(self._under_way) == WRITES_UNDER_WAY:
                return
            self._begin_write()

    def _begin_write(self) -> None:
        readies = []
        while self._waiting and not self._waiting[0].snapshot:
            readies.append(self._waiting.popleft())
        batch = Readies.of_readies(readies)
        self._stored_vote = readies[-1].hard_state[:2]
        self._under_way.append(batch)
        self._append(batch)

    def _changes_nothing(self, ready: Ready) -> bool:
        """It only waits for what was written before: a new commit index alone need not be stored."""
        return not ready.entries and ready.hard_state[:2] == self._stored_vote
