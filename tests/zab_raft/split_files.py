"""File operations for tests that come between a write and its sync."""

from __future__ import annotations

from collections.abc import Sequence

from znoded.zab_raft.files import Files


class SplitFiles(Files):
    """Does in two steps what `Files` has the kernel do in one."""

    def write_synced(self, descriptor: int, offset: int, pieces: Sequence[bytes]) -> None:
        self.write(descriptor, offset, pieces)
        self.sync(descriptor)
