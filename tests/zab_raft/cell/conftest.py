"""Fixtures of the tests on whole replicas."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A fresh directory, in memory where there is such a place: syncs there take no time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
