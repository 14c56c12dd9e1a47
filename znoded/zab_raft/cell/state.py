"""What the checkpoint of a cell's member knows of the cell beside the machine's state.

It is a table of the checkpoint like any of the state machine's, and becomes durable with the state it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from znoded.jute.primitives import (
    JuteError,
    Reader,
    encode_boolean,
    encode_int,
    encode_long,
    encode_ustring,
    encode_vector,
)
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.increment import Changes

CELL_TABLE = b"cell"
_CONFIGURATION = b"configuration"
_FOUNDING_ROSTER = b"founding roster"
_ADDRESSES = b"addresses"
_LONG_BYTES = 8
_LEAST_ADDRESS_BYTES = 16

#: Raft id -> (member number, "host:port" of its peers).
Addresses = Mapping[int, tuple[int, str]]


class CellState(NamedTuple):
    """The configuration at the checkpoint's index, and the members with which the cell was founded.

    A member that joins later knows neither before its first snapshot, but the `addresses` of those who welcomed it.
    """

    configuration: Configuration
    founding_roster: Roster
    addresses: Addresses

    @classmethod
    def founding(cls, roster: Roster) -> CellState:
        """How a cell with these members begins."""
        return cls(roster.configuration, roster, {})

    @classmethod
    def joining(cls, addresses: Addresses) -> CellState:
        """How a member begins that joins later."""
        return cls(Configuration(), Roster(), addresses)

    def changes(self) -> Changes:
        """What puts it into a checkpoint."""
        return {
            CELL_TABLE: {
                _CONFIGURATION: encode_configuration(self.configuration),
                _FOUNDING_ROSTER: self.founding_roster.encode(),
                _ADDRESSES: encode_vector(sorted(self.addresses.items()), _encode_address),
            }
        }

    @classmethod
    def read(cls, read_table: ReadTable) -> CellState | None:
        """What is in a checkpoint, None if it is none of a cell."""
        stored = dict(read_table(CELL_TABLE))
        if not stored:
            return None
        return cls(
            decode_configuration(stored[_CONFIGURATION]),
            Roster.decode(stored[_FOUNDING_ROSTER]),
            dict(Reader(stored[_ADDRESSES]).vector(_read_address, _LEAST_ADDRESS_BYTES) or ()),
        )


def read_cell(read_table: ReadTable) -> CellState:
    """What is in a checkpoint of a cell's member. Raises LogDamaged if it is none."""
    cell = CellState.read(read_table)
    if cell is None:
        raise LogDamaged(
            "the checkpoint knows no cell; remove this member from the cell, empty its data directory and add it again"
        )
    return cell


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


def _encode_address(item: tuple[int, tuple[int, str]]) -> bytes:
    raft_id, (number, address) = item
    return encode_long(raft_id) + encode_int(number) + encode_ustring(address.encode())


def _read_address(reader: Reader) -> tuple[int, tuple[int, str]]:
    return reader.long(), (reader.int(), (reader.ustring() or b"").decode())
