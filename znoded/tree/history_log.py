"""Keeping the changes: recorded at the end, packed into blocks, gathered into segments, dropped when they are old.

What is newer than the last checkpoint but one is in memory, older segments are in the checkpoint only:

    segments in the checkpoint        segments not there yet        blocks of no segment yet        newest, not packed
    `_stored`                         `_sealed`                     the others of `_tail`           `_newest`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import NamedTuple

from znoded.tree.history_block import SEPARATOR, Block, PackedBlock, Record
from znoded.tree.history_segment import (
    ABSENT,
    BLOCKS,
    BLOCKS_MOST,
    CHANGED,
    DIRECTORIES,
    OF_CHILDREN,
    SEGMENTS,
    ReadStored,
    Segment,
    block_key,
    decode_segment,
    directory_lines,
    ends_of,
    first_revision,
    make_directory,
    tops_of,
    with_checksum,
    without_checksum,
)
from znoded.tree.tables import Changed

#: The blocks of no segment, which a start reads into memory.
TAIL = b"history_tail"

#: So many changes are kept as they are, to be cheap to append to, before they are packed; or so many bytes of them.
BLOCK_CHANGES = 256
BLOCK_BYTES = 64 * 1024
#: A segment is about so large, unless so much of history is kept that there would be only few of them.
SEGMENT_BYTES = 1024 * 1024
SEGMENTS_LEAST = 8
#: The blocks in memory take so much at most, however far the checkpoint is behind: then the oldest changes go.
MEMORY_BYTES = 64 * 1024 * 1024


class TailBlock(NamedTuple):
    """A block in memory. `touched` are the paths of its znodes, each between two NULs.

    It is `checksummed` as its segment's blocks are in the checkpoint. Once there is a segment, it is a part of that
    one's value: a copy would take as much again.
    """

    key: bytes
    checksummed: bytes | memoryview
    touched: bytes
    last_revision: int
    last_time_ms: int

    @property
    def data(self) -> bytes:
        """The packed form."""
        return without_checksum(self.checksummed)


class SealedSegment(NamedTuple):
    """A segment that the checkpoint does not have for sure. Its blocks are the first ones of the tail.

    `blocks` and `directory` are its values in the checkpoint.
    """

    segment: Segment
    blocks: bytes
    directory: bytes


def nothing_stored(table: bytes, key: bytes, part: slice) -> bytes | None:
    """The checkpoint of a tree that has none."""
    return None


class HistoryLog:
    """All changes after the revision `oldest`, at most about `limit_bytes` of them."""

    def __init__(self, limit_bytes: int, retention_ms: int) -> None:
        self.read_stored: ReadStored = nothing_stored
        self._limit_bytes = limit_bytes
        self._retention_ms = retention_ms
        #: When a block and a segment are full.
        self.block_changes = BLOCK_CHANGES
        self.segment_bytes = min(SEGMENT_BYTES, limit_bytes // SEGMENTS_LEAST)
        self.reset(0)

    def reset(self, oldest: int) -> None:
        """Forget everything up to the revision `oldest`, and that anything was stored."""
        self.oldest = oldest
        #: What the blocks and directories take, wherever they are; `unstored_bytes` those of no checkpoint.
        self.size_bytes = self.unstored_bytes = 0
        self._newest: list[Record] = []
        self._newest_bytes = 0
        self._tail: deque[TailBlock] = deque()
        self._tail_bytes = 0
        self._sealed: deque[SealedSegment] = deque()
        self._stored: list[Segment] = []
        self._unsealed_bytes = 0
        self._lines: list[bytes] = []  # the directory of what will be the next segment
        self._unsealed: list[bytes] = []  # the keys of its blocks
        #: The keys in the tail's table, or that may be there; and whether it has the right value.
        self._tail_keys: dict[bytes, bool] = {}
        self._newest_stored = 0  # up to which revision that table has those that are not packed
        self._dropped: list[Segment] = []  # which the checkpoint may still have
        # What was taken the last time, and is stored if it is not restored.
        self._sealed_in_flight = self._unstored_in_flight = 0
        self._dropped_in_flight: list[Segment] = []
        self._deleted_in_flight: list[bytes] = []

    # ---- recording

    def add(self, record: Record) -> None:
        """Append a change; revisions do not go down."""
        newest = self._newest
        if (self._newest_bytes >= BLOCK_BYTES or len(newest) >= self.block_changes) and newest[-1][0] != record[0]:
            self._close_newest()  # all changes of a revision are together until they are packed
        newest.append(record)
        self._newest_bytes += len(record[3]) + len(record[4]) + len(record[5])

    def forget(self, revision: int) -> None:
        """Take back the changes of `revision`, which are the last."""
        newest = self._newest
        while newest and newest[-1][0] == revision:
            _, _, _, path, before, node, _, _ = newest.pop()
            self._newest_bytes -= len(path) + len(before) + len(node)

    def _close_newest(self) -> None:
        """Pack the newest changes."""
        for key, block in self._newest_blocks():
            self._append(key, block.pack(), block)
        self._newest.clear()
        self._newest_bytes = 0
        self.compact()

    def _newest_blocks(self) -> Iterator[tuple[bytes, Block]]:
        """The newest changes as one block, but for a revision of very many or large ones, with the keys."""
        key = b""
        for records in _runs(self._newest, self._newest_bytes):
            revision = records[0][0]
            part = 1 + int.from_bytes(key[8:]) if key and first_revision(key) == revision else 0
            key = block_key(revision, part)
            yield key, Block(records)

    def _append(self, key: bytes, data: bytes, block: Block) -> None:
        absent, changed, of_children = (SEPARATOR.join((*paths, b"")) for paths in block.touched())
        last_time_ms = block.time_ms(len(block.paths) - 1)
        touched = SEPARATOR + absent + changed + of_children
        checksummed = with_checksum(data)
        self._tail.append(TailBlock(key, checksummed, touched, block.revisions[-1], last_time_ms))
        self._tail_bytes += len(checksummed)
        for names, how in ((absent, ABSENT), (changed, CHANGED), (of_children, OF_CHILDREN)):
            self._lines += directory_lines(names, len(self._unsealed), how)
        self._unsealed.append(key)
        self._unsealed_bytes += len(data)
        self.size_bytes += len(data)
        self.unstored_bytes += len(data)
        if self._unsealed_bytes >= self.segment_bytes or len(self._unsealed) >= BLOCKS_MOST:
            self._seal()

    def _seal(self) -> None:
        tail = self._tail
        blocks = [tail.pop() for _ in self._unsealed][::-1]
        value = b"".join([block.checksummed for block in blocks])
        block_ends = ends_of(block.checksummed for block in blocks)
        parts = [memoryview(value)[start:end] for start, end in pairwise(chain((0,), block_ends))]
        tail.extend(block._replace(checksummed=part) for block, part in zip(blocks, parts, strict=True))

        pages = make_directory(self._lines)
        directory_bytes = sum(map(len, pages))
        directory = list(map(with_checksum, pages))
        self._sealed.append(
            SealedSegment(
                Segment(
                    self._unsealed,
                    block_ends,
                    blocks[-1].last_revision,
                    blocks[-1].last_time_ms,
                    self._unsealed_bytes + directory_bytes,
                    tops_of(pages),
                    ends_of(directory),
                ),
                value,
                b"".join(directory),
            )
        )
        self.size_bytes += directory_bytes
        self._unsealed, self._unsealed_bytes, self._lines = [], 0, []

    # ---- dropping

    def compact(self, now_ms: int | None = None) -> None:
        """Drop the oldest segments while there is too much; given the time, also those beyond the retention."""
        while (last_time_ms := self._oldest_time_ms()) is not None and (
            self.size_bytes > self._limit_bytes
            or self._tail_bytes > MEMORY_BYTES
            or (now_ms is not None and last_time_ms < now_ms - self._retention_ms)
        ):
            self._drop_oldest()

    def _oldest_time_ms(self) -> int | None:
        """The time of the last change in the segment that is to be dropped next, or would be one."""
        if self._stored:
            return self._stored[0].last_time_ms
        if self._sealed:
            return self._sealed[0].segment.last_time_ms
        return self._tail[-1].last_time_ms if self._unsealed else None

    def _drop_oldest(self) -> None:
        if self._stored:
            segment = self._stored.pop(0)
        else:
            if not self._sealed:
                self._seal()
            segment = self._take_from_memory()
            self._sealed_in_flight = max(0, self._sealed_in_flight - 1)
        self._dropped.append(segment)
        self.size_bytes -= segment.size_bytes
        self.oldest = segment.last_revision

    def _take_from_memory(self) -> Segment:
        """The first of the segments that are in memory, which is there no longer."""
        segment = self._sealed.popleft().segment
        for _ in segment.keys:
            self._tail_bytes -= len(self._tail.popleft().checksummed)
        return segment

    # ---- the checkpoint

    def take(self, now_ms: int) -> dict[bytes, Changed]:
        """What the checkpoint does not have, by table. What was taken before is stored, unless it was `restore`d."""
        for _ in range(self._sealed_in_flight):
            self._stored.append(self._take_from_memory())
        self.compact(now_ms)
        self._sealed_in_flight = len(self._sealed)
        self._dropped_in_flight, self._dropped = self._dropped, []
        self._unstored_in_flight, self.unstored_bytes = self.unstored_bytes, 0
        dropped: Changed = {segment.key: None for segment in self._dropped_in_flight}
        return {
            TAIL: self._take_tail(),
            BLOCKS: {sealed.segment.key: sealed.blocks for sealed in self._sealed} | dropped,
            DIRECTORIES: {sealed.segment.key: sealed.directory for sealed in self._sealed} | dropped,
            SEGMENTS: {sealed.segment.key: sealed.segment.encode() for sealed in self._sealed} | dropped,
        }

    def restore(self) -> None:
        """What was taken the last time could not be stored, or not all of it."""
        self._sealed_in_flight = self._newest_stored = 0
        self._dropped[:0] = self._dropped_in_flight
        self.unstored_bytes += self._unstored_in_flight
        self._tail_keys = dict.fromkeys((*self._tail_keys, *self._deleted_in_flight), False)

    def load(self, read_table: Callable[[bytes], Iterable[tuple[bytes, bytes]]], oldest: int) -> None:
        """Begin with what a checkpoint has."""
        self.reset(oldest)
        self._stored = [decode_segment(value) for _, value in sorted(read_table(SEGMENTS))]
        self.size_bytes = sum(segment.size_bytes for segment in self._stored)
        for key, data in sorted(read_table(TAIL)):
            self._append(key, data, PackedBlock(data))
            self._tail_keys[key] = True
        self.unstored_bytes = 0
        self.compact()

    def _take_tail(self) -> Changed:
        keys = self._tail_keys
        self._tail_keys = dict.fromkeys(self._unsealed, True)
        unsealed = islice(self._tail, len(self._tail) - len(self._unsealed), None)
        taken: Changed = {block.key: block.data for block in unsealed if not keys.get(block.key)}
        if self._newest:
            before, self._newest_stored = self._newest_stored, self._newest[-1][0]
            for key, block in self._newest_blocks():
                self._tail_keys[key] = False  # it may be another block when there are more
                if self._newest_stored > before:
                    taken[key] = block.pack()
        self._deleted_in_flight = [key for key in keys if key not in self._tail_keys]
        return taken | dict.fromkeys(self._deleted_in_flight)


def _runs(records: list[Record], size_bytes: int) -> Iterator[list[Record]]:
    """Records in pieces for a block each."""
    if size_bytes < 2 * BLOCK_BYTES and len(records) < 2 * BLOCK_CHANGES:
        yield records
        return
    run: list[Record] = []
    run_bytes = 0
    for record in records:
        record_bytes = len(record[3]) + len(record[4]) + len(record[5])
        if run and (run_bytes + record_bytes > BLOCK_BYTES or len(run) >= BLOCK_CHANGES):
            yield run
            run, run_bytes = [], 0
        run.append(record)
        run_bytes += record_bytes
    yield run
