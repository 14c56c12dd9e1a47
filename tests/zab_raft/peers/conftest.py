"""Members whose connections are closed when their test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zab_raft.peers.loop import Loop, Member


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def member(loop: Loop, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Makes a member: `member(number, ...)`; its data directory is named after its number, or is `directory`."""
    members: list[Member] = []

    def make(number: int, directory: str | None = None, **options: Any) -> Member:
        members.append(Member(loop, tmp_path / (directory or str(number)), number, **options))
        return members[-1]

    yield make
    for each in members:
        each.stop()
    loop.settle()
