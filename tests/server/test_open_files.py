"""The limit of open files is raised as far as it goes, and leaves room for the files of the log."""

from __future__ import annotations

import resource

import pytest

from znoded.server.open_files import RESERVED, UNLIMITED, room_for_connections

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
