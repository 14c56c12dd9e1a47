"""Fixtures of the crash tests."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK_BYTES = 24 << 20


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A fresh directory, in memory where there is such a place: for tests that sync often and pull no plug."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of `DISK_BYTES`, a tmpfs. Skips where none can be mounted: it takes root."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)], capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
