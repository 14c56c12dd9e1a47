"""The recent changes, kept so that persistent watches catch up after a reconnect.

They lie packed in chunks of bytes, which are also what the checkpoint stores: a million changes are some hundred objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from znoded.jute.ops import EventType
from znoded.tree.paths import parent_of

#: zxid, event type, path
Change: TypeAlias = tuple[int, int, bytes]

CHUNK_BYTES = 64 * 1024
LIMIT_BYTES = 16 * 1024 * 1024

_CHANGE = struct.Struct(">qbi")  # zxid, event type, length of the path that follows
_KEY = struct.Struct(">q")


class RecentChanges:
    """Changes in the order of their zxids, the oldest dropped when all take more than `limit_bytes`.

    What is stored are NodeCreated, NodeDeleted and NodeDataChanged; that children changed follows from them.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        #: All changes after this zxid are here.
        self.floor_zxid = 0
        self._closed: dict[int, bytes] = {}  # by the first zxid in each
        self._closed_bytes = 0
        self._open = bytearray()
        self._open_first_zxid = 0
        self._last_zxid = -1
        self._last_begin = 0  # where the changes of the last zxid begin in the open chunk
        self._dirty: set[int] = set()

    def add(self, zxid: int, event_type: int, path: bytes) -> None:
        """Append a change; zxids do not go down."""
        if zxid != self._last_zxid:
            self._begin(zxid)
        self._open += _CHANGE.pack(zxid, event_type, len(path)) + path

    def forget(self, zxid: int) -> None:
        """Take back the changes of `zxid`, which must be the last."""
        if zxid == self._last_zxid:
            del self._open[self._last_begin :]
            self._last_zxid = -1

    def since(self, zxid: int) -> Iterator[Change] | None:
        """The changes after `zxid`, oldest first, with those of the parents' children; None if some are not kept any more."""
        return None if zxid < self.floor_zxid else self._after(zxid)

    def matching(self, zxid: int, exact: set[bytes], recursive: Iterable[bytes]) -> list[Change] | None:
        """The changes after `zxid` of the paths in `exact` and of those in and below `recursive`, or None as `since`.

        Those below `recursive` are without NodeChildrenChanged, which recursive watches never see.
        """
        changes = self.since(zxid)
        if changes is None:
            return None
        tops = frozenset(recursive)
        prefixes = tuple(top.rstrip(b"/") + b"/" for top in tops)
        return [
            change
            for change in changes
            if change[2] in exact
            or (change[1] != EventType.NODE_CHILDREN_CHANGED and (change[2] in tops or change[2].startswith(prefixes)))
        ]

    def take_dirty(self) -> list[tuple[bytes, bytes | None]]:
        """The chunks that changed since the last time, for the checkpoint: key and value, None for a dropped one."""
        dirty, self._dirty = sorted(self._dirty), set()
        return [(_KEY.pack(first_zxid), self._chunk(first_zxid)) for first_zxid in dirty]

    def restore_dirty(self, keys: Iterable[bytes]) -> None:
        """The checkpoint of these chunks failed."""
        self._dirty.update(_KEY.unpack(key)[0] for key in keys)

    def load(self, chunks: Iterable[tuple[bytes, bytes]], floor_zxid: int) -> None:
        """Begin with the chunks of a checkpoint."""
        self._closed = {_KEY.unpack(key)[0]: chunk for key, chunk in sorted(chunks)}
        self._closed_bytes = sum(map(len, self._closed.values()))
        self.floor_zxid = floor_zxid

    def _begin(self, zxid: int) -> None:
        """Changes of another zxid follow. A chunk never ends within those of one zxid."""
        if len(self._open) >= CHUNK_BYTES:
            self._close_chunk()
        if not self._open:
            self._open_first_zxid = zxid
        self._last_zxid = zxid
        self._last_begin = len(self._open)
        self._dirty.add(self._open_first_zxid)

    def _close_chunk(self) -> None:
        self._closed[self._open_first_zxid] = bytes(self._open)
        self._closed_bytes += len(self._open)
        self._open.clear()
        while self._closed_bytes > self._limit_bytes:
            first_zxid = next(iter(self._closed))
            dropped = self._closed.pop(first_zxid)
            self._closed_bytes -= len(dropped)
            self._dirty.add(first_zxid)
            self.floor_zxid = _last_zxid_in(dropped)

    def _chunk(self, first_zxid: int) -> bytes | None:
        if first_zxid == self._open_first_zxid and self._open:
            return bytes(self._open)
        return self._closed.get(first_zxid)

    def _after(self, zxid: int) -> Iterator[Change]:
        chunks = list(self._closed.items())
        if self._open:
            chunks.append((self._open_first_zxid, bytes(self._open)))
        for index, (_, chunk) in enumerate(chunks):
            if index + 1 < len(chunks) and chunks[index + 1][0] <= zxid:
                continue  # all of this chunk is older
            for change in _unpack(chunk):
                if change[0] > zxid:
                    yield change
                    if change[1] != EventType.NODE_DATA_CHANGED:
                        yield change[0], EventType.NODE_CHILDREN_CHANGED, parent_of(change[2])


def _unpack(chunk: bytes) -> Iterator[Change]:
    position = 0
    while position < len(chunk):
        zxid, event_type, path_bytes = _CHANGE.unpack_from(chunk, position)
        position += _CHANGE.size + path_bytes
        yield zxid, event_type, chunk[position - path_bytes : position]


def _last_zxid_in(chunk: bytes) -> int:
    return max(zxid for zxid, _, _ in _unpack(chunk))
