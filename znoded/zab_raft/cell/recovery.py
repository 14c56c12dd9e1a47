"""Reading the log of a cell's member back: its end may not be committed, and may have been replaced more than once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twisted.logger import Logger

from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Entry, HardState, Snapshot, size_bytes
from znoded.zab_raft.core.stored import StoredLog
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.log import Sealed
from znoded.zab_raft.recovery import Recovery
from znoded.zab_raft.segment import Record, SegmentReader, encode_entries

_log = Logger()

TAIL_RECORD_BYTES = 1 << 20


class CellRecovery(Recovery):
    """What the log holds, also before the checkpoint where it is kept for members that lag. Call `read` first.

    `entries` is all of it in order, without what was replaced; the other attributes are those of `Recovery`.
    """

    def __init__(self, log_path: str, checkpoint_index: int, checkpoint_term: int) -> None:
        super().__init__(log_path, checkpoint_index, checkpoint_term)
        self.entries: list[Entry] = []

    def read(self) -> None:
        """Raises `LogDamaged` when something that was durable is not there or not whole."""
        previous_path = ""
        for reader in self._chain():
            if not previous_path:
                self.first_index = reader.header.first_index
            elif reader.header.first_index > self._next_index:
                raise LogDamaged(
                    f"{previous_path} ends before index {self._next_index}, but {reader.path} begins with index "
                    f"{reader.header.first_index}: what lies between is lost; remove this member from the cell, empty "
                    "its data directory and add it again"
                )
            previous_path = reader.path
            self._read_segment(reader)
            self.segments.append(Sealed(reader.path, self._next_index - 1, reader.size_bytes))
        if self.hard_state.commit >= max(self._next_index, self._checkpoint_index + 1):
            raise LogDamaged(
                f"{self._path} ends with index {self._next_index - 1}, but what was committed up to index "
                f"{self.hard_state.commit} was in it; remove this member from the cell, empty its data directory and "
                "add it again"
            )
        self._fit_checkpoint()

    def stored(self, configuration: Configuration) -> StoredLog:
        """The log as the core begins with it; the configuration is the checkpoint's.

        The first entry from before the checkpoint only tells the term in front of the others.
        """
        checkpoint = Snapshot(self._checkpoint_index, self._checkpoint_term, configuration)
        if not self.entries or self.first_index > self._checkpoint_index:
            return StoredLog(checkpoint, self.entries)
        first, *others = self.entries
        stored = StoredLog(Snapshot(first.index, first.term, configuration), others)
        stored.compact(checkpoint, first.index + 1)
        return stored

    def cut_tail(self, limit_bytes: int) -> None:
        """Leave out what is far from the end and only there for members that lag: the log is written again without.

        Else it would grow with each start of a member that writes less than a segment between two of them.
        """
        left_bytes = size_bytes(self.entries)
        place = 0
        while left_bytes > limit_bytes and self.entries[place].index < self._checkpoint_index:
            left_bytes -= size_bytes([self.entries[place]])
            place += 1
        del self.entries[:place]
        self.first_index += place

    def tail(self) -> Iterator[tuple[int, bytes]]:
        """The payloads of records that hold the entries again, each with the last index in it."""
        for entries in _in_portions(self.entries):
            yield entries[-1].index, encode_entries(entries[0].index, self.hard_state, entries)

    @property
    def _next_index(self) -> int:
        return self.first_index + len(self.entries)

    def _read_segment(self, reader: SegmentReader) -> None:
        self.hard_state = reader.header.hard_state
        for record in reader.records():
            is_repetition = record.offset < reader.header.base_bytes
            self._check_place(reader, record, is_repetition)
            if record.commands:
                self._replace_from(record.first_index)
                self.entries += record.entries()
            if not is_repetition:  # otherwise the header is newer
                self.hard_state = record.hard_state
        if reader.torn_offset is not None:
            if reader.header.sequence != self.sequence:  # which is begun when all before it is durable
                raise LogDamaged(
                    f"{reader.path} is damaged at offset {reader.torn_offset}: a segment follows, so that its last "
                    "record was durable; remove this member from the cell, empty its data directory and add it again"
                )
            _log.warn(
                "{path} ends at offset {offset} within a record that was never acknowledged: it is left out",
                path=reader.path,
                offset=reader.torn_offset,
            )

    def _replace_from(self, index: int) -> None:
        """What is here from this index on was never committed.

        It may begin before all that is here: what was in front of that was in a segment that is forgotten.
        """
        if index < self.first_index:
            self.first_index = index
        del self.entries[index - self.first_index :]

    def _check_place(self, reader: SegmentReader, record: Record, is_repetition: bool) -> None:
        """Entries follow what is there or replace its end, but nothing that was committed."""
        least = self._next_index if is_repetition or not record.commands else self.hard_state.commit + 1
        if not least <= record.first_index <= self._next_index:
            raise LogDamaged(
                f"{reader.path} is damaged at offset {record.offset}: it has index {record.first_index} where at most "
                f"{self._next_index} belongs, and at least {least}; remove this member from the cell, empty its data "
                "directory and add it again"
            )

    def _fit_checkpoint(self) -> None:
        """A checkpoint that came from the leader takes the place of a log that does not lead to it."""
        index, term = self._checkpoint_index, self._checkpoint_term
        place = index - self.first_index
        leads_to_it = place == -1 or (0 <= place < len(self.entries) and self.entries[place].term == term)
        if not leads_to_it:
            self.first_index = index + 1
            self.entries = []
            self.segments = []
        state = self.hard_state
        vote = state.vote if state.term >= term else 0
        self.hard_state = HardState(max(state.term, term), vote, max(state.commit, index))
        self.last_index = self._next_index - 1
        self.last_term = self.entries[-1].term if self.entries else term


def _in_portions(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """The entries in portions of about `TAIL_RECORD_BYTES`."""
    begin = portion_bytes = 0
    for place, entry in enumerate(entries):
        portion_bytes += size_bytes([entry])
        if portion_bytes >= TAIL_RECORD_BYTES:
            yield entries[begin : place + 1]
            begin, portion_bytes = place + 1, 0
    if begin < len(entries):
        yield entries[begin:]
