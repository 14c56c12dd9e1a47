"""The file operations that durability rests on, in one object, so that a test can record, cut and fail each of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

#: The owner alone changes anything; its group, such as that of backups, may read.
FILE_MODE = 0o640
DIRECTORY_MODE = 0o750


class Files:
    """Plain POSIX. Every method raises `OSError` when the operation failed; none of them retries."""

    def create(self, path: str) -> int:
        """Make an empty file, in the place of whatever had that name, and return its descriptor, open for writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)

    def open(self, path: str) -> int:
        """The descriptor of a file that is there, open for writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Reserve the file's blocks, so that writing within `size_bytes` meets no full disk; they read as zeros."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def write(self, descriptor: int, offset: int, pieces: Sequence[bytes]) -> None:
        """Write all pieces, one behind the other, from `offset` on."""
        written = os.pwritev(descriptor, pieces, offset)
        if written != sum(map(len, pieces)):
            # The kernel stops short at a full disk or a signal; the second write gives the reason or the rest.
            rest = b"".join(pieces)[written:]
            while rest:
                offset += written
                written = os.pwrite(descriptor, rest, offset)
                rest = rest[written:]

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Give back the file's blocks behind its first bytes; others can have them once it is synced."""
        os.ftruncate(descriptor, size_bytes)

    def sync(self, descriptor: int) -> None:
        """Return when the file's data, and the metadata needed to read it back, is on the device."""
        os.fdatasync(descriptor)

    def write_synced(self, descriptor: int, offset: int, pieces: Sequence[bytes]) -> None:
        """`write`, then `sync`. Where the kernel does both in one call, the caller's thread is woken once less."""
        if os.pwritev(descriptor, pieces, offset, os.RWF_DSYNC) != sum(map(len, pieces)):
            self.write(descriptor, offset, pieces)
            self.sync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file; that does not make it durable."""
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Put `source` atomically in the place of `target`; durable only after `sync_directory`."""
        os.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file that is there; durable only after `sync_directory`."""
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        """Make the directory unless it is there."""
        os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        """Return when the names in the directory (files made, renamed, removed) are on the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: str, content: bytes) -> None:
        """Replace a file's content durably; a crash leaves the old one or the new one, whole."""
        temporary = path + ".new"
        descriptor = self.create(temporary)
        try:
            self.write(descriptor, 0, [content])
            self.sync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))
