"""Changes in a row, as columns: packed into bytes to be kept, or as they were recorded.

packed  int count, int length of the paths, int length of the ACLs
        longs: revisions · longs: times in ms · ints: lengths of the znodes before, then after · a byte each: kinds
        shorts: 0 or the place of an ACL in the list, nothing if there are none · paths with NULs between them
        ACLs, each as int length and vector of entries · 32 bytes for each creation and deletion
        znodes before · znodes after, for the last change of each path and for quotas: for others the next one has it
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from znoded.jute.ops import EventType
from znoded.jute.primitives import Reader, encode_buffer
from znoded.jute.records import ACL_VECTOR
from znoded.tree.acl import Acls, size_bytes
from znoded.tree.paths import parent_of
from znoded.tree.quota import ROOT_SLASH


class ChangeKind(IntEnum):
    """What became of a znode; the numbers are those of the event types, as far as there is an event."""

    CREATED = EventType.NODE_CREATED
    DELETED = EventType.NODE_DELETED
    DATA_CHANGED = EventType.NODE_DATA_CHANGED
    ACL_CHANGED = 16


#: Revision, time in ms, kind, path, the znode before and after or nothing, its ACL (of one created, the new one; of an
#: ACL that changed, the old one), and of a creation or deletion the end of the parent's Stat before, see PARENT_END.
Record: TypeAlias = tuple[int, int, int, bytes, bytes, bytes, Acls | None, bytes]

#: What of a parent's bytes the creation or deletion of a child changes, together with what lies between.
PARENT_END = slice(-32, None)
#: Stands for an ACL that is too long to be kept: whom it let read, nobody knows.
NOBODY: Acls = ()
ACL_BYTES_MOST = 64 * 1024
#: Between the paths, since it cannot be in one.
SEPARATOR = b"\0"

CREATED, DELETED, DATA_CHANGED, ACL_CHANGED = map(int, ChangeKind)
_HEAD = struct.Struct(">III")
_END_BYTES = 32


def kept_acl(acl: Acls | None) -> Acls | None:
    """The ACL, or NOBODY for one that is too long to be kept."""
    if acl is None or size_bytes(acl) <= ACL_BYTES_MOST:
        return acl
    return NOBODY


def _pack_acls(acls: Sequence[Acls | None]) -> tuple[bytes, bytes]:
    places: dict[Acls, int] = {}
    for acl in acls:
        if acl is not None:
            places.setdefault(acl, len(places) + 1)
    numbers = struct.pack(f">{len(acls)}H", *(0 if acl is None else places[acl] for acl in acls))
    return numbers, b"".join(encode_buffer(ACL_VECTOR.encode(kept_acl(acl))) for acl in places)


class Touched(NamedTuple):
    """Paths: of znodes that were not there before, of others that changed, of those of which only the children did."""

    absent: Collection[bytes]
    changed: Collection[bytes]
    of_children: Collection[bytes]


class Block:
    """Changes in the order of their revisions, to be looked into. This one is made of records."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.revisions: Sequence[int]
        self.paths: Sequence[bytes]
        columns = zip(*records, strict=True)
        self.revisions, self._times, kinds, self.paths, self._befores, self._afters, *others = columns
        self._block_acls, self._parent_ends = others
        self.kinds = bytes(kinds)

    def pack(self) -> bytes:
        """The packed form."""
        count = len(self.kinds)
        paths, acls = SEPARATOR.join(self.paths), self._block_acls
        numbers, acl_list = (b"", b"") if acls.count(None) == count else _pack_acls(acls)
        afters: Sequence[bytes] = self._afters
        if len(self._last_places) < count:
            afters = some = [b""] * count
            for place in self._last_places.values():
                some[place] = self._afters[place]
            # The usage changes with no record of it, so that the next change does not tell what one made.
            if ROOT_SLASH in paths:
                for place, path in enumerate(self.paths):
                    if path.startswith(ROOT_SLASH):
                        some[place] = self._afters[place]
        nodes = *self._befores, *afters
        columns = struct.pack(f">{2 * count}q{2 * count}I", *self.revisions, *self._times, *map(len, nodes))
        head = _HEAD.pack(count, len(paths), len(acl_list))
        return b"".join((head, columns, self.kinds, numbers, paths, acl_list, *self._parent_ends, *nodes))

    @cached_property
    def _last_places(self) -> dict[bytes, int]:
        return dict(zip(self.paths, range(len(self.paths)), strict=True))

    @cached_property
    def parents(self) -> list[bytes]:
        """For each change the path of the znode that got or lost a child by it, empty if none did."""
        return [
            parent_of(path) if kind in (CREATED, DELETED) else b""
            for kind, path in zip(self.kinds, self.paths, strict=True)
        ]

    def first_after(self, revision: int) -> int:
        """The place of the first change after a revision."""
        return bisect_right(self.revisions, revision)

    def own(self, path: bytes, start: int) -> int | None:
        """The place of the first change of `path` itself from `start` on."""
        return _first(self._places, path, start)

    def of_children(self, path: bytes, start: int) -> int | None:
        """The place of the first creation or deletion of a child of `path` from `start` on."""
        return _first(self._child_places, path, start)

    # There may be very many records: all of one revision are in the same block until it is packed.

    @cached_property
    def _places(self) -> dict[bytes, list[int]]:
        return _places_of(self.paths)

    @cached_property
    def _child_places(self) -> dict[bytes, list[int]]:
        return _places_of(self.parents)

    def time_ms(self, place: int) -> int:
        """When a change was made, by the clock of its leader."""
        value: int = self._times[place]
        return value

    def before(self, place: int) -> bytes:
        """The znode before a change; empty if there was none."""
        value: bytes = self._befores[place]
        return value

    def after(self, place: int) -> bytes:
        """The znode after a change; empty if there was none."""
        value: bytes = self._afters[place]
        return value

    def acl(self, place: int) -> Acls | None:
        """The ACL of a change, see Record."""
        value: Acls | None = self._block_acls[place]
        return value

    def parent_end(self, place: int) -> bytes:
        """The end of the parent's Stat before a creation or deletion."""
        value: bytes = self._parent_ends[place]
        return value

    def touched(self) -> Touched:
        """The paths whose znodes changed, their children included."""
        if self.kinds.count(DATA_CHANGED) == len(self.kinds):
            return Touched((), self._last_places.keys(), ())
        first_kinds = dict(zip(reversed(self.paths), reversed(self.kinds), strict=True))
        absent = [path for path, kind in first_kinds.items() if kind == CREATED]
        others = [path for path, kind in first_kinds.items() if kind != CREATED]
        return Touched(absent, others, {parent for parent in self.parents if parent and parent not in first_kinds})

    def events(self, after: int, acls: dict[bytes, Acls | None]) -> Iterator[tuple[int, int, bytes, Acls | None]]:
        """Revision, event type, path and the ACL to need READ by of the changes after a revision, the last one first.

        `acls` has ACLs as they were behind the block, and has them as they were before it when all is told. Of those
        paths the changes of their children are told, too: which ACL another parent had is not known here.
        """
        for place in range(len(self.paths) - 1, self.first_after(after) - 1, -1):
            revision, kind, path, acl = self.revisions[place], self.kinds[place], self.paths[place], self.acl(place)
            if kind in (CREATED, DELETED):
                parent = parent_of(path)
                if parent in acls:
                    yield revision, int(EventType.NODE_CHILDREN_CHANGED), parent, acls[parent]
            if kind != ACL_CHANGED:
                yield revision, kind, path, acl
            if path in acls:
                acls[path] = acl


class PackedBlock(Block):
    """A block in its packed form; the columns are unpacked as they are needed."""

    def __init__(self, data: bytes) -> None:
        count, paths_bytes, acls_bytes = _HEAD.unpack_from(data)
        self._data = data
        self._times_at = _HEAD.size + 8 * count
        self._lengths_at = self._times_at + 8 * count
        kinds_at = self._lengths_at + 8 * count
        self._numbers_at = kinds_at + count
        paths_at = self._numbers_at + (2 * count if acls_bytes else 0)
        self._acls_at = paths_at + paths_bytes
        self._ends_at = self._acls_at + acls_bytes
        self.revisions = struct.unpack_from(f">{count}q", data, _HEAD.size)
        self.kinds = data[kinds_at : self._numbers_at]
        self.paths = data[paths_at : self._acls_at].split(SEPARATOR)

    def time_ms(self, place: int) -> int:
        value: int = struct.unpack_from(">q", self._data, self._times_at + 8 * place)[0]
        return value

    def before(self, place: int) -> bytes:
        offsets = self._offsets
        return self._data[offsets[place] : offsets[place + 1]]

    def after(self, place: int) -> bytes:
        path = self.paths[place]
        stored = self.before(place + len(self.kinds))
        following = None if stored else self.own(path, place + 1)
        if following is None:
            return stored
        child = self.of_children(path, place + 1)
        if child is None or child > following:
            return self.before(following)
        return with_end(self.before(following), self.parent_end(child))

    def own(self, path: bytes, start: int) -> int | None:
        return _index(self.paths, path, start)

    def of_children(self, path: bytes, start: int) -> int | None:
        return _index(self.parents, path, start)

    def acl(self, place: int) -> Acls | None:
        if self._acls_at == self._ends_at:
            return None
        number: int = struct.unpack_from(">H", self._data, self._numbers_at + 2 * place)[0]
        return self._acls[number - 1] if number else None

    def parent_end(self, place: int) -> bytes:
        at = self._ends_at + _END_BYTES * self._ends_before(place)
        return self._data[at : at + _END_BYTES]

    def _ends_before(self, place: int) -> int:
        return self.kinds.count(CREATED, 0, place) + self.kinds.count(DELETED, 0, place)

    @cached_property
    def _offsets(self) -> list[int]:
        count = len(self.revisions)
        first = self._ends_at + _END_BYTES * self._ends_before(count)
        return list(accumulate(struct.unpack_from(f">{2 * count}I", self._data, self._lengths_at), initial=first))

    @cached_property
    def _acls(self) -> list[Acls]:
        reader = Reader(self._data[self._acls_at : self._ends_at])
        acls = []
        while reader.remaining:
            acls.append(ACL_VECTOR.read(Reader(reader.buffer() or b"")) or NOBODY)
        return acls


def with_end(node: bytes, end: bytes) -> bytes:
    """The znode with another end of its Stat, if there are both."""
    return node[: PARENT_END.start] + end if node and end else node


def _places_of(column: Sequence[bytes]) -> dict[bytes, list[int]]:
    places: dict[bytes, list[int]] = {}
    for place, path in enumerate(column):
        places.setdefault(path, []).append(place)
    return places


def _first(places: dict[bytes, list[int]], path: bytes, start: int) -> int | None:
    found = places.get(path, [])
    at = bisect_left(found, start)
    return found[at] if at < len(found) else None


def _index(column: Sequence[bytes], path: bytes, start: int) -> int | None:
    try:
        return column.index(path, start)
    except ValueError:
        return None
