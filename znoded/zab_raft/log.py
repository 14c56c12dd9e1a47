"""The log on disk, for writing: segments are allocated ahead, filled in turn, and removed behind the checkpoint."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from znoded.zab_raft.core.messages import HardState
from znoded.zab_raft.errors import DiskFull
from znoded.zab_raft.files import Files
from znoded.zab_raft.segment import (
    HEADER_BYTES,
    PREFIX_BYTES,
    Header,
    SegmentReader,
    encode_payload,
    record_prefix,
    segment_name,
    sequence_of,
)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
#: How much of the next segment is filled with zeros in one step, between two batches.
FILL_BYTES = 1 << 19
#: On a full disk, a log that is begun makes do with less room than a segment's: with one of these parts of it.
ROOM_PARTS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries that become durable together, with the hard state that goes with them."""

    first_index: int
    hard_state: HardState
    commands: list[bytes]
    payload: bytes

    @classmethod
    def of(cls, first_index: int, hard_state: HardState, commands: list[bytes]) -> Batch:
        return cls(first_index, hard_state, commands, encode_payload(first_index, hard_state, commands))

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.commands) - 1


class Sealed(NamedTuple):
    """A segment that is full, or that an earlier process filled last."""

    path: str
    last_index: int
    size_bytes: int


class Log:
    """The write side of the log in one directory. It is used by one thread at a time.

    After an `OSError` other than `DiskFull` its state on disk is unknown, and it must not be written again.
    """

    def __init__(self, path: str, segment_bytes: int, files: Files) -> None:
        self._path = path
        self._segment_bytes = segment_bytes
        self._files = files
        self._spare_path = os.path.join(path, "spare")
        self._next_spare_path = os.path.join(path, "spare.next")
        self._spare: int | None = None
        self._spare_bytes = 0
        self._filled_bytes = 0
        self._has_next_spare = False
        self._descriptor = -1
        self._header: Header
        self._offset = 0
        self._size_bytes = 0
        self._last_index = 0
        self._hard_state = HardState(0, 0, 0)
        self._sealed: list[Sealed] = []

    @property
    def has_spare(self) -> bool:
        """The next segment is allocated."""
        return self._spare is not None

    @property
    def has_unfilled_spare(self) -> bool:
        """It is time to fill the next segment: the checkpoint may free one to use again until this one is half full."""
        is_half_full = 2 * self._offset > self._size_bytes
        return self._spare is not None and self._filled_bytes < self._spare_bytes and is_half_full

    def begin(
        self,
        sequence: int,
        hard_state: HardState,
        first_index: int,
        last_index: int,
        tail: Sequence[bytes],
        segments: Sequence[Sealed] = (),
    ) -> None:
        """Start a new segment that replaces all others: it holds the hard state and, again, the payloads of the tail.

        The tail is the entries `first_index` .. `last_index`. Older segments may end in a torn record, and were perhaps
        read from a page cache that never reached the disk: from here on nobody reads them, and they are removed.
        Raises `DiskFull` when there is no room, not even to go on with `segments`, those that were read.
        """
        self._last_index = last_index
        self._hard_state = hard_state
        if not self._has_next_spare:
            with suppress(FileNotFoundError):  # an earlier run's: it may be of another size
                self._files.remove(self._next_spare_path)
        tail_bytes = sum(PREFIX_BYTES + len(payload) for payload in tail)
        try:
            self._make_spare(self._segment_bytes + tail_bytes)
        except DiskFull:
            if not segments:
                raise
            self._go_on(segments)
            return
        while self._filled_bytes < self._spare_bytes:
            self._fill_part()  # synced below, all at once: nothing else wants the disk yet
        base_bytes = HEADER_BYTES + tail_bytes
        header = Header(sequence, self._new_salt(), first_index, hard_state, base_bytes)
        self._install(header, tail)
        for name in sorted(os.listdir(self._path)):
            number = sequence_of(name)
            if number is not None and number < sequence:
                self._files.remove(os.path.join(self._path, name))
        self._files.sync_directory(self._path)

    def _go_on(self, segments: Sequence[Sealed]) -> None:
        """Put a copy in the place of the last segment, and go on in that. Raises `DiskFull`.

        All others were durable before the next one was begun, so this one alone may be torn or in a page cache only. It
        takes little room: the last segment gives back what it has reserved behind its records, which is most of it as a
        rule, since writes are refused when the one that would follow finds no room.
        """
        *sealed, last = segments
        reader = SegmentReader(last.path)
        payloads = [record.payload for record in reader.records()]
        end = reader.end
        reader.close()
        descriptor = self._files.open(last.path)
        try:
            self._files.truncate(descriptor, end)  # what is cut, zeros or a torn record, is read as nothing
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        self._make_small_spare(end)
        self._sealed = sealed
        self._install(replace(reader.header, salt=self._new_salt()), payloads)

    def _make_small_spare(self, copied_bytes: int) -> None:
        *parts, last_part = ROOM_PARTS
        for part in parts:
            with suppress(DiskFull):
                self._make_spare(copied_bytes + self._segment_bytes // part)
                return
        self._make_spare(copied_bytes + self._segment_bytes // last_part)

    def append(self, batch: Batch) -> None:
        """Return when the batch is durable. Raises `DiskFull` when it needs the next segment and there is none."""
        payload = batch.payload
        if self._offset + PREFIX_BYTES + len(payload) > self._size_bytes:
            self._rotate(batch)
        prefix = record_prefix(self._header.salt, payload)
        self._files.write_synced(self._descriptor, self._offset, (prefix, payload))
        self._offset += len(prefix) + len(payload)
        self._last_index = batch.last_index
        self._hard_state = batch.hard_state

    def prepare(self) -> None:
        """Allocate the next segment. Raises `DiskFull` when there is no room for it."""
        self._make_spare(self._segment_bytes)

    def fill_spare(self) -> None:
        """Write zeros over a part of the next segment.

        The first write to an allocated block changes the file's metadata, and a sync has to wait until the file system
        has committed that, too. Blocks that were written before are synced in about half the time.
        """
        assert self._spare is not None
        self._fill_part()
        self._files.sync(self._spare)

    def _fill_part(self) -> None:
        assert self._spare is not None
        size_bytes = min(FILL_BYTES, self._spare_bytes - self._filled_bytes)
        self._files.write(self._spare, self._filled_bytes, [bytes(size_bytes)])
        self._filled_bytes += size_bytes

    def forget(self, index: int) -> None:
        """Remove, or use again, the segments whose entries all lie at or before `index`; the one being filled stays.

        One of them is kept for the time when the spare is used up: a checkpoint frees several at once, and later than
        half a segment. A log that had to be filled with zeros would be written twice.
        """
        while self._sealed and self._sealed[0].last_index <= index:
            sealed = self._sealed.pop(0)
            if self._has_next_spare or sealed.size_bytes != self._segment_bytes:
                self._files.remove(sealed.path)
            else:
                self._files.rename(sealed.path, self._next_spare_path)
                self._has_next_spare = True
                self._use_next_spare()
            self._files.sync_directory(self._path)

    def _use_next_spare(self) -> None:
        """Make the spare of a segment nobody needs: its blocks were written, and under a new salt none is a record."""
        is_filled = self._spare is not None and self._filled_bytes == self._spare_bytes
        if is_filled or not self._has_next_spare:
            return
        if self._spare is not None:
            self._files.close(self._spare)
        self._files.rename(self._next_spare_path, self._spare_path)
        self._has_next_spare = False
        self._spare = self._files.open(self._spare_path)
        self._spare_bytes = self._filled_bytes = self._segment_bytes

    def close(self) -> None:
        self._files.close(self._descriptor)
        if self._spare is not None:
            self._files.close(self._spare)

    def _rotate(self, batch: Batch) -> None:
        self._make_spare(max(self._segment_bytes, HEADER_BYTES + PREFIX_BYTES + len(batch.payload)))
        sequence = self._header.sequence + 1
        # Not the batch's hard state: it is durable with the batch's entries only.
        header = Header(sequence, self._new_salt(), batch.first_index, self._hard_state, base_bytes=0)
        self._sealed.append(Sealed(self._segment_path(self._header.sequence), self._last_index, self._size_bytes))
        self._files.close(self._descriptor)
        self._install(header, ())

    def _install(self, header: Header, payloads: Sequence[bytes]) -> None:
        """Make the spare file the segment that is filled next; it gets its name once all of this is durable."""
        assert self._spare is not None
        content = [header.encode()]
        for payload in payloads:
            content += record_prefix(header.salt, payload), payload
        whole = b"".join(content)
        self._files.write(self._spare, 0, [whole])
        self._files.sync(self._spare)
        self._files.rename(self._spare_path, self._segment_path(header.sequence))
        self._files.sync_directory(self._path)
        self._descriptor, self._size_bytes = self._spare, self._spare_bytes
        self._spare = None
        self._header, self._offset = header, len(whole)

    def _make_spare(self, size_bytes: int) -> None:
        self._use_next_spare()
        if self._spare is not None:
            if self._spare_bytes >= size_bytes:
                return
            self._files.close(self._spare)
            self._spare = None
        try:
            self._spare, self._spare_bytes, self._filled_bytes = self._allocate(size_bytes), size_bytes, 0
        except OSError as error:
            if error.errno in DISK_FULL:
                raise DiskFull(
                    f"{self._path} has no room for a log segment of {size_bytes} bytes; free some"
                ) from error
            raise

    def _allocate(self, size_bytes: int) -> int:
        descriptor = self._files.create(self._spare_path)
        try:
            self._files.allocate(descriptor, size_bytes)
            self._files.sync(descriptor)
        except OSError:
            # Give back what was reserved: the checkpoint may need it more.
            self._files.close(descriptor)
            self._files.remove(self._spare_path)
            raise
        return descriptor

    def _segment_path(self, sequence: int) -> str:
        return os.path.join(self._path, segment_name(sequence))

    @staticmethod
    def _new_salt() -> int:
        # Not zero in any byte: preallocated zeros must not look like the start of a record.
        return int.from_bytes(os.urandom(8)) | 0x0101010101010101
