"""The end of the log that is not known to be durable yet."""

from __future__ import annotations

from collections.abc import Sequence

from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.messages import Entry, Snapshot


class Unstable:
    """Entries from `offset` on, some of them handed out for writing, and perhaps a snapshot to install before them.

    Where the durable log has entries at or behind `offset`, these here are the ones that count.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self._writing_offset = offset
        self._writing_snapshot = False

    @property
    def last_index(self) -> int:
        """That of the last entry; without entries, the one before them."""
        return self.offset + len(self.entries) - 1

    def append(self, entries: Sequence[Entry]) -> None:
        """Put entries at their indexes; what was at or behind the first of them is gone."""
        first = entries[0].index
        place = first - self.offset
        if place > len(self.entries):
            raise InvariantBroken(f"entries from {first} leave a gap behind {self.last_index}")
        if place == len(self.entries):
            self.entries += entries
        elif place <= 0:
            self.offset = self._writing_offset = first
            self.entries = list(entries)
        else:
            self.entries[place:] = entries
            self._writing_offset = min(self._writing_offset, first)

    def restore(self, snapshot: Snapshot) -> None:
        """The snapshot takes the place of all entries."""
        self.offset = self._writing_offset = snapshot.index + 1
        self.entries = []
        self.snapshot = snapshot
        self._writing_snapshot = False

    def take_snapshot(self) -> Snapshot | None:
        """The snapshot to install, once."""
        if self._writing_snapshot:
            return None
        self._writing_snapshot = self.snapshot is not None
        return self.snapshot

    def take_entries(self) -> list[Entry]:
        """The entries to write, each once. They replace everything stored from the first of them on."""
        entries = self.entries[self._writing_offset - self.offset :]
        self._writing_offset += len(entries)
        return entries

    def stable_to(self, index: int, term: int) -> None:
        """Entries up to `index` became durable, if the one at `index` still is of `term`."""
        place = index - self.offset
        if 0 <= place < len(self.entries) and self.entries[place].term == term:
            del self.entries[: place + 1]
            self.offset = index + 1
            self._writing_offset = max(self._writing_offset, self.offset)

    def snapshot_stable(self, index: int) -> bool:
        """The snapshot of `index` became durable. False if a newer one has come."""
        if self.snapshot is None or self.snapshot.index != index:
            return False
        self.snapshot = None
        self._writing_snapshot = False
        return True
