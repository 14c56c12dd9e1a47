"""An increment of the checkpoint: the changes in sorted portions, and its file.

An increment that is too large for one LMDB transaction (whose changed pages live in anonymous memory) is made durable
as a file first. Then several transactions apply it and it still counts as one: a start after a crash finishes the work.

    file      magic, format, crc32c of the rest, log index, term, portions
    portion   table length, number of changes, table, changes
    change    key length, value length (-1: the key is deleted), key, value
"""

from __future__ import annotations

import heapq
import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from znoded.zab_raft.errors import CheckpointDamaged
from znoded.zab_raft.files import Files

#: A key and its new value; `None` when the key is deleted.
Item = tuple[bytes, bytes | None]
#: What changed, by table: keys with their new values.
Changes = Mapping[bytes, Mapping[bytes, bytes | None]]

MAGIC = b"zincrmnt"
FORMAT = 1
#: How the name of an increment ends that is not written yet.
UNFINISHED = ".new"
#: Of items of some hundred bytes, about what is stored in half a millisecond: the turns at the interpreter's lock, one
#: for each portion and step, take longer than small ones.
PORTION_ITEMS = 512
PORTION_BYTES = 1 << 19
GIVE_WAY_S = 0.0001
#: Fewer items are done in an instant, and large values are copied without the interpreter.
FEW_ITEMS = 64
#: How much of the file is synced at a time. The log's syncs, which clients wait for, queue behind it at the device.
SYNC_BYTES = 1 << 18

_START = Struct(">8sII")
_POSITION = Struct(">QQ")
_PORTION = Struct(">II")
_ITEM = Struct(">Ii")
_SORTED_RUN_KEYS = 512


class Portion(NamedTuple):
    """A few changes of one table, in the order of their keys."""

    table: bytes
    items: list[Item]
    size_bytes: int


def give_way(items: int = PORTION_ITEMS) -> None:
    """Let the reactor have the interpreter, after half a millisecond of work beside it at most, work on so many items.

    A real sleep: a thread that lets go for an instant has the interpreter again before one that waits for it wakes up.
    After a few items there is none: whoever comes back from a sleep takes the interpreter from the reactor once more.
    """
    if items > FEW_ITEMS:
        time.sleep(GIVE_WAY_S)


def portions(changes: Changes) -> Iterator[Portion]:
    """All changes in the order of their keys, which lets neighbours share the pages that have to be written.

    Runs beside the reactor: it sorts in short runs, because a sort holds the interpreter from start to end. It sorts
    keys alone and makes each item when its turn comes: all items together would take much memory.
    """
    for table, values in changes.items():
        keys = iter(values)
        runs = []
        while run := sorted(islice(keys, _SORTED_RUN_KEYS)):
            runs.append(run)
            give_way(len(run))
        portion: list[Item] = []
        size_bytes = 0
        for key in heapq.merge(*runs):
            value = values[key]
            portion.append((key, value))
            size_bytes += len(key) + len(value or b"")
            if len(portion) == PORTION_ITEMS or size_bytes >= PORTION_BYTES:
                yield Portion(table, portion, size_bytes)
                give_way(len(portion))
                portion, size_bytes = [], 0
        if portion:
            yield Portion(table, portion, size_bytes)


def write_increment(files: Files, path: str, parts: Iterable[Portion], index: int, term: int) -> None:
    """Put the increment in place durably; a crash or an `OSError` leaves all of it or none."""
    temporary = path + UNFINISHED
    descriptor = files.create(temporary)
    try:
        position = _POSITION.pack(index, term)
        checksum = crc32c(position)
        offset = _START.size + len(position)
        unsynced_bytes = 0
        for portion in parts:
            content = _encode(portion)
            checksum = crc32c(content, checksum)
            files.write(descriptor, offset, [content])
            offset += len(content)
            unsynced_bytes += len(content)
            if unsynced_bytes >= SYNC_BYTES:
                files.sync(descriptor)
                unsynced_bytes = 0
            give_way()
        files.write(descriptor, 0, [_START.pack(MAGIC, FORMAT, checksum), position])
        files.sync(descriptor)
    except OSError:
        files.close(descriptor)
        files.remove(temporary)
        raise
    files.close(descriptor)
    files.rename(temporary, path)
    files.sync_directory(os.path.dirname(path))


class IncrementReader:
    """The increment in a file: `index` and `term` of the state it leads to, and its portions."""

    def __init__(self, path: str) -> None:
        """Raise `CheckpointDamaged` unless the file is whole."""
        damaged = CheckpointDamaged(f"{path} is not valid; restore the data directory from a backup")
        if os.path.getsize(path) < _START.size + _POSITION.size:
            raise damaged
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version, checksum = _START.unpack_from(self._data)
        with memoryview(self._data) as view:
            valid = crc32c(view[_START.size :]) == checksum
        if magic != MAGIC or version != FORMAT or not valid:
            raise damaged
        self.index, self.term = _POSITION.unpack_from(self._data, _START.size)

    def portions(self) -> Iterator[Portion]:
        """All of them, in the order in which they were written."""
        offset = _START.size + _POSITION.size
        while offset < len(self._data):
            portion, offset = self._portion_at(offset)
            yield portion

    def close(self) -> None:
        """Let go of the file."""
        self._data.close()

    def _portion_at(self, offset: int) -> tuple[Portion, int]:
        table_bytes, count = _PORTION.unpack_from(self._data, offset)
        offset += _PORTION.size + table_bytes
        table = self._data[offset - table_bytes : offset]
        start, items = offset, []
        for _ in range(count):
            key_bytes, value_bytes = _ITEM.unpack_from(self._data, offset)
            offset += _ITEM.size + key_bytes
            key = self._data[offset - key_bytes : offset]
            value = None
            if value_bytes >= 0:
                offset += value_bytes
                value = self._data[offset - value_bytes : offset]
            items.append((key, value))
        return Portion(table, items, offset - start), offset


def _encode(portion: Portion) -> bytes:
    pieces = [_PORTION.pack(len(portion.table), len(portion.items)), portion.table]
    for key, value in portion.items:
        pieces.append(_ITEM.pack(len(key), -1 if value is None else len(value)))
        pieces.append(key)
        if value:
            pieces.append(value)
    return b"".join(pieces)
