"""The limit of open files is raised as far as it goes, and leaves room for the files of the log."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from znoded.server.open_files import FIRST_TABLE, RESERVED, UNLIMITED, grow_table, room_for_connections

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to", "files"),
    [
        (1024, 524_288, 524_288, 524_288),
        (4096, 4096, None, 4096),
        (100, 100, None, 100),
        (1024, INFINITE, UNLIMITED, UNLIMITED),
        (INFINITE, INFINITE, None, UNLIMITED),
    ],
)
def test_the_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised_to: int | None, files: int
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: made.append(limits))
    assert room_for_connections() == max(files - RESERVED, files // 2)
    assert made == ([] if raised_to is None else [(raised_to, raised_to)])


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells the size of the table")
def test_the_table_of_open_files_is_large_from_the_start() -> None:
    before = len(os.listdir("/proc/self/fd"))
    grow_table()
    assert len(os.listdir("/proc/self/fd")) == before
    lines = Path("/proc/self/status").read_text().splitlines()
    size = next(int(line.split()[1]) for line in lines if line.startswith("FDSize:"))
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert size >= min(FIRST_TABLE, soft)
