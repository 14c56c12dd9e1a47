"""What the tests on a full disk share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def take_all_room(path: Path) -> None:
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
