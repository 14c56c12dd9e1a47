"""A reconfig through a whole cell: trees and replicas with a simulated network, and the server's part between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tree.test_checkpoint_tables import state
from tests.zab_raft.cell import cell as cells
from tests.zab_raft.cell.cell import Cell
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.jute.primitives import Reader
from znoded.jute.records import CreateRequest, GetDataReply, ReconfigRequest
from znoded.server.membership import CellRoster, plan_change, refused_change, roster_command
from znoded.tree.acl import OPEN_ACL
from znoded.tree.commands import encode_command, encode_identities
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import new_session, new_term
from znoded.tree.reconfig import CONFIG, original
from znoded.tree.tables import Changes, ReadTable
from znoded.tree.tree import Applied, Tree
from znoded.zab_raft.cell.machine import Refusal
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration

OPTIONS = TreeOptions(reconfig=True)
SECRET = b"s" * 32
TIME_MS = 1_700_000_000_000
SESSION = 0x100
SUPER = encode_identities([(b"super", b"")])
OBSERVER = b"server.9=127.0.0.1:1:2:observer;127.0.0.1:3"


class TreeMachine:
    """The tree as the replica drives it."""

    def __init__(self, configuration: Callable[[], Configuration]) -> None:
        self.tree = Tree(OPTIONS)
        self.results: list[Applied] = []
        self._configuration = configuration
        self._roster = CellRoster(self.tree)

    @property
    def roster(self) -> Roster:
        return self._roster.current

    @property
    def dirty_bytes(self) -> int:
        return self.tree.dirty_bytes

    def found(self, roster: Roster) -> None:
        self._roster.found(roster)

    def load(self, read_table: ReadTable) -> None:
        self.tree.load(read_table)

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        self.results += [self.tree.apply(index, command) for index, command in enumerate(commands, first_index)]

    loose_tables = ()

    def take_changes(self) -> Changes:
        return self.tree.take_changes()

    def restore_changes(self, changes: Changes) -> None:
        self.tree.restore_changes(changes)

    def lead(self, term: int) -> list[bytes]:
        return [new_term(TIME_MS, term, SECRET, OPTIONS), roster_command(self.tree, TIME_MS)]

    def leader_changed(self, leader: int, term: int) -> None:
        """Nobody waits for it."""

    def leader_reached(self) -> None:
        """Nobody told it anything."""

    def told(self, member: int, payload: bytes) -> None:
        """Nobody tells anything."""

    def plan_change(self, command: bytes) -> ConfChange | bytes:
        return plan_change(self.tree, self._configuration(), command)

    def read_ahead(self, read_table: ReadTable) -> ReadTable:
        return read_table

    def refused_change(self, command: bytes, refusal: Refusal) -> bytes:
        return refused_change(command, refusal)

    def original(self, command: bytes) -> bytes:
        return original(command)

    @property
    def lines(self) -> list[str]:
        """The text of /zookeeper/config."""
        return (Reader(self.tree.nodes[CONFIG]).buffer() or b"").decode().split("\n")


class Client:
    """The super user's session at one member."""

    def __init__(self, cell: Cell, at: int) -> None:
        self.cell = cell
        self.member = cell[at]
        self.sequence = 0
        self.id = SESSION + at
        assert self.member.replica.propose([new_session(TIME_MS, self.id, 1, 10_000, None)])
        cell.run_until(lambda: all(self.id in machine.tree.sessions for machine in machines(cell)))

    @property
    def machine(self) -> TreeMachine:
        machine: object = self.member.journal
        assert isinstance(machine, TreeMachine)
        return machine

    def ask(self, joining: bytes | None, leaving: bytes | None = None, config_id: int = -1) -> int:
        """Propose a reconfig: its sequence."""
        self.member.replica.propose_change(
            self._command(Op.RECONFIG, ReconfigRequest(joining, leaving, None, config_id).encode())
        )
        return self.sequence

    def create(self, path: bytes) -> int:
        """Propose to create a node: its sequence."""
        self.member.replica.propose([self._command(Op.CREATE, CreateRequest(path, b"", OPEN_ACL, 0).encode())])
        return self.sequence

    def _command(self, op: Op, record: bytes) -> bytes:
        self.sequence += 1
        return encode_command(TIME_MS, self.id, 1, self.sequence, op, SUPER, record)

    def result(self, sequence: int) -> tuple[int, bytes]:
        """What became of it here: the error and the reply."""
        key = self.id, 1, sequence
        self.cell.run_until(lambda: any(result[:3] == key for result in self.machine.results))
        return next(result[3:] for result in self.machine.results if result[:3] == key)

    def reconfig(self, joining: bytes | None, leaving: bytes | None = None, config_id: int = -1) -> int:
        return self.result(self.ask(joining, leaving, config_id))[0]


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    monkeypatch.setattr(cells, "CellJournal", TreeMachine)
    cell = Cell(tmp_path).start()
    cell.settle()
    return cell


def machines(cell: Cell) -> list[TreeMachine]:
    found: list[object] = [each.journal for each in cell.running]
    return [each for each in found if isinstance(each, TreeMachine)]


def check(cell: Cell) -> None:
    """All members have the same."""
    cell.settle()
    states = [state(machine.tree) for machine in machines(cell)]
    assert len(states) == len(cell.running)
    assert all(each == states[0] for each in states)


def test_a_new_cell_shows_its_members_everywhere(cell: Cell) -> None:
    (lines,) = {tuple(machine.lines) for machine in machines(cell)}
    assert len(lines) == 4
    assert lines[-1] == f"version={machines(cell)[0].tree.config_version:x}"
    check(cell)


@pytest.mark.parametrize("at", [1, 2])
def test_an_observer_is_added_and_removed_through_any_member(cell: Cell, at: int) -> None:
    client = Client(cell, at)
    before = client.machine.lines[:-1]
    err, body = client.result(client.ask(OBSERVER))
    reply = GetDataReply.decode(Reader(body))
    assert err == ErrorCode.OK
    assert (reply.data or b"").decode().split("\n") == client.machine.lines
    assert OBSERVER.decode() in client.machine.lines
    assert (reply.stat.version, f"version={reply.stat.mzxid:x}") == (-1, client.machine.lines[-1])
    assert client.reconfig(None, b"9") == ErrorCode.OK
    assert client.machine.lines[:-1] == before
    check(cell)


def test_what_is_refused_changes_nothing_anywhere(cell: Cell) -> None:
    client = Client(cell, 2)
    version = client.machine.tree.config_version
    assert client.reconfig(b"some thing") == ErrorCode.BAD_ARGUMENTS
    assert client.reconfig(OBSERVER, config_id=version + 1) == ErrorCode.BAD_VERSION
    assert client.reconfig(None, b"1,2,3") == ErrorCode.BAD_ARGUMENTS
    cell[3].kill()
    cell.run(0.1)
    assert client.reconfig(None, b"2") == ErrorCode.NEW_CONFIG_NO_QUORUM
    assert client.machine.tree.config_version == version
    check(cell)


def test_a_reconfig_is_in_order_with_the_other_writes_of_its_session(cell: Cell) -> None:
    client = Client(cell, 2)
    asked = [client.create(b"/a"), client.ask(OBSERVER), client.create(b"/b"), client.ask(None, b"9")]
    assert [client.result(sequence)[0] for sequence in asked] == [0, 0, 0, 0]
    check(cell)


def test_members_that_join_vote_when_they_have_caught_up(cell: Cell) -> None:
    client = Client(cell, 1)
    assert client.reconfig(b"server.4=member-4:4:5;c:4,server.5=member-5:4:5;c:5") == ErrorCode.OK
    assert [each.phase for each in cell[1].replica.members()] == ["voter"] * 3 + ["joining"] * 2
    cell.join(4)
    cell.join(5)
    cell.run_until(lambda: [each.phase for each in cell[1].replica.members()] == ["voter"] * 5)
    cell.settle()
    assert machines(cell)[4].lines == client.machine.lines
    check(cell)


def test_a_change_is_made_once_though_its_leader_dies(cell: Cell) -> None:
    client = Client(cell, 2)
    asked = client.ask(OBSERVER)
    cell.run(0.004)
    cell[1].kill()
    assert client.result(asked)[0] == ErrorCode.OK
    assert [line for line in client.machine.lines if line.startswith("server.9=")] == [OBSERVER.decode()]
    check(cell)
