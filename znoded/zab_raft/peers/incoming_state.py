"""A snapshot on its way in: an LMDB environment beside the checkpoint's, which says how far it has come.

Everything here blocks, and runs in a thread; it lets the reactor have the interpreter now and then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Any

import lmdb

from znoded.jute.primitives import JuteError
from znoded.zab_raft.checkpoint import FIRST_MAP_BYTES, TABLES_LIMIT, CheckpointSource
from znoded.zab_raft.files import FILE_MODE, Files
from znoded.zab_raft.increment import give_way
from znoded.zab_raft.peers.snapshot_wire import decode_chunk

_STAMP = Struct(">QQ16s")
_PROGRESS = b"progress of a snapshot on its way in"
_STAMP_KEY, _TABLE_KEY, _KEY_KEY = b"stamp", b"table", b"key"


class IncomingState:
    """What is here of the snapshot of (`index`, `term`) from the data directory with that incarnation.

    `table` and `key` are the last key that is durable; both are empty at the beginning. Anything of another snapshot is
    thrown away. All methods raise lmdb.Error or OSError when the disk does not do its part.
    """

    def __init__(self, path: str, index: int, term: int, incarnation: bytes, files: Files | None = None) -> None:
        self._path = path
        self._index = index
        self._term = term
        self._files = files or Files()
        self._tables: dict[bytes, Any] = {}
        self._files.make_directory(path)
        stamp = _STAMP.pack(index, term, incarnation)
        try:
            self._open()
            found = self._progress(_STAMP_KEY)
        except lmdb.Error:
            found = b""
        if found != stamp:
            self._begin_anew(stamp)
        self.table, self.key = self._progress(_TABLE_KEY), self._progress(_KEY_KEY)

    def write(self, payloads: Sequence[bytes]) -> None:
        """Make chunks durable. Raises JuteError, and nothing is stored, if one is not whole or not in order."""
        chunks = []
        for payload in payloads:
            chunks.append(decode_chunk(payload))
            give_way()
        last_table, last_items = chunks[-1]
        while True:
            try:
                filled = [(self._handle(table), items) for table, items in chunks if items]
                progress = self._handle(_PROGRESS)
                with self._environment.begin(write=True) as transaction:
                    for table, items in filled:
                        _append(transaction, table, items)
                        give_way()
                    transaction.put(_TABLE_KEY, last_table, db=progress)
                    transaction.put(_KEY_KEY, last_items[-1][0] if last_items else b"", db=progress)
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])

    def finish(self) -> None:
        """All is here: turn it into a checkpoint, and close it. Raises JuteError if it is not the announced one."""
        with self._environment.begin(write=True) as transaction:
            transaction.drop(self._handle(_PROGRESS))
        source = CheckpointSource(self._environment)
        position = source.index, source.term
        source.close()
        self._environment.sync(True)
        self.close()
        self._files.sync_directory(self._path)
        if position != (self._index, self._term):
            raise JuteError(f"the snapshot of index {self._index} holds the state of index {position[0]}")

    def close(self) -> None:
        self._environment.close()
        self._tables.clear()

    def _open(self) -> None:
        self._environment = lmdb.open(
            self._path, map_size=FIRST_MAP_BYTES, max_dbs=TABLES_LIMIT, meminit=False, mode=FILE_MODE
        )

    def _begin_anew(self, stamp: bytes) -> None:
        with suppress(AttributeError):  # it may not even have been opened
            self.close()
        for name in os.listdir(self._path):
            self._files.remove(os.path.join(self._path, name))
        self._open()
        progress = self._handle(_PROGRESS)
        with self._environment.begin(write=True) as transaction:
            transaction.put(_STAMP_KEY, stamp, db=progress)

    def _progress(self, key: bytes) -> bytes:
        progress = self._handle(_PROGRESS)
        with self._environment.begin() as transaction:
            value: bytes = transaction.get(key, b"", db=progress)
            return value

    def _handle(self, table: bytes) -> Any:
        """The table's handle. Not for a new table within a transaction: making a table is one of its own."""
        if table not in self._tables:
            self._tables[table] = self._environment.open_db(table)
        return self._tables[table]


def _append(transaction: Any, table: Any, items: Sequence[tuple[bytes, bytes]]) -> None:
    with transaction.cursor(table) as cursor:
        _, added = cursor.putmulti(items, append=True)
    if added != len(items):
        raise JuteError("the keys of a snapshot are not in order")
