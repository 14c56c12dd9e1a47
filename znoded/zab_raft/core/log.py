"""The log as the protocol sees it: the unstable end over the durable part, and how far it is committed and applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from znoded.zab_raft.core.errors import InvariantBroken, LostTail
from znoded.zab_raft.core.messages import ENTRY_OVERHEAD_BYTES, Entry, EntryKind, Snapshot
from znoded.zab_raft.core.stored import StoredLog
from znoded.zab_raft.core.unstable import Unstable


class RaftLog:
    """Always applied <= handed_out <= committed <= last_index, and nothing is handed out before it is durable here."""

    def __init__(self, stored: StoredLog, committed: int) -> None:
        self.stored = stored
        self.unstable = Unstable(stored.last_index + 1)
        self.committed = max(committed, stored.snapshot.index)
        self.applied = stored.snapshot.index
        self.handed_out = self.applied
        if self.committed > self.last_index:
            raise InvariantBroken(f"committed up to {self.committed}, but the log ends at {self.last_index}")

    @property
    def first_index(self) -> int:
        """The first entry that is still there; its predecessor's term is known."""
        snapshot = self.unstable.snapshot
        return snapshot.index + 1 if snapshot else self.stored.first_index

    @property
    def last_index(self) -> int:
        return self.unstable.last_index

    @property
    def last_term(self) -> int:
        term = self.term(self.last_index)
        if term is None:
            raise InvariantBroken(f"the last entry {self.last_index} has no term")
        return term

    @property
    def stable_index(self) -> int:
        """Everything up to here is durable."""
        return self.unstable.offset - 1

    def term(self, index: int) -> int | None:
        """The term of an entry; None if it is gone or not there yet."""
        unstable = self.unstable
        place = index - unstable.offset
        if place >= 0:
            return unstable.entries[place].term if place < len(unstable.entries) else None
        if unstable.snapshot:
            return unstable.snapshot.term if index == unstable.snapshot.index else None
        return self.stored.term(index)

    def matches(self, index: int, term: int) -> bool:
        return self.term(index) == term

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """A log that ends so is at least as far as this one (Raft paper 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def slice(self, first_index: int, end_index: int, most_bytes: int) -> list[Entry]:
        """Entries from `first_index` to before `end_index`; of several, no more than `most_bytes`."""
        offset = self.unstable.offset
        end_index = min(end_index, first_index + most_bytes // ENTRY_OVERHEAD_BYTES + 1)  # no more can fit
        entries: list[Entry] = []
        if first_index < min(end_index, offset):
            entries = self.stored.slice(first_index, min(end_index, offset))
        if end_index > max(first_index, offset):
            entries = entries + self.unstable.entries[max(first_index - offset, 0) : end_index - offset]
        return _limited(entries, most_bytes)

    def append(self, entries: Sequence[Entry]) -> None:
        """Put entries at their indexes, the first of which follows some entry that is there."""
        if entries[0].index <= self.committed:
            raise InvariantBroken(f"entry {entries[0].index} is replaced, but up to {self.committed} all is committed")
        self.unstable.append(entries)

    def try_append(self, previous_index: int, previous_term: int, entries: Sequence[Entry], commit: int) -> int | None:
        """Take a leader's entries if they fit behind what is here: the last index that surely matches, or None.

        Only what differs is replaced: an old request never takes entries away (Raft paper 5.3).
        """
        if not self.matches(previous_index, previous_term):
            return None
        last_index = previous_index + len(entries)
        for place, entry in enumerate(entries):
            if not self.matches(entry.index, entry.term):
                self.append(entries[place:])
                break
        self.commit_to(min(commit, last_index))
        return last_index

    def last_possible_match(self, index: int, term: int) -> tuple[int, int]:
        """The last entry at or before `index` of at most `term`, and its term: no later one can match such a log.

        The term is 0 if the entry is gone.
        """
        while True:
            found = self.term(index)
            if found is None or found <= term:
                return index, found or 0
            index -= 1

    def commit_to(self, index: int) -> None:
        """Everything up to `index` is known to be committed."""
        if index <= self.committed:
            return
        if index > self.last_index:
            raise LostTail(
                f"the leader knows entries up to {index} to be stored here, the log ends at {self.last_index}: this"
                " member lost what it had acknowledged; remove it, wipe it, and let it join under a new id"
            )
        self.committed = index

    def stable_to(self, index: int, term: int) -> None:
        self.unstable.stable_to(index, term)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by the snapshot."""
        if snapshot.index <= self.committed:
            raise InvariantBroken(f"a snapshot of {snapshot.index}, but up to {self.committed} all is committed")
        self.unstable.restore(snapshot)
        self.committed = snapshot.index

    def snapshot_stable(self, snapshot: Snapshot) -> None:
        """The snapshot became durable and is the machine's state."""
        self.stored.restore(snapshot)
        if self.unstable.snapshot_stable(snapshot.index):
            self.applied = self.handed_out = snapshot.index

    def take_committed(self, most_bytes: int) -> list[Entry]:
        """Entries to apply next, each once: committed, and durable here."""
        last = min(self.committed, self.stable_index)
        if self.unstable.snapshot is not None or last <= self.handed_out:
            return []
        entries = self.slice(self.handed_out + 1, last + 1, most_bytes)
        self.handed_out = entries[-1].index
        return entries

    def applied_to(self, index: int) -> None:
        if not self.applied <= index <= self.handed_out:
            raise InvariantBroken(f"applied up to {index}: {self.applied} were, {self.handed_out} were handed out")
        self.applied = index

    def changes(self, first_index: int, end_index: int) -> Iterator[Entry]:
        """The changes of the configuration among these entries."""
        entries = self.slice(first_index, end_index, 1 << 62) if first_index < end_index else []
        return (entry for entry in entries if entry.kind is EntryKind.CONFIGURATION)

    def check_changes(self) -> None:
        """Raise unless at most one change of the configuration is not committed: each is proposed behind the last."""
        changes = list(self.changes(max(self.committed + 1, self.first_index), self.last_index + 1))
        if len(changes) > 1:
            raise InvariantBroken(f"changes at {[entry.index for entry in changes]}, and none is committed")


def _limited(entries: list[Entry], most_bytes: int) -> list[Entry]:
    size_bytes = 0
    for count, entry in enumerate(entries):
        size_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
        if size_bytes > most_bytes and count:
            return entries[:count]
    return entries
