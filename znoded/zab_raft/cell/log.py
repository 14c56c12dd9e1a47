"""Writing the log of a cell's member: Readies of the core, and the new beginning behind a snapshot of the leader."""

from __future__ import annotations

from dataclasses import dataclass

from znoded.zab_raft.core.messages import Entry
from znoded.zab_raft.core.node import Ready
from znoded.zab_raft.log import Batch, Log
from znoded.zab_raft.segment import encode_entries


@dataclass(frozen=True, slots=True)
class Readies(Batch):
    """Readies that follow each other, as one record. `log_end` is the last index of the log with them.

    More `readies` may be added that change nothing of what is stored.
    """

    readies: list[Ready]
    log_end: int

    @classmethod
    def of_readies(cls, readies: list[Ready]) -> Readies:
        """None of them has a snapshot. The first index is that of the first entry, or where the next one belongs."""
        entries: list[Entry] = []
        for ready in readies:
            if ready.entries:
                first = ready.entries[0].index
                while entries and entries[-1].index >= first:
                    entries.pop()
                entries += ready.entries
        state = readies[-1].hard_state
        log_end, _term = readies[-1].log_end
        first_index = entries[0].index if entries else log_end + 1
        return cls(first_index, state, [], encode_entries(first_index, state, entries), readies, log_end)

    @property
    def last_index(self) -> int:
        return self.log_end


@dataclass(frozen=True, slots=True)
class Restart(Batch):
    """The log begins anew behind a snapshot, which is durable; everything before is forgotten."""

    ready: Ready

    @classmethod
    def behind(cls, ready: Ready) -> Restart:
        return cls(ready.log_end[0] + 1, ready.hard_state, [], b"", ready)


class CellLog(Log):
    """The write side of the log, which can begin anew."""

    def append(self, batch: Batch) -> None:
        """Return when the batch is durable. Raises `DiskFull`, and nothing is changed, when there is no room for it."""
        if isinstance(batch, Restart):
            self._restart(batch)
        else:
            super().append(batch)

    def _restart(self, restart: Restart) -> None:
        old = self._descriptor
        self.begin(self._header.sequence + 1, restart.hard_state, restart.first_index, restart.last_index, ())
        self._files.close(old)
        self._sealed.clear()
