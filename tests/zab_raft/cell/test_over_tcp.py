"""Replicas with the connections, threads and clock that a server has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FIRST_PORT = 24_340


@pytest.mark.slow
def test_three_members_write_read_hand_over_and_come_back_by_a_snapshot(quick_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.zab_raft.cell.over_tcp", str(quick_path), str(FIRST_PORT)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "founded",
        "written and read at every member",
        "handed over",
        "back by a snapshot",
        "started again",
    ]
