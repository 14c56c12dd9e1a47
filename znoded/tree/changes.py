"""The recent changes, kept so that persistent watches catch up after a reconnect.

They lie packed in chunks of bytes, which are also what the checkpoint stores: a million changes are few objects.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from znoded.jute.ops import EventType
from znoded.tree.paths import parent_of

#: zxid, event type, path
Change: TypeAlias = tuple[int, int, bytes]

#: How many changes are kept as they are, to be cheap to append to, before they are packed.
CHUNK_CHANGES = 1024
#: The same for their paths, of which only those longer than this can make a chunk large.
CHUNK_PATH_BYTES = 256 * 1024
LONG_PATH_BYTES = CHUNK_PATH_BYTES // CHUNK_CHANGES

#: Between the paths of a chunk, since it cannot be in one. Before them are their number, the zxids and the event types.
SEPARATOR = b"\0"
#: With more paths than this to look for, a chunk is read rather than searched for each of them.
SEARCHED_PATHS = 16

_COUNT = struct.Struct(">I")
_KEY = struct.Struct(">q")


class RecentChanges:
    """Changes in the order of their zxids, the oldest dropped when all take more than `limit_bytes`.

    What is stored are NodeCreated, NodeDeleted and NodeDataChanged; that children changed follows from them.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        #: All changes after this zxid are here.
        self.floor_zxid = 0
        self._chunks: dict[int, bytes] = {}  # by the first zxid in each
        self._chunks_bytes = 0
        self._newest: list[Change] = []  # what will be the next chunk
        self._long_paths_bytes = 0
        self._is_full = False  # the next change of another zxid begins another chunk
        self._newest_stored_zxid = 0  # how far of it the last checkpoint has
        self._dirty: set[int] = set()  # chunks that the last checkpoint does not have, or has although they are dropped

    def add(self, zxid: int, event_type: int, path: bytes) -> None:
        """Append a change; zxids do not go down."""
        newest = self._newest
        if self._is_full and newest[-1][0] != zxid:
            self._close_chunk()
        newest.append((zxid, event_type, path))
        if len(path) > LONG_PATH_BYTES:
            self._long_paths_bytes += len(path)
            self._weigh()
        elif len(newest) >= CHUNK_CHANGES:
            self._weigh()

    def forget(self, zxid: int) -> None:
        """Take back the changes of `zxid`, which are the last."""
        newest = self._newest
        while newest and newest[-1][0] == zxid:
            path = newest.pop()[2]
            if len(path) > LONG_PATH_BYTES:
                self._long_paths_bytes -= len(path)
        self._weigh()

    def since(self, zxid: int, paths: Collection[bytes] = (b"/",)) -> Iterator[Change] | None:
        """The changes after `zxid`, oldest first, with those of the parents' children; None if some are dropped.

        All those of `paths` and of what lies below them are among them.
        """
        return None if zxid < self.floor_zxid else self._after(zxid, paths)

    def take_dirty(self) -> list[tuple[bytes, bytes | None]]:
        """The chunks that changed since the last time, for the checkpoint: key and value, None for a dropped one."""
        taken = [(_KEY.pack(first_zxid), self._chunks.get(first_zxid)) for first_zxid in sorted(self._dirty)]
        self._dirty.clear()
        newest = self._newest
        if newest and newest[-1][0] > self._newest_stored_zxid:
            self._newest_stored_zxid = newest[-1][0]
            taken.append((_KEY.pack(newest[0][0]), _pack(newest)))
        return taken

    def restore_dirty(self, keys: Iterable[bytes]) -> None:
        """The checkpoint of these chunks failed."""
        self._dirty.update(_KEY.unpack(key)[0] for key in keys)
        if self._newest:
            self._dirty.discard(self._newest[0][0])
        self._newest_stored_zxid = 0

    def load(self, chunks: Iterable[tuple[bytes, bytes]], floor_zxid: int) -> None:
        """Begin with the chunks of a checkpoint."""
        self._chunks = {_KEY.unpack(key)[0]: chunk for key, chunk in sorted(chunks)}
        self._chunks_bytes = sum(map(len, self._chunks.values()))
        self.floor_zxid = floor_zxid

    def _weigh(self) -> None:
        self._is_full = len(self._newest) >= CHUNK_CHANGES or self._long_paths_bytes >= CHUNK_PATH_BYTES

    def _close_chunk(self) -> None:
        """Pack the newest changes, all of them: a chunk never ends within the changes of one zxid."""
        first_zxid = self._newest[0][0]
        self._chunks[first_zxid] = _pack(self._newest)
        self._chunks_bytes += len(self._chunks[first_zxid])
        self._dirty.add(first_zxid)
        self._newest.clear()
        self._long_paths_bytes = 0
        self._is_full = False
        while self._chunks_bytes > self._limit_bytes:
            first_zxid = next(iter(self._chunks))
            dropped = self._chunks.pop(first_zxid)
            self._chunks_bytes -= len(dropped)
            self._dirty.add(first_zxid)
            self.floor_zxid = _last_zxid(dropped)

    def _after(self, zxid: int, paths: Collection[bytes]) -> Iterator[Change]:
        next_first_zxids = [*self._chunks, zxid + 1][1:]
        for chunk, next_first_zxid in zip(list(self._chunks.values()), next_first_zxids, strict=True):
            if next_first_zxid > zxid and _may_hold(chunk, paths):
                yield from _expand(_unpack(chunk), zxid)
        yield from _expand(self._newest, zxid)


def _may_hold(chunk: bytes, paths: Collection[bytes]) -> bool:
    """Whether a packed chunk has a change of one of `paths` or below it. A search is much quicker than to unpack it."""
    return len(paths) > SEARCHED_PATHS or any(path in chunk for path in paths)


def _expand(changes: Iterable[Change], after_zxid: int) -> Iterator[Change]:
    """The changes after a zxid, with what they mean for the parents."""
    for change in changes:
        zxid, event_type, path = change
        if zxid > after_zxid:
            yield change
            if event_type != EventType.NODE_DATA_CHANGED:
                yield zxid, EventType.NODE_CHILDREN_CHANGED, parent_of(path)


def _pack(changes: Iterable[Change]) -> bytes:
    zxids, event_types, paths = zip(*changes, strict=True)
    count = len(zxids)
    return b"".join((_COUNT.pack(count), struct.pack(f">{count}q", *zxids), bytes(event_types), SEPARATOR.join(paths)))


def _last_zxid(chunk: bytes) -> int:
    (count,) = _COUNT.unpack_from(chunk)
    zxid: int = _KEY.unpack_from(chunk, _COUNT.size + _KEY.size * (count - 1))[0]
    return zxid


def _unpack(chunk: bytes) -> Iterator[Change]:
    (count,) = _COUNT.unpack_from(chunk)
    types_at = _COUNT.size + 8 * count
    paths_at = types_at + count
    zxids = struct.unpack_from(f">{count}q", chunk, _COUNT.size)
    return zip(zxids, chunk[types_at:paths_at], chunk[paths_at:].split(SEPARATOR), strict=True)
