"""zk-shell, the interactive shell on Kazoo, works as on a ZooKeeper."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.server_process import ServerProcess

Shell = Callable[[str], str]


@pytest.fixture
def shell(parts: Parts, znoded_server: Callable[..., ServerProcess]) -> Shell:
    """Runs lines of commands in one zk-shell; returns what it printed."""
    program = parts.program("zk-shell", "pip's zk-shell", also_in=[str(Path(sys.executable).parent)])
    server = znoded_server('[words]\nallow = ["*"]\n')

    def run(commands: str) -> str:
        done = subprocess.run(
            [program, "--sync-connect", "--run-from-stdin", server.address],
            input=commands,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout

    return run


def test_nodes_are_made_read_changed_and_removed(shell: Shell) -> None:
    printed = shell(
        "create /app 'first'\n"
        "get /app\n"
        "set /app 'second'\n"
        "get /app\n"
        "create /app/child 'x'\n"
        "create /app/item- 'y' false true\n"
        "ls /app\n"
        "rmr /app\n"
        "exists /app\n"
    )
    assert printed.split("\n") == [
        "first", "second", "child", "item-0000000001", "Path /app doesn't exist", "",
    ]  # fmt: skip


def test_a_stat_is_shown(shell: Shell) -> None:
    printed = shell("create /app 'four'\nset /app 'three'\nexists /app\n")
    fields = dict(line.split("=", 1) for line in printed.split() if "=" in line)
    assert fields["version"] == "1"
    assert fields["dataLength"] == "5"
    assert fields["ephemeralOwner"] == "0x0"


def test_a_transaction_is_all_or_nothing(shell: Shell) -> None:
    printed = shell(
        "txn 'create /one \"1\"' 'create /two \"2\"'\nls /\ntxn 'create /three \"3\"' 'check /one 7'\nexists /three\n"
    )
    assert "one" in printed
    assert "two" in printed
    assert "Path /three doesn't exist" in printed


def test_acls_are_set_and_shown(shell: Shell) -> None:
    printed = shell("create /app ''\nset_acls /app 'world:anyone:r'\nget_acls /app\nset /app 'no'\n")
    assert "READ" in printed
    assert "WRITE" not in printed


def test_a_tree_is_drawn_and_searched(shell: Shell) -> None:
    printed = shell("create /a/b/c 'needle' false false true\ntree /a\nfind /a c\ngrep /a needle\n")
    assert "├── b" in printed
    assert "/a/b/c" in printed


def test_four_letter_words_are_asked(shell: Shell) -> None:
    printed = shell("mntr\ncons\ndump\n")
    assert "zk_version\t3.9.5" in printed
    assert "zk_znode_count\t" in printed
