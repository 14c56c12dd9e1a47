"""Reading the log back when a member starts."""

from __future__ import annotations

import os
from collections.abc import Iterator

from twisted.logger import Logger

from znoded.zab_raft.core.messages import HardState
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.log import Sealed
from znoded.zab_raft.segment import Record, SegmentReader, segment_name, sequence_of

_log = Logger()


class Recovery:
    """What the log holds behind the checkpoint. Read `records` to the end; then the other attributes are right.

    `sequence` is the highest segment's number, `hard_state` the last one stored, `last_index` and `last_term` belong to
    the last entry (those of the checkpoint when the log holds nothing newer). `payloads` is every record with a newer
    entry, the first of which has index `first_index`. `segments` are those that were read.
    """

    def __init__(self, log_path: str, checkpoint_index: int, checkpoint_term: int) -> None:
        self._path = log_path
        self._checkpoint_index = checkpoint_index
        self._checkpoint_term = checkpoint_term
        names = os.listdir(log_path)
        self._sequences = sorted(number for name in names if (number := sequence_of(name)) is not None)
        self.sequence = self._sequences[-1] if self._sequences else 0
        self.hard_state = HardState(checkpoint_term, 0, checkpoint_index)
        self.first_index = checkpoint_index + 1
        self.last_index = checkpoint_index
        self.last_term = checkpoint_term
        self.payloads: list[bytes] = []
        self.segments: list[Sealed] = []

    @property
    def empty(self) -> bool:
        """There is no segment at all."""
        return not self._sequences

    def records(self) -> Iterator[tuple[int, list[bytes]]]:
        """First index and commands of each batch behind the checkpoint, in order.

        Raises `LogDamaged` when an entry that was durable is not there or not whole.
        """
        expected_index = 0
        previous_path = ""
        for reader in self._chain():
            first_index = reader.header.first_index
            if expected_index and first_index != expected_index:
                raise LogDamaged(
                    f"{previous_path} ends before index {expected_index}, but {reader.path} begins with index "
                    f"{first_index}: what lies between is lost; restore the data directory from a backup"
                )
            expected_index, previous_path = first_index, reader.path
            self.hard_state = reader.header.hard_state
            for record in reader.records():
                if record.first_index != expected_index:
                    raise LogDamaged(
                        f"{reader.path} is damaged at offset {record.offset}: "
                        f"it has index {record.first_index} where {expected_index} belongs; "
                        "restore the data directory from a backup"
                    )
                if any(record.kinds):
                    raise LogDamaged(
                        f"{reader.path} was written by a member of a cell; start it with the cell's members in its "
                        "configuration"
                    )
                expected_index += len(record.commands)
                if record.offset >= reader.header.base_bytes:  # before that it is a repetition, the header is newer
                    self.hard_state = record.hard_state
                if expected_index > self._checkpoint_index + 1:
                    yield self._take(record, expected_index)
            if reader.torn_offset is not None:
                _log.warn(
                    "{path} ends at offset {offset} within a batch that was never acknowledged: it is left out",
                    path=reader.path,
                    offset=reader.torn_offset,
                )
            self.segments.append(Sealed(reader.path, expected_index - 1, reader.size_bytes))

    def _take(self, record: Record, next_index: int) -> tuple[int, list[bytes]]:
        if not self.payloads:
            self.first_index = record.first_index
        self.payloads.append(record.payload)
        self.last_index = next_index - 1
        self.last_term = record.last_term
        known = max(0, self._checkpoint_index + 1 - record.first_index)
        return record.first_index + known, record.commands[known:]

    def _chain(self) -> Iterator[SegmentReader]:
        """The segments that count, oldest first: back to the last that replaced all before it, or to a gap.

        Segments from before that are leftovers of a removal that a crash cut short.
        """
        chain: list[SegmentReader] = []
        for sequence in reversed(self._sequences):
            if chain and (chain[0].header.base_bytes or chain[0].header.sequence != sequence + 1):
                break
            chain.insert(0, SegmentReader(os.path.join(self._path, segment_name(sequence))))
        if chain and chain[0].header.first_index > self._checkpoint_index + 1:
            raise LogDamaged(
                f"{chain[0].path} begins with index {chain[0].header.first_index}, but the checkpoint ends with index "
                f"{self._checkpoint_index}: what lies between is lost; restore the data directory from a backup"
            )
        for reader in chain:
            yield reader
            reader.close()
