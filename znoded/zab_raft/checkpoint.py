"""The checkpoint: the state machine's tables in LMDB, brought up to date in increments."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from struct import Struct
from typing import Any
from weakref import WeakSet

import lmdb

from znoded.zab_raft.errors import CheckpointDamaged, CheckpointFailed
from znoded.zab_raft.files import FILE_MODE, Files
from znoded.zab_raft.increment import (
    UNFINISHED,
    Changes,
    IncrementReader,
    Item,
    Portion,
    give_way,
    portions,
    write_increment,
)
from znoded.zab_raft.position import POSITION_KEY, POSITION_TABLE, Position
from znoded.zab_raft.table_digests import DIGESTS_TABLE, DigestDiffers, TableDigests, checked

ReadTable = Callable[[bytes], Iterable[tuple[bytes, bytes]]]

#: Longer keys (LMDB takes 511 bytes) are stored under their hash in a table beside the ordinary one.
KEY_BYTES_LIMIT = 500
#: A transaction holds the pages it changes, often one for each item, in anonymous memory until it is committed; and
#: then the log's syncs queue behind them at the device. An increment that fits in one needs no file of its own.
TRANSACTION_ITEMS = 4096
TRANSACTION_BYTES = 1 << 21
#: Address space, not memory or disk. It is doubled when the checkpoint has filled it.
FIRST_MAP_BYTES = 1 << 30
#: The file that LMDB keeps everything in.
DATA_FILE = "data.mdb"
TABLES_LIMIT = 64
#: All of a value.
WHOLE = slice(None)
_READERS_LIMIT = 16

_KEY_LENGTH = Struct(">I")
_LONG_KEYS = b"long keys of "
#: Which loose items were stored ahead of the rest of an increment: table, NUL, key.
_AHEAD = b"stored ahead"
_SEPARATOR = b"\0"


class Checkpoint:
    """The state as of log index `index`, whose entry has term `term`; (0, 0) when nothing was stored yet.

    All of it rests on LMDB's copy on write: a crash at any moment leaves the last transaction that was committed.
    """

    def __init__(self, path: str, files: Files | None = None, loose_tables: Collection[bytes] = ()) -> None:
        """Open the checkpoint in this directory, and finish the increment that a crash may have cut short.

        `loose_tables` are those of the state machine, see there. Raises `CheckpointFailed`, or `CheckpointDamaged` when
        that increment is not whole.
        """
        self._path = path
        self._files = files or Files()
        self._loose_tables = loose_tables
        self._increment_path = os.path.join(path, "increment")
        self._environment: Any = None
        self._tables: dict[bytes, Any] = {}
        self._sources: WeakSet[CheckpointSource] = WeakSet()
        self._lock = threading.Lock()
        #: Held while the environment is closed or enlarged, which is soon done, and by `get`.
        self._looking = threading.Lock()
        try:
            self._open()
            with suppress(FileNotFoundError):
                self._files.remove(self._increment_path + UNFINISHED)  # of a crash; the log may want its room
            self._files.sync_directory(path)  # LMDB syncs the file it made, but not the file's name
            self._take_position()
            self._finish_increment()
        except (lmdb.Error, OSError) as error:
            self._close()
            raise CheckpointFailed(f"the checkpoint in {path} cannot be opened: {error}") from error
        except CheckpointDamaged:
            self._close()
            raise

    @contextmanager
    def reading(self) -> Iterator[ReadTable]:
        """A function from a table's name to its items, all of the same moment. Each table is read once, at C speed.

        At the end of a table that is not what was stored, it raises `CheckpointDamaged`.
        """
        with self._environment.begin() as transaction:
            yield partial(self._read, transaction, self._sealed_digests(transaction))

    def write(self, changes: Changes, index: int, term: int) -> None:
        """Store the changes, which lead from the last increment to the state as of `index`.

        Atomic and durable when it returns. Raises `CheckpointFailed`; then the next call must hold these changes too.
        """
        with self._lock:
            try:
                self._open()
                self._write(changes, index, term)
            except (lmdb.Error, OSError) as error:
                # LMDB refuses to go on after some failures; a new environment starts from the last good transaction.
                self._close()
                raise CheckpointFailed(f"the checkpoint in {self._path} was not written: {error}") from error
            self.index, self.term = index, term

    def get(self, table: bytes, key: bytes, part: slice = WHOLE) -> bytes | None:
        """A part of a value of a short key as it is stored now, even while an increment is written; any thread may ask.

        None too if the checkpoint is closed, as it is after a failure until the next increment.
        """
        with self._looking:
            if self._environment is None or table not in self._tables:
                return None
            with self._environment.begin(buffers=True) as transaction:
                value: memoryview | None = transaction.get(key, db=self._tables[table])
                return None if value is None else bytes(value[part])

    def backup(self, path: str) -> None:
        """Copy the checkpoint durably to a directory, which is made. Increments wait meanwhile.

        Raises OSError; `CheckpointFailed` when it cannot be read, or the last increment is only half there.
        """
        with self._lock:
            try:
                self._open()
                if os.path.exists(self._increment_path):
                    raise CheckpointFailed(f"the checkpoint in {self._path} waits for room to be completed")
                self._files.make_directory(path)
                self._environment.copy(path, compact=True)
            except lmdb.Error as error:
                raise CheckpointFailed(f"the checkpoint in {self._path} cannot be copied: {error}") from error
            copied_path = os.path.join(path, DATA_FILE)
            os.chmod(copied_path, FILE_MODE)  # LMDB makes it for all to read
            descriptor = self._files.open(copied_path)
            try:
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
            self._files.sync_directory(path)

    def source(self) -> CheckpointSource:
        """A view of the checkpoint as it is now, which holds on to it until it is closed.

        Raises `CheckpointFailed` when the last increment is only half there.
        """
        with self._lock:
            try:
                self._open()
                if os.path.exists(self._increment_path):
                    raise CheckpointFailed(f"the checkpoint in {self._path} waits for room to be completed")
                source = CheckpointSource(self._environment)
                self._sources.add(source)
                return source
            except (lmdb.Error, DigestDiffers) as error:
                raise CheckpointFailed(f"the checkpoint in {self._path} cannot be read: {error}") from error

    def install(self, path: str) -> None:
        """Put the checkpoint in the directory `path` in the place of this one, durably; a crash leaves either, whole.

        It is closed and was not opened since it was synced. Raises `CheckpointFailed`, and this one stays.
        """
        with self._lock:
            self._close()
            try:
                self._files.rename(os.path.join(path, DATA_FILE), os.path.join(self._path, DATA_FILE))
                self._files.sync_directory(self._path)
                self._open()
                self._take_position()
                if os.path.exists(self._increment_path):
                    self._remove_increment()  # what it belongs to is gone
            except (lmdb.Error, OSError) as error:
                self._close()
                raise CheckpointFailed(f"the checkpoint in {path} cannot be put in place: {error}") from error

    def close(self) -> None:
        """Close the environment, once an increment that is being written is stored."""
        with self._lock:
            self._close()

    def _write(self, changes: Changes, index: int, term: int) -> None:
        changes = self._store_ahead(changes)
        groups = _transactions(_stored(portions(changes)))
        first, second = next(groups, []), next(groups, [])
        if second or os.path.exists(self._increment_path):
            parts = itertools.chain(first, second, itertools.chain.from_iterable(groups))
            write_increment(self._files, self._increment_path, parts, index, term)
            # Sorted once more: to keep all portions meanwhile would take much memory.
            self._apply_increment(_transactions(_stored(portions(changes))), index, term)
        else:
            self._commit(first, index, term)

    def _store_ahead(self, changes: Changes) -> Changes:
        """Store the new items of loose tables and return the other changes, which need not count as one with them.

        Most of an increment may be such items, and what counts as one is written twice. If there is a crash before the
        rest is stored, the next increment deletes those that it does not have.
        """
        noted = self._noted()
        deleted: dict[bytes, dict[bytes, bytes | None]] = {table: {} for table, _ in noted}
        ahead: dict[bytes, dict[bytes, bytes]] = {}
        for table in self._loose_tables:
            for key, value in changes.get(table, {}).items():
                if value is None:
                    deleted.setdefault(table, {})[key] = None
                else:
                    ahead.setdefault(table, {})[key] = value
        for group in _transactions(portions(ahead)):
            notes = [(table, key) for table, items, _ in group for key, _ in items]
            self._commit([*group, _notes(notes, b"")], self.index, self.term)
            noted += notes
        for table, key in noted:
            if key not in ahead.get(table, ()):
                deleted[table][key] = None
        rest = {table: items for table, items in changes.items() if table not in self._loose_tables}
        return {**rest, **deleted, _AHEAD: dict(_notes(noted, None).items)}

    def _noted(self) -> list[tuple[bytes, bytes]]:
        """Tables and keys of the loose items that are stored and may belong to no increment that is."""
        with self._environment.begin() as transaction:
            handle = self._existing(transaction, _AHEAD)
            notes = [] if handle is None else list(transaction.cursor(handle).iternext(values=False))
        return [(table, key) for table, _, key in (note.partition(_SEPARATOR) for note in notes)]

    def _apply_increment(self, groups: Iterable[list[Portion]], index: int, term: int) -> None:
        """Every change may be made twice, so it does not matter how far an earlier try came."""
        for group in groups:
            self._commit(group, self.index, self.term)
        self._commit([], index, term)
        self._remove_increment()

    def _remove_increment(self) -> None:
        self._files.remove(self._increment_path)
        self._files.sync_directory(self._path)

    def _finish_increment(self) -> None:
        if not os.path.exists(self._increment_path):
            return
        increment = IncrementReader(self._increment_path)
        if increment.index > self.index:
            self._apply_increment(_transactions(increment.portions()), increment.index, increment.term)
            self.index, self.term = increment.index, increment.term
        else:  # a checkpoint that was put in its place has overtaken it
            self._remove_increment()
        increment.close()

    def _commit(self, group: list[Portion], index: int, term: int) -> None:
        """Make the changes and the position durable in one transaction."""
        while True:
            try:
                puts = [(portion.table, self._table(portion.table), portion.items) for portion in group]
                position_table, digests_table = self._table(POSITION_TABLE), self._table(DIGESTS_TABLE)
                with self._environment.begin(write=True) as transaction:
                    digests = TableDigests(transaction, digests_table)
                    for name, table, items in puts:
                        if name not in self._loose_tables:
                            digests.carry_on(name, table, items)
                        _put(transaction, table, items)
                    position = Position(index, term, digests.seal)
                    transaction.put(POSITION_KEY, position.encode(), db=position_table)
                return
            except lmdb.MapFullError:
                self._grow()

    def _grow(self) -> None:
        """Double the map. LMDB takes the old one away, and who reads there must have ended."""
        self._end_sources()
        with self._looking:
            self._environment.set_mapsize(2 * self._environment.info()["map_size"])

    def _end_sources(self) -> None:
        for source in list(self._sources):
            source.close()

    def _read(self, transaction: Any, digests: Mapping[bytes, int], table: bytes) -> Iterable[tuple[bytes, bytes]]:
        long = (_unhashed(value) for _, value in self._checked(transaction, digests, _LONG_KEYS + table))
        return itertools.chain(self._checked(transaction, digests, table), long)

    def _checked(self, transaction: Any, digests: Mapping[bytes, int], table: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All items of a stored table. Raises `CheckpointDamaged` before the last of them."""
        return itertools.chain.from_iterable(self._checked_chunks(transaction, digests.get(table, 0), table))

    def _checked_chunks(self, transaction: Any, digest: int, table: bytes) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        try:
            handle = self._existing(transaction, table)
            yield from checked(() if handle is None else transaction.cursor(handle), digest)
        except (DigestDiffers, lmdb.Error) as error:
            raise self._damaged(table, error) from error

    def _damaged(self, table: bytes, error: object) -> CheckpointDamaged:
        return CheckpointDamaged(
            f"{os.path.join(self._path, DATA_FILE)} is damaged, table {table.decode()!r} is not what was stored: "
            f"{error}; restore the data directory from a backup"
        )

    def _existing(self, transaction: Any, table: bytes) -> Any | None:
        try:
            return self._environment.open_db(table, txn=transaction, create=False)
        except lmdb.NotFoundError:
            return None

    def _position(self, transaction: Any) -> Position:
        handle = self._existing(transaction, POSITION_TABLE)
        stored = None if handle is None else transaction.get(POSITION_KEY, db=handle)
        try:
            return Position.decode(stored)
        except DigestDiffers as error:
            raise self._damaged(POSITION_TABLE, error) from error

    def _sealed_digests(self, transaction: Any) -> Mapping[bytes, int]:
        digests = TableDigests(transaction, self._existing(transaction, DIGESTS_TABLE))
        if digests.seal != self._position(transaction).seal:
            raise self._damaged(DIGESTS_TABLE, "its digest is another")
        return digests.by_table

    def _take_position(self) -> None:
        with self._environment.begin() as transaction:
            position = self._position(transaction)
        self.index, self.term = position.index, position.term

    def _table(self, name: bytes) -> Any:
        """The table's handle. Not for use within a transaction: making a table is one of its own."""
        if name not in self._tables:
            self._tables[name] = self._environment.open_db(name)
        return self._tables[name]

    def _open(self) -> None:
        if self._environment is not None:
            return
        self._environment = lmdb.open(
            self._path,
            map_size=FIRST_MAP_BYTES,
            max_dbs=TABLES_LIMIT,
            max_readers=_READERS_LIMIT,
            meminit=False,
            mode=FILE_MODE,
        )
        with self._environment.begin() as transaction:
            names = list(transaction.cursor().iternext(values=False))
        for name in names:
            self._table(name)

    def _close(self) -> None:
        self._end_sources()  # LMDB must not be in use elsewhere when it is closed
        with self._looking:
            if self._environment is not None:
                self._environment.close()
                self._environment = None
                self._tables.clear()


class CheckpointSource:
    """A read transaction: all tables as they are stored, long keys hashed, as of one moment.

    `index` and `term` say where in the log that moment is. Any thread may use it. It may end at any time, when the
    checkpoint it belongs to is closed or needs a larger map: then calls raise `CheckpointFailed`.
    """

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._transaction = environment.begin()
        self._turn = threading.Lock()
        stored = dict(self.read(POSITION_TABLE)).get(POSITION_KEY)
        position = Position.decode(stored)
        self.index, self.term = position.index, position.term

    def tables(self) -> list[bytes]:
        """The names of all tables."""
        with self._turn, self._open().cursor() as cursor:
            return list(cursor.iternext(values=False))

    def read(self, table: bytes) -> list[tuple[bytes, bytes]]:
        """All items of a small table."""
        return self.items(table, b"", sys.maxsize)

    def items(self, table: bytes, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next items, at most `count`, in the order of their keys, behind the key `after`, which may be empty."""
        with self._turn:
            transaction = self._open()
            try:
                handle = self._environment.open_db(table, txn=transaction, create=False)
            except lmdb.NotFoundError:
                return []
            with transaction.cursor(handle) as cursor:
                if not (cursor.set_range(after) if after else cursor.first()):
                    return []
                if after and cursor.key() == after and not cursor.next():
                    return []
                return list(itertools.islice(cursor.iternext(), count))

    def close(self) -> None:
        """Let go of the checkpoint; to be closed twice does no harm."""
        with self._turn:
            if self._transaction is not None:
                self._transaction.abort()
                self._transaction = None

    def _open(self) -> Any:
        if self._transaction is None:
            raise CheckpointFailed("the checkpoint was closed, or grew, while it was read")
        return self._transaction


def _transactions(parts: Iterable[Portion]) -> Iterator[list[Portion]]:
    """Groups of portions that are small enough for one transaction."""
    group: list[Portion] = []
    items = size_bytes = 0
    for portion in parts:
        items += len(portion.items)
        size_bytes += portion.size_bytes
        if group and (items > TRANSACTION_ITEMS or size_bytes > TRANSACTION_BYTES):
            yield group
            group, items, size_bytes = [], len(portion.items), portion.size_bytes
        group.append(portion)
    if group:
        yield group


def _notes(keys: Iterable[tuple[bytes, bytes]], value: bytes | None) -> Portion:
    """Notes of loose items to be made, or to be deleted."""
    items = [(table + _SEPARATOR + key, value) for table, key in keys]
    return Portion(_AHEAD, items, 0)


def _put(transaction: lmdb.Transaction, table: Any, items: list[Item]) -> None:
    with transaction.cursor(table) as cursor:
        cursor.putmulti([(key, value) for key, value in items if value is not None])
    for key, value in items:
        if value is None:
            transaction.delete(key, db=table)
    give_way(len(items))


def _stored(parts: Iterable[Portion]) -> Iterator[Portion]:
    """The portions as they are stored: long keys in a table of their own, under their hash."""
    for part in parts:
        long = [item for item in part.items if len(item[0]) > KEY_BYTES_LIMIT]
        if long:
            short = [item for item in part.items if len(item[0]) <= KEY_BYTES_LIMIT]
            yield Portion(_LONG_KEYS + part.table, [_hashed(item) for item in long], part.size_bytes)
            yield Portion(part.table, short, 0)
        else:
            yield part


def _hashed(item: Item) -> Item:
    key, value = item
    stored = None if value is None else _KEY_LENGTH.pack(len(key)) + key + value
    return hashlib.sha256(key).digest(), stored


def _unhashed(stored: bytes) -> tuple[bytes, bytes]:
    (key_bytes,) = _KEY_LENGTH.unpack_from(stored)
    end = _KEY_LENGTH.size + key_bytes
    return stored[_KEY_LENGTH.size : end], stored[end:]
