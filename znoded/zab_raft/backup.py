"""A copy of a member's state, for a member that is alone to start on."""

from __future__ import annotations

import os
import shutil

from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.directory import DataDirectory
from znoded.zab_raft.errors import CheckpointFailed
from znoded.zab_raft.files import DIRECTORY_MODE


def copy_checkpoint(directory: DataDirectory, store: Checkpoint, path: str) -> None:
    """Make a data directory `path` with the checkpoint and no log. Blocks; raises CheckpointFailed or OSError."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        # It may be of this state. But a member that was restored comes to the same zxid again with another one.
        raise CheckpointFailed(f"{path} is there already: move it away for a new backup") from None
    try:
        store.backup(os.path.join(path, "state"))
        directory.found_copy(path)  # the last of it, which makes it one to start on
        directory.files.sync_directory(os.path.dirname(os.path.abspath(path)))
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)  # it was not there before
        raise
