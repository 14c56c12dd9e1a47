"""A recorded run of a real tree, killed after every operation: each restart has what the first n commands make."""

from __future__ import annotations

import shutil
import struct
import tempfile
from copy import deepcopy
from pathlib import Path

import pytest

from tests.crash.raw_client import CREATE, EPHEMERAL, MULTI, SET_DATA, create_body, multi_body, set_data_body
from tests.crash.recording import Disk, RecordingFiles
from tests.crash.test_every_cut import note_commits
from tests.tree.test_checkpoint_tables import state
from tests.zab_raft.pump import PumpReactor
from znoded.jute.ops import Op
from znoded.tree.commands import encode_command
from znoded.tree.history_segment import LOOSE_TABLES
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import new_term
from znoded.tree.tree import Tree
from znoded.zab_raft import checkpoint as checkpoint_module
from znoded.zab_raft import increment as increment_module
from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.files import Files
from znoded.zab_raft.increment import Changes
from znoded.zab_raft.replica import Replica
from znoded.zab_raft.storage_options import StorageOptions

SESSION = 7
NOBODY = struct.pack(">i", 0)
INTERVAL_S = 1000


class TreeMachine:
    """The tree as the replica drives it."""

    def __init__(self) -> None:
        self.tree = Tree(TreeOptions())

    @property
    def dirty_bytes(self) -> int:
        return self.tree.dirty_bytes

    def load(self, read_table: ReadTable) -> None:
        self.tree.load(read_table)

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        for index, command in enumerate(commands, first_index):
            self.tree.apply(index, command)

    loose_tables = LOOSE_TABLES

    def take_changes(self) -> Changes:
        return self.tree.take_changes()

    def restore_changes(self, changes: Changes) -> None:
        self.tree.restore_changes(changes)


class TreeMember:
    def __init__(self, data_dir: Path, files: Files | None = None) -> None:
        self.reactor = PumpReactor()
        self.machine = TreeMachine()
        options = StorageOptions(str(data_dir), segment_bytes=4096, checkpoint_interval_ms=INTERVAL_S * 1000)
        self.errors: list[BaseException] = []
        self.replica = Replica(self.reactor, options, self.machine, self.errors.append, files)
        self.replica.start()

    def write(self, *commands: bytes) -> None:
        for command in commands:
            assert self.replica.propose([command])
        self.reactor.run_until(lambda: self.replica.applied_index == self.replica.last_index)

    def stop(self) -> None:
        self.reactor.result_of(self.replica.stop())


def commands() -> list[bytes]:
    """Creates of all kinds, changes, multis that succeed and that fail, and a session that ends with its ephemerals."""
    made = [
        new_term(1, 1, bytes(16), TreeOptions()),
        encode_command(2, SESSION, 1, 0, Op.CREATE_SESSION, b"", struct.pack(">ii", 30_000, -1)),
    ]
    requests = [(CREATE, create_body(b"/parent", b""))]
    for number in range(15):
        path = b"/parent/%d" % number
        requests.append((CREATE, create_body(path, b"x" * number)))
        requests.append((CREATE, create_body(path + b"/ephemeral", b"", EPHEMERAL)))
        requests.append((CREATE, create_body(b"/parent/sequential-", b"", flags=2)))
        requests.append((SET_DATA, set_data_body(path, b"y" * 3 * number)))
        requests.append((MULTI, multi_body(path + b"/a", path + b"/b")))
        requests.append((MULTI, multi_body(path + b"/c", path + b"/a")))
        requests.append((Op.DELETE, struct.pack(">i", len(path) + 2) + path + b"/a" + struct.pack(">i", -1)))
    requests.append((Op.CLOSE_SESSION, b""))
    for sequence, (op, record) in enumerate(requests, 1):
        made.append(encode_command(3 + sequence, SESSION, 1, sequence, op, NOBODY, record))
    return made


def test_every_restart_has_the_tree_after_some_first_commands(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increment_module, "PORTION_ITEMS", 4)
    monkeypatch.setattr(checkpoint_module, "TRANSACTION_ITEMS", 16)
    all_commands = commands()
    with tempfile.TemporaryDirectory() as directory, monkeypatch.context() as patch:
        files = RecordingFiles(Path(directory) / "data")
        note_commits(patch, files)
        member = TreeMember(Path(directory) / "data", files)
        acknowledged = []
        for start in range(0, len(all_commands), 5):
            member.write(*all_commands[start : start + 5])
            acknowledged.append((len(files.operations), member.replica.applied_index))
            if start % 15 == 0:
                member.reactor.advance(INTERVAL_S)
        member.stop()
    oracle = TreeMachine()
    states = [deepcopy(state(oracle.tree))]
    for index, command in enumerate(all_commands, 1):
        oracle.apply_batch(index, [command])
        states.append(deepcopy(state(oracle.tree)))
    assert b"/parent/3/b" in oracle.tree.nodes
    assert b"/parent/3/c" not in oracle.tree.nodes
    assert oracle.tree.sessions == {}
    for count in range(len(files.operations) + 1):
        shutil.rmtree(quick_path / "data", ignore_errors=True)
        restarted = TreeMember(Disk(files.operations[:count]).after_kill(quick_path / "data"))
        tree, index = restarted.machine.tree, restarted.replica.applied_index
        assert state(tree) == states[index]
        assert index >= max((commands for position, commands in acknowledged if position <= count), default=0)
        restarted.stop()
