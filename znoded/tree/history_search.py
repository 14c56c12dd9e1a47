"""Finding the blocks of the history that tell of a path, or of the paths below one, wherever they lie."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from znoded.tree.history_block import SEPARATOR, Block, PackedBlock
from znoded.tree.history_log import BLOCK_BYTES, HistoryLog, TailBlock
from znoded.tree.history_segment import CHANGED, Segment, Touch, Unreadable

#: Unpacked blocks that are kept for the next reader: neighbours are asked for together.
UNPACKED_BLOCKS = 16
UNPACKED_BYTES_MOST = 4 * BLOCK_BYTES
#: With more paths than this to look for, all blocks are read rather than searched for each of them.
SEARCHED_PATHS = 16
#: Stands for the key of the changes that are in no block yet.
NEWEST = b""


class HistorySearch(HistoryLog):
    """The history as something to look into. All methods raise Unreadable when the checkpoint cannot be read for now.

    They may give more than was asked for, which the caller has to look at anyway.
    """

    def reset(self, oldest: int) -> None:
        super().reset(oldest)
        self._unpacked: OrderedDict[bytes, Block] = OrderedDict()
        self._newest_block: Block | None = None

    def blocks_after(self, revision: int) -> Iterator[Block]:
        """The blocks that may hold changes after `revision`, in order."""
        for segment in self._stored_after(revision):
            for key in segment.keys_after(revision):
                yield self._stored_block(key)
        for block in self._tail_after(revision):
            yield self._unpacked.get(block.key) or self._unpack(block.key, block.data)
        if self._newest:
            yield self._of_newest()

    def touches_of(self, path: bytes, revision: int) -> Iterator[Touch]:
        """How `path` is touched after `revision`, and maybe before, in order."""
        for segment in self._stored_after(revision):
            yield from segment.touches_of(path, self.read_stored)
        needle = SEPARATOR + path + SEPARATOR
        for block in self._tail_after(revision):
            if needle in block.touched:
                yield Touch(path, block.key, CHANGED)
        if self._newest:
            yield Touch(path, NEWEST, CHANGED)

    def blocks_about(self, paths: Collection[bytes], revision: int, bytes_most: int) -> list[bytes] | None:
        """The keys of the blocks that touch `paths` or what is below after `revision`; None if they are too large."""
        searched = [path.rstrip(b"/") for path in paths] if len(paths) <= SEARCHED_PATHS else [b""]
        found: list[bytes] = []
        size_bytes = 0
        for segment in self._stored_after(revision):
            keys = segment.keys_after(revision)
            about = set().union(*(segment.blocks_about(path, self.read_stored) for path in searched))
            found += [key for key in keys if key in about]
            size_bytes += segment.size_bytes * len(about) // len(segment.keys)
            if size_bytes > bytes_most:
                return None
        needles = [needle for path in searched for needle in (SEPARATOR + path + SEPARATOR, SEPARATOR + path + b"/")]
        for block in self._tail_after(revision):
            if any(needle in block.touched for needle in needles):
                found.append(block.key)
                size_bytes += len(block.checksummed)
        if self._newest:
            found.append(NEWEST)
        return found if size_bytes <= bytes_most else None

    def touches(self, low: bytes, high: bytes, revision: int) -> list[Iterator[Touch]]:
        """Who of the paths from `low` on and below `high` is touched after `revision`, and maybe before.

        Each of the iterators is sorted, and what it tells comes before what the next ones tell of the same path.
        """
        found = [segment.touches(low, high, self.read_stored) for segment in self._stored_after(revision)]
        tail = self._tail_after(revision)
        found += [_touches(block.touched[1:-1].split(SEPARATOR), block.key, low, high) for block in tail]
        if self._newest:
            found.append(_touches(chain(*self._of_newest().touched()), NEWEST, low, high))
        return found

    def block(self, key: bytes) -> Block:
        """The block that a `Touch` names."""
        if key == NEWEST:
            return self._of_newest()
        if key in self._unpacked:
            return self._unpacked[key]
        for block in self._tail:
            if block.key == key:
                return self._unpack(key, block.data)
        return self._stored_block(key)

    def _of_newest(self) -> Block:
        """The changes that are in no block yet."""
        block = self._newest_block
        if block is None or (len(block.paths), block.revisions[-1]) != (len(self._newest), self._newest[-1][0]):
            block = self._newest_block = Block(self._newest)
        return block

    def _close_newest(self) -> None:
        super()._close_newest()
        self._newest_block = None

    def _stored_after(self, revision: int) -> list[Segment]:
        return self._stored[bisect_right(self._stored, revision, key=_last_revision) :]

    def _tail_after(self, revision: int) -> list[TailBlock]:
        return [block for block in self._tail if block.last_revision > revision]

    def _stored_block(self, key: bytes) -> Block:
        if key in self._unpacked:
            self._unpacked.move_to_end(key)
            return self._unpacked[key]
        number = bisect_right(self._stored, key, key=_key)
        if not number:
            raise Unreadable(f"there is no block {key.hex()} any more")
        return self._unpack(key, self._stored[number - 1].block(key, self.read_stored))

    def _unpack(self, key: bytes, data: bytes) -> Block:
        block = PackedBlock(data)
        if len(data) <= UNPACKED_BYTES_MOST:
            self._unpacked[key] = block
            if len(self._unpacked) > UNPACKED_BLOCKS:
                self._unpacked.popitem(last=False)
        return block


def _key(segment: Segment) -> bytes:
    return segment.key


def _last_revision(segment: Segment) -> int:
    return segment.last_revision


def _touches(paths: Iterable[bytes], key: bytes, low: bytes, high: bytes) -> Iterator[Touch]:
    # Made one by one: few of them are looked at before the slice of a range is full.
    return (Touch(path, key, CHANGED) for path in sorted([path for path in paths if low <= path < high]))
