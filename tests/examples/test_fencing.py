"""examples/fencing: a worker that was stopped past its session finds its write rejected."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.server_process import ROOT, ServerProcess

WORKER = ROOT / "examples" / "fencing" / "worker.py"
PATIENCE_S = 30


class Worker:
    """The example's program, and what it says."""

    def __init__(self, name: str, server: ServerProcess, database: Path) -> None:
        command = [sys.executable, str(WORKER), name, "--coordinator", server.address]
        command += ["--database", str(database), "--session-timeout", "0.5"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def press_enter(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def worker(znoded_server: Callable[..., ServerProcess], tmp_path: Path) -> Iterator[Callable[[str], Worker]]:
    server = znoded_server("tick_ms = 100\n")
    with ExitStack() as workers:

        def start(name: str) -> Worker:
            worker = Worker(name, server, tmp_path / "accounts")
            workers.callback(worker.end)
            return worker

        yield start


def token_in(words: str) -> int:
    found = re.search(r"token (\d+), balance 0", words)
    assert found, words
    return int(found[1])


def test_the_write_of_a_worker_that_was_paused_is_rejected(worker: Callable[[str], Worker], tmp_path: Path) -> None:
    first = worker("first")
    old = token_in(first.says())
    first.process.send_signal(signal.SIGSTOP)
    second = worker("second")
    new = token_in(second.says())
    assert new > old
    second.press_enter()
    assert second.says() == "second: balance 10"
    first.process.send_signal(signal.SIGCONT)
    first.press_enter()
    assert first.says() == f"first: rejected, token {old} for 'accounts/1' is stale: token {new} has been here"
    assert first.process.wait(PATIENCE_S) == 1
    assert second.process.wait(PATIENCE_S) == 0
    with closing(sqlite3.connect(tmp_path / "accounts")) as database:
        assert database.execute("SELECT balance FROM account").fetchall() == [(10,)]
