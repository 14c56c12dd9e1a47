"""Whose a data directory is, and that one process has it at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from znoded.zab_raft.checksummed import with_checksum
from znoded.zab_raft.directory import DataDirectory, Meta
from znoded.zab_raft.errors import DirectoryError


def test_new_directory_gets_an_identity_that_stays(tmp_path: Path) -> None:
    first = DataDirectory(str(tmp_path / "data"), member=3)
    first.set_initialised()
    first.close()
    second = DataDirectory(str(tmp_path / "data"), member=3)
    second.close()
    assert second.meta == Meta(first.meta.cell, 3, initialised=True)
    assert len(bytes.fromhex(second.meta.cell)) == 16


def test_directory_of_another_member_is_refused(tmp_path: Path) -> None:
    DataDirectory(str(tmp_path), member=1).close()
    with pytest.raises(DirectoryError, match=rf"{tmp_path} belongs to member 1, not to member 2; set member = 1 or"):
        DataDirectory(str(tmp_path), member=2)


def test_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "data"):
        with pytest.raises(DirectoryError, match=f"{path} is no directory, or in none; name another data directory"):
            DataDirectory(str(path), member=1)


def test_directory_in_use_is_refused_with_the_pid_of_its_user(tmp_path: Path) -> None:
    directory = DataDirectory(str(tmp_path), member=1)
    with pytest.raises(DirectoryError, match=rf"lock is held by another process \(pid {os.getpid()}\)"):
        DataDirectory(str(tmp_path), member=1)
    directory.close()
    DataDirectory(str(tmp_path), member=1).close()


def test_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    program = "import os, sys; from znoded.zab_raft.directory import *; DataDirectory(sys.argv[1], 1); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)]).returncode == 9
    DataDirectory(str(tmp_path), member=1).close()


def test_refused_directory_is_not_left_locked(tmp_path: Path) -> None:
    DataDirectory(str(tmp_path), member=1).close()
    with pytest.raises(DirectoryError):
        DataDirectory(str(tmp_path), member=2)
    DataDirectory(str(tmp_path), member=1).close()


@pytest.mark.parametrize("offset", range(24, 107, 3))
def test_flipped_bit_in_the_meta_file_is_refused(tmp_path: Path, offset: int) -> None:
    DataDirectory(str(tmp_path), member=1).close()
    path = tmp_path / "meta"
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(content)
    with pytest.raises(DirectoryError, match=str(path)):
        DataDirectory(str(tmp_path), member=1)


@pytest.mark.parametrize("kept", [0, 1, 21, 22, 30, 60, 90, 107])
def test_shortened_meta_file_is_refused(tmp_path: Path, kept: int) -> None:
    DataDirectory(str(tmp_path), member=1).close()
    path = tmp_path / "meta"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DirectoryError, match=str(path)):
        DataDirectory(str(tmp_path), member=1)


def test_line_that_is_of_no_use_any_more_is_left_out(tmp_path: Path) -> None:
    cell = "5a" * 16
    lines = f"znoded data directory\nformat 1\ncell {cell}\nmember 3\nzxid_base 0\ninitialised 1\n"
    (tmp_path / "meta").write_bytes(with_checksum(lines.encode()))
    directory = DataDirectory(str(tmp_path), member=3)
    directory.close()
    assert directory.meta == Meta(cell, 3, initialised=True)


def test_directory_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta").write_bytes(b"znoded data directory\nformat 2\nsomething new\n")
    with pytest.raises(DirectoryError, match="says 'format 2', this version reads format 1"):
        DataDirectory(str(tmp_path), member=1)


@pytest.mark.parametrize("folder", ["log", "state"])
def test_content_without_a_meta_file_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "file").touch()
    with pytest.raises(DirectoryError, match=f"meta is missing, but {tmp_path / folder} has content"):
        DataDirectory(str(tmp_path), member=1)
