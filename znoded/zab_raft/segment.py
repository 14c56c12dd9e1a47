"""The format of a log segment: a header, then records, then zeros.

All numbers are big-endian. A segment draws a random `salt`; every record begins with it and is checksummed under it, so
that nothing a client can send looks like a record.

    header   magic, format, crc32c of the rest, sequence, salt, first index,
             hard state when the segment began (term, vote, commit), base length
    record   salt, crc32c of the rest, body length, first index, hard state (term, vote, commit), entries, padding to 8
    entries  their number, then column by column their terms, kinds and lengths, then their bytes

A record holds the entries of one batch and the hard state that goes with them: they become durable together or not at
all. In a cell, the entries replace everything from the index of the first of them on.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from znoded.zab_raft.core.messages import Entry, EntryKind, HardState
from znoded.zab_raft.errors import LogDamaged

MAGIC = b"znodelog"
FORMAT = 1
#: The kind of an entry that is a command for the state machine; a lone member has no other.
COMMAND = int(EntryKind.COMMAND)
KINDS = frozenset(map(int, EntryKind))

_HEADER_START = Struct(">8sII")
_HEADER_REST = Struct(">7Q")
_PREFIX = Struct(">QI")
_BODY = Struct(">IQQQQ")
_RECORD = Struct(">QIIQQQQ")
_COUNT = Struct(">I")

HEADER_BYTES = _HEADER_START.size + _HEADER_REST.size
PREFIX_BYTES = _PREFIX.size
RECORD_BYTES = _RECORD.size
ALIGNMENT_BYTES = 8

_NAME = re.compile(r"(\d{16})\.log")


class Record(NamedTuple):
    """A valid record. `offset` and `end` are where it lies in its file, `payload` its bytes behind the checksum."""

    offset: int
    end: int
    first_index: int
    hard_state: HardState
    last_term: int
    commands: list[bytes]
    payload: bytes
    terms: tuple[int, ...]
    kinds: tuple[int, ...]

    def entries(self) -> list[Entry]:
        """What the record holds, as the core knows it; `commands` are their data."""
        columns = zip(count(self.first_index), self.terms, map(EntryKind, self.kinds), self.commands, strict=False)
        return [Entry(*fields) for fields in columns]


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a segment.

    `base_bytes` is 0, or the length with which the segment was made durable before it replaced all older ones; what
    lies within it repeats entries of theirs.
    """

    sequence: int
    salt: int
    first_index: int
    hard_state: HardState
    base_bytes: int

    def encode(self) -> bytes:
        rest = _HEADER_REST.pack(self.sequence, self.salt, self.first_index, *self.hard_state, self.base_bytes)
        return _HEADER_START.pack(MAGIC, FORMAT, crc32c(rest)) + rest

    @classmethod
    def decode(cls, data: bytes, path: str) -> Header:
        """Raise `LogDamaged` unless `data` begins with a valid header of a known format."""
        if len(data) < HEADER_BYTES:
            raise LogDamaged(f"{path} is damaged at offset 0: it ends within its header")
        magic, version, checksum = _HEADER_START.unpack_from(data)
        rest = data[_HEADER_START.size : HEADER_BYTES]
        if magic == MAGIC and version != FORMAT:
            raise LogDamaged(f"{path} has format {version} at offset 8, this version reads format {FORMAT}")
        if magic != MAGIC or crc32c(rest) != checksum:
            raise LogDamaged(f"{path} is damaged at offset 0: its header is not valid")
        sequence, salt, first_index, term, vote, commit, base_bytes = _HEADER_REST.unpack(rest)
        return cls(sequence, salt, first_index, HardState(term, vote, commit), base_bytes)


def segment_name(sequence: int) -> str:
    return f"{sequence:016d}.log"


def sequence_of(name: str) -> int | None:
    """The sequence number in a segment's file name, None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_payload(first_index: int, hard_state: HardState, commands: Sequence[bytes]) -> bytes:
    """The part of a record that does not depend on its segment; the commands are entries of the hard state's term."""
    number = len(commands)
    columns = _columns(number).pack(*repeat(hard_state.term, number), *repeat(COMMAND, number), *map(len, commands))
    return _payload(first_index, hard_state, columns, commands)


def encode_entries(first_index: int, hard_state: HardState, entries: Sequence[Entry]) -> bytes:
    """The same for entries of any terms and kinds; `first_index` is where the next entry belongs if there are none."""
    _, terms, kinds, data = zip(*entries, strict=True) if entries else ((), (), (), ())
    columns = _columns(len(entries)).pack(*terms, *kinds, *map(len, data))
    return _payload(first_index, hard_state, columns, data)


def _payload(first_index: int, hard_state: HardState, columns: bytes, data: Sequence[bytes]) -> bytes:
    body_bytes = _COUNT.size + len(columns) + sum(map(len, data))
    body = _BODY.pack(body_bytes, first_index, *hard_state)
    padding = bytes(-(RECORD_BYTES + body_bytes) % ALIGNMENT_BYTES)
    return b"".join((body, _COUNT.pack(len(data)), columns, *data, padding))


def _columns(number: int) -> Struct:
    """The heads of so many entries, column by column: one call packs a batch."""
    return Struct(f">{number}Q{number}B{number}I")


def record_prefix(salt: int, payload: bytes) -> bytes:
    """What stands before a payload in a segment of this salt."""
    return _PREFIX.pack(salt, crc32c(payload, salt & 0xFFFFFFFF))


class SegmentReader:
    """A segment opened for reading; close it with `close`.

    Once all records were read, `end` is where the last of them ends, and `torn_offset` where an unfinished one begins,
    or None.
    """

    def __init__(self, path: str) -> None:
        """Raise `LogDamaged` when the header is not valid."""
        self.path = path
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise LogDamaged(f"{path} is damaged at offset 0: it is empty")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size_bytes = len(self._data)
        self.header = Header.decode(self._data[:HEADER_BYTES], path)
        self.end = HEADER_BYTES
        self.torn_offset: int | None = None
        self._mark = self.header.salt.to_bytes(8)

    def close(self) -> None:
        self._data.close()

    def records(self) -> Iterator[Record]:
        """All records, in order.

        A record that was being written when the power went may be incomplete: then the records end before it. Raises
        `LogDamaged` at an invalid record that cannot be such a torn tail: it was durable once, or valid records follow.
        """
        offset = HEADER_BYTES
        while record := self._record_at(offset):
            yield record
            offset = record.end
        if offset < self.header.base_bytes or self._has_record_behind(offset):
            raise LogDamaged(
                f"{self.path} is damaged at offset {offset}: the record there is not valid, but what follows it is; "
                "restore the data directory from a backup"
            )
        self.end = offset
        if self._data[offset : offset + len(self._mark)] == self._mark:
            self.torn_offset = offset

    def _record_at(self, offset: int) -> Record | None:
        data, salt = self._data, self.header.salt
        if offset + RECORD_BYTES > len(data):
            return None
        mark, checksum, body_bytes, first_index, term, vote, commit = _RECORD.unpack_from(data, offset)
        end = offset + RECORD_BYTES + body_bytes
        end += -end % ALIGNMENT_BYTES
        if mark != salt or end > len(data):
            return None
        payload = data[offset + PREFIX_BYTES : end]
        if crc32c(payload, salt & 0xFFFFFFFF) != checksum:
            return None
        terms, kinds, commands = self._entries(payload, offset)
        last_term = terms[-1] if terms else 0
        state = HardState(term, vote, commit)
        return Record(offset, end, first_index, state, last_term, commands, payload, terms, kinds)

    def _entries(self, payload: bytes, record_offset: int) -> tuple[tuple[int, ...], tuple[int, ...], list[bytes]]:
        (number,) = _COUNT.unpack_from(payload, _BODY.size)
        columns = _columns(number)
        heads = columns.unpack_from(payload, _BODY.size + _COUNT.size)
        terms, kinds, lengths = heads[:number], heads[number : 2 * number], heads[2 * number :]
        for kind in set(kinds) - KINDS:
            raise LogDamaged(f"{self.path} at offset {record_offset} has an entry of unknown kind {kind}")
        position = _BODY.size + _COUNT.size + columns.size
        commands = []
        for length in lengths:
            commands.append(payload[position : position + length])
            position += length
        return terms, kinds, commands

    def _has_record_behind(self, offset: int) -> bool:
        while (offset := self._data.find(self._mark, offset + 1)) >= 0:
            if offset % ALIGNMENT_BYTES == 0 and self._record_at(offset):
                return True
        return False
