"""What a probe of /readyz is told by the processes of a cell that loses its majority, and gets it back."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cell_processes import CellProcesses
from tests.server_process import ServerProcess

TOML = """
[cell]
heartbeat_ms = 20
election_ms = 200
"""
PATIENCE_S = 20.0
PROBE_TIMEOUT_S = 1.0  # that of Kubernetes, unless it is told otherwise


def probed(member: ServerProcess) -> tuple[int, str]:
    """Status and text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{member.admin_port}/readyz", timeout=PROBE_TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_a_member_is_ready_while_it_has_a_majority(tmp_path: Path) -> None:
    cell = CellProcesses(tmp_path, lambda _number: TOML)
    with cell:
        assert [probed(member) for member in cell] == [(200, "ready\n")] * 3
        leader = cell.leader()
        follower, left = (member for member in cell if member is not leader)
        follower.kill()
        assert probed(left) == (200, "ready\n")
        leader.kill()
        deadline_s = time.monotonic() + PATIENCE_S
        while (answer := probed(left))[0] == 200:
            assert time.monotonic() < deadline_s
        number = list(cell).index(left) + 1
        assert answer[0] == 503
        assert f"2 of 3 voters are needed, and within reach is member {number}\n" in answer[1]
        follower.start()  # which returns once it is ready
        assert probed(left) == (200, "ready\n")
