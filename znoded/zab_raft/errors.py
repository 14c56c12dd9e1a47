"""What can be wrong with the data of a member. Each message is for the operator: what is there, what would be right."""

from __future__ import annotations


class StorageError(Exception):
    """The data directory cannot be used."""


class DirectoryError(StorageError):
    """It belongs to another member, cell or process, or its meta file is damaged."""


class LogDamaged(StorageError):
    """The log does not hold what was made durable. The message names the file and the offset in bytes."""


class CheckpointDamaged(StorageError):
    """The checkpoint does not hold what was made durable. The message names the file."""


class CheckpointFailed(StorageError):
    """The checkpoint could not be opened or an increment not be stored, most often for a full disk.

    The last increment is still there; the next one must hold these changes too.
    """


class DiskFull(StorageError):
    """There is no room for the next segment of the log. Nothing was written; the same call may be made again."""


class CellAbandoned(StorageError):
    """The cell that the data belongs to was given up, and went on from one member as another cell."""
