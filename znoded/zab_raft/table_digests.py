"""Digests of the checkpoint's tables: LMDB's pages carry no checksum, and a disk may return what was never written.

The digest of a table is the sum of the checksums of its items. It does not depend on their order, so each transaction
carries it on by what it puts and removes, and whoever reads a whole table can tell that it is the one that was written.
The digests are a table too; the digest of that one, the seal, lies with the position of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Any

from crc32c import crc32c

from znoded.zab_raft.increment import Item

#: Stored table -> its digest.
DIGESTS_TABLE = b"digests"

_DIGEST = Struct(">Q")
_WRAP = 1 << 64
#: Items that are read at once, to be checksummed while they are in the processor's cache.
_CHUNK_ITEMS = 1024


class DigestDiffers(Exception):
    """A table does not hold what was stored in it."""


def digest_of(items: Sequence[tuple[bytes, bytes]]) -> int:
    """What these items add to the digest of their table. All of it runs at C speed, since a start waits for it."""
    return sum(map(crc32c, map(b"".join, items)))


class TableDigests:
    """The digests as a transaction sees them."""

    def __init__(self, transaction: Any, handle: Any | None) -> None:
        """`handle` is that of the table of digests, None when there is none."""
        self._transaction = transaction
        stored = [] if handle is None else list(transaction.cursor(handle))
        self._handle = handle
        self.by_table = {table: int(_DIGEST.unpack(digest)[0]) for table, digest in stored}

    @property
    def seal(self) -> int:
        """The digest of the digests that are stored."""
        return digest_of([(table, _DIGEST.pack(digest)) for table, digest in self.by_table.items()]) % _WRAP

    def carry_on(self, table: bytes, handle: Any, items: Sequence[Item]) -> None:
        """Take account of changes that are about to be made to a table."""
        with self._transaction.cursor(handle) as cursor:
            replaced = cursor.getmulti([key for key, _ in items])
        added = [(key, value) for key, value in items if value is not None]
        digest = (self.by_table.get(table, 0) + digest_of(added) - digest_of(replaced)) % _WRAP
        self.by_table[table] = digest
        self._transaction.put(table, _DIGEST.pack(digest), db=self._handle)


def checked(items: Iterable[tuple[bytes, bytes]], digest: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """All items of a table, many at a time. Raises DigestDiffers before the last of them.

    So nobody comes to see the items of a damaged table if they are few.
    """
    found = 0
    last: Sequence[tuple[bytes, bytes]] = ()
    for chunk in _chunks(items):
        yield last
        found += digest_of(chunk)
        last = chunk
    if found % _WRAP != digest:
        raise DigestDiffers("its digest is another")
    yield last


def _chunks(items: Iterable[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    rest = iter(items)
    while chunk := list(islice(rest, _CHUNK_ITEMS)):
        yield chunk
