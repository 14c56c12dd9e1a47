"""What the checkpoint of a cell's member knows of the cell: its configuration, and what it was founded with.

It is a table of the checkpoint like any of the state machine's, and becomes durable with the state it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from znoded.jute.primitives import JuteError, Reader, encode_boolean, encode_long, encode_vector
from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.increment import Changes

CELL_TABLE = b"cell"
_CONFIGURATION = b"configuration"
_FOUNDING_ROSTER = b"founding roster"
_LONG_BYTES = 8


class CellState(NamedTuple):
    """`configuration` is the one in force at the checkpoint's index, `founding_roster` that of index 0, encoded."""

    configuration: Configuration
    founding_roster: bytes

    def changes(self) -> Changes:
        """What puts it into a checkpoint."""
        return {
            CELL_TABLE: [
                (_CONFIGURATION, encode_configuration(self.configuration)),
                (_FOUNDING_ROSTER, self.founding_roster),
            ]
        }

    @classmethod
    def read(cls, read_table: ReadTable) -> CellState | None:
        """What is in a checkpoint, None if it is none of a cell."""
        stored = dict(read_table(CELL_TABLE))
        if not stored:
            return None
        return cls(decode_configuration(stored[_CONFIGURATION]), stored[_FOUNDING_ROSTER])


def encode_configuration(configuration: Configuration) -> bytes:
    """As jute: the four groups of ids as vectors of longs in order, a boolean, a long."""
    return b"".join(
        (
            _encode_ids(configuration.voters),
            _encode_ids(configuration.outgoing),
            _encode_ids(configuration.learners),
            _encode_ids(configuration.learners_next),
            encode_boolean(configuration.auto_leave),
            encode_long(configuration.highest_id),
        )
    )


def decode_configuration(data: bytes) -> Configuration:
    """Raises ValueError for bytes that are no configuration."""
    reader = Reader(data)
    voters, outgoing, learners, learners_next = [_decode_ids(reader) for _ in range(4)]
    return Configuration(voters, outgoing, learners, learners_next, reader.boolean(), reader.long())


def _encode_ids(ids: Iterable[int]) -> bytes:
    return encode_vector(sorted(ids), encode_long)


def _decode_ids(reader: Reader) -> frozenset[int]:
    ids = reader.vector(Reader.long, _LONG_BYTES)
    if ids is None:
        raise JuteError("not a configuration")
    return frozenset(ids)
