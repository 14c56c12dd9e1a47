"""A segment of the history: some blocks in a row that are in the checkpoint, and a directory of whom they are about.

The directory is the sorted list of the paths that the blocks touch, each with the number of the block and how it
touches the znode. It lies in the checkpoint too, cut into pages; the first path of each page is kept here.

All blocks of a segment are one value of the checkpoint, and so are all pages: what a store costs is counted by values
more than by bytes. Readers want a part of them, a block or a page, which has its own checksum.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from znoded.jute.primitives import Reader, encode_strings
from znoded.tree.history_block import SEPARATOR

#: The table, the key and where in the value: that part, None if the value is not there or cannot be read now.
ReadStored: TypeAlias = Callable[[bytes, bytes, slice], bytes | None]

BLOCKS, DIRECTORIES, SEGMENTS = b"history", b"history_paths", b"history_segments"
#: Those whose items only the segments refer to: they can be stored before them.
LOOSE_TABLES = (BLOCKS, DIRECTORIES)

#: A block in its segment is told by a byte that can be neither of those between paths and lines.
BLOCKS_MOST = 200
_FIRST_NUMBER = 32
_LINE_END = b"\1"
#: About so long are the pages of a directory.
PAGE_BYTES = 3_900
#: So much of the first path of a page is kept.
TOP_BYTES = 200
#: How a block touches a path: it was not there before, it changed itself, only its children did.
ABSENT, CHANGED, OF_CHILDREN = b"-+."

_KEY = struct.Struct(">qI")
_CHECKSUM = struct.Struct(">I")
_FIGURES = struct.Struct(">qqq")


class Unreadable(Exception):
    """The checkpoint cannot be read now, or does not hold what was stored in it."""


def with_checksum(data: bytes) -> bytes:
    """How blocks and directories are stored: the rest of the checkpoint is checked when it is loaded, these are not."""
    return _CHECKSUM.pack(crc32c(data)) + data


def without_checksum(stored: bytes | memoryview) -> bytes:
    """What `with_checksum` was given."""
    return bytes(stored[_CHECKSUM.size :])


def ends_of(parts: Iterable[bytes | memoryview]) -> list[int]:
    """Where the parts end when they are joined."""
    return list(accumulate(map(len, parts)))


def block_key(revision: int, part: int) -> bytes:
    """The key of a block by its first revision. `part` tells blocks apart that begin with the same."""
    return _KEY.pack(revision, part)


def first_revision(key: bytes) -> int:
    """The first revision in the block with that key."""
    revision: int = _KEY.unpack(key)[0]
    return revision


def directory_lines(names: bytes, number: int, how: int) -> list[bytes]:
    """What the directory has of paths, with a NUL after each, that the block of that number in its segment touches."""
    suffix = bytes((_FIRST_NUMBER + number, how))
    return names.replace(SEPARATOR, SEPARATOR + suffix + _LINE_END).split(_LINE_END)[:-1]


class Touch(NamedTuple):
    """A path that a block touches, the key of the block, and how."""

    path: bytes
    key: bytes
    how: int


class Segment(NamedTuple):
    """What is kept of a segment in memory.

    `keys` are those of its blocks, `block_ends` where they end in the value; of the pages there are the first paths,
    `tops`, and `page_ends`.
    """

    keys: list[bytes]
    block_ends: Sequence[int]
    last_revision: int
    last_time_ms: int
    size_bytes: int
    tops: list[bytes]
    page_ends: Sequence[int]

    @property
    def key(self) -> bytes:
        """The key of the segment, its blocks and its directory: that of its first block."""
        return self.keys[0]

    def encode(self) -> bytes:
        """As it is stored, under its key."""
        figures = _FIGURES.pack(self.last_revision, self.last_time_ms, self.size_bytes)
        ends = _ends(len(self.keys) + len(self.tops)).pack(*self.block_ends, *self.page_ends)
        return b"".join((figures, encode_strings(self.keys), encode_strings(self.tops), ends))

    def block(self, key: bytes, read: ReadStored) -> bytes:
        """The block with that key. Raises Unreadable."""
        number = bisect_left(self.keys, key)
        if self.keys[number : number + 1] != [key]:
            raise Unreadable(f"there is no block {key.hex()} any more")
        return self._part(read, BLOCKS, self.block_ends, number)

    def _part(self, read: ReadStored, table: bytes, ends: Sequence[int], number: int) -> bytes:
        part = slice(ends[number - 1] if number else 0, ends[number])
        value = read(table, self.key, part)
        if value is None:
            raise Unreadable(f"{self.key.hex()} of table {table.decode()} cannot be read now")
        data = without_checksum(value)
        if _CHECKSUM.pack(crc32c(data)) != value[: _CHECKSUM.size]:
            raise Unreadable(f"part {number} of {self.key.hex()} of table {table.decode()} is not what was stored")
        return data

    def keys_after(self, revision: int) -> list[bytes]:
        """The blocks that may hold a change after `revision`."""
        # The last block that begins no later may go on after it.
        start = bisect_left(self.keys, block_key(revision + 1, 0))
        return self.keys[max(0, start - 1) :]

    def touches_of(self, path: bytes, read: ReadStored) -> Iterator[Touch]:
        """How the blocks touch `path`, in order. Raises Unreadable."""
        needle = path + SEPARATOR
        for page in self._pages(path, read):
            if needle in page:
                paths, suffixes = _unpack(page)
                at = bisect_left(paths, path)
                while at < len(paths) and paths[at] == path:
                    number, how = suffixes[at]
                    yield Touch(path, self.keys[number - _FIRST_NUMBER], how)
                    at += 1

    def touches(self, low: bytes, high: bytes, read: ReadStored) -> Iterator[Touch]:
        """What the directory has of the paths from `low` on and below `high`, sorted. Raises Unreadable."""
        if low >= high:
            return
        for page in self._pages(low, read, high):
            paths, suffixes = _unpack(page)
            for at in range(bisect_left(paths, low), bisect_left(paths, high)):
                number, how = suffixes[at]
                yield Touch(paths[at], self.keys[number - _FIRST_NUMBER], how)

    def blocks_about(self, path: bytes, read: ReadStored) -> set[bytes]:
        """The keys of the blocks that touch `path`, given without a slash at the end, or what is below it.

        Raises Unreadable.
        """
        numbers: set[int] = set()
        for low, high in ((path, path + SEPARATOR), (path + b"/", path + b"0")):
            for page in self._pages(low, read, high):
                if len(numbers) == len(self.keys):
                    break
                paths, suffixes = _unpack(page)
                numbers.update([suffix[0] for suffix in suffixes[bisect_left(paths, low) : bisect_left(paths, high)]])
        return {self.keys[number - _FIRST_NUMBER] for number in numbers}

    def _pages(self, low: bytes, read: ReadStored, high: bytes | None = None) -> Iterator[bytes]:
        """The pages that may hold paths from `low` on; those of `low` alone if there is no `high`."""
        tops = self.tops
        start = max(0, bisect_left(tops, low[:TOP_BYTES]) - 1)
        for number in range(start, len(tops)):
            top = tops[number]
            if number > start and (top > low[:TOP_BYTES] if high is None else top >= high):
                return
            yield self._part(read, DIRECTORIES, self.page_ends, number)


def decode_segment(value: bytes) -> Segment:
    """A segment as it is stored."""
    reader = Reader(value)
    last_revision, last_time_ms, size_bytes = reader.unpack(_FIGURES)
    keys, tops = reader.strings() or [], reader.strings() or []
    ends = reader.unpack(_ends(len(keys) + len(tops)))
    return Segment(keys, ends[: len(keys)], last_revision, last_time_ms, size_bytes, tops, ends[len(keys) :])


def _ends(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")


def make_directory(lines: list[bytes]) -> list[bytes]:
    """The pages of a directory made of the `directory_lines` of all blocks."""
    lines.sort()
    lines_each = max(1, PAGE_BYTES * len(lines) // (sum(map(len, lines)) + len(lines)))
    return [SEPARATOR.join(lines[start : start + lines_each]) for start in range(0, len(lines), lines_each)]


def tops_of(pages: Iterable[bytes]) -> list[bytes]:
    """The beginnings of the first paths of pages."""
    return [page[: page.index(SEPARATOR)][:TOP_BYTES] for page in pages]


def _unpack(page: bytes) -> tuple[list[bytes], list[bytes]]:
    pieces = page.split(SEPARATOR)
    return pieces[::2], pieces[1::2]
