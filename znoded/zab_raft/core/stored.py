"""The part of the log that is durable, as kept in memory, and the newest snapshot in front of it."""

from __future__ import annotations

from collections.abc import Sequence

from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.messages import Entry, Snapshot


class StoredLog:
    """Durable entries without a gap, from some first one to the last, and the newest durable snapshot.

    The entry in front of the first one is gone, but its index and term are kept for matching. The snapshot reaches at
    least as far as that, so that snapshot and entries together have everything.
    """

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry] = ()) -> None:
        self.snapshot = snapshot
        self._base_index = snapshot.index
        self._base_term = snapshot.term
        self._entries: list[Entry] = []
        if entries:
            self.append(entries)

    @property
    def first_index(self) -> int:
        return self._base_index + 1

    @property
    def last_index(self) -> int:
        return self._base_index + len(self._entries)

    def term(self, index: int) -> int | None:
        """The term of an entry; None if it is gone or not there yet."""
        place = index - self._base_index
        if place == 0:
            return self._base_term
        return self._entries[place - 1].term if 0 < place <= len(self._entries) else None

    def slice(self, first_index: int, end_index: int) -> list[Entry]:
        """The entries from `first_index` to before `end_index`."""
        if not self.first_index <= first_index <= end_index <= self.last_index + 1:
            raise InvariantBroken(
                f"entries {first_index} to {end_index} of a log from {self.first_index} to {self.last_index}"
            )
        return self._entries[first_index - self.first_index : end_index - self.first_index]

    def append(self, entries: Sequence[Entry]) -> None:
        """Entries became durable; they replace everything from their first index on."""
        first = entries[0].index
        if not self.first_index <= first <= self.last_index + 1:
            raise InvariantBroken(
                f"entries from {first} are stored, the log goes from {self.first_index} to {self.last_index}"
            )
        del self._entries[first - self.first_index :]
        self._entries += entries

    def restore(self, snapshot: Snapshot) -> None:
        """A snapshot became durable and replaces the whole log."""
        self.snapshot = snapshot
        self._base_index = snapshot.index
        self._base_term = snapshot.term
        self._entries = []

    def compact(self, snapshot: Snapshot, keep_from: int) -> None:
        """A newer snapshot of this log became durable; entries before `keep_from` need not be kept."""
        if snapshot.index < self.snapshot.index:
            raise InvariantBroken(f"a snapshot of {snapshot.index} is older than the one of {self.snapshot.index}")
        if self.term(snapshot.index) != snapshot.term:
            raise InvariantBroken(f"a snapshot of {snapshot.index} in term {snapshot.term} is none of this log")
        self.snapshot = snapshot
        base = min(keep_from - 1, snapshot.index)
        if base > self._base_index:
            base_term = self._entries[base - self.first_index].term
            del self._entries[: base - self._base_index]
            self._base_index, self._base_term = base, base_term
