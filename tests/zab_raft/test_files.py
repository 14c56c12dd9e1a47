"""The file operations that durability rests on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from znoded.zab_raft.files import Files


def test_write_goes_on_where_the_kernel_stopped_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short_pwritev(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        return os.pwrite(descriptor, b"".join(pieces)[:5], offset)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    files = Files()
    descriptor = files.create(str(tmp_path / "file"))
    files.write(descriptor, 3, [b"abcd", b"efgh"])
    files.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"\0\0\0abcdefgh"


def test_replace_leaves_nothing_of_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    Files().replace(str(path), b"a long content")
    Files().replace(str(path), b"short")
    assert path.read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["file"]


def test_allocated_space_reads_as_zeros(tmp_path: Path) -> None:
    files = Files()
    descriptor = files.create(str(tmp_path / "file"))
    files.allocate(descriptor, 10_000)
    files.close(descriptor)
    assert (tmp_path / "file").read_bytes() == bytes(10_000)
