"""What a leader makes of a reconfig, in ZooKeeper's order of checks and with its codes (protocol facts 3 and 12)."""

from __future__ import annotations

import json

import pytest

from tests.tree.world import Client, World
from tests.zab_raft.cell.test_roster import THREE, member
from znoded.config import parse
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.jute.primitives import JuteError
from znoded.jute.records import ReconfigRequest
from znoded.server.membership import (
    CellRoster,
    conf_lines,
    configured_roster,
    founding_table,
    plan_change,
    refused_change,
    roster_command,
    told_members,
)
from znoded.tree.commands import encode_command, encode_identities
from znoded.tree.options import TreeOptions
from znoded.tree.reconfig import original
from znoded.zab_raft.cell.machine import Refusal
from znoded.zab_raft.cell.membership import MemberStatus, statuses
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Member, Role
from znoded.zab_raft.core import errors
from znoded.zab_raft.core.conf_change import ConfChange, Step, StepKind
from znoded.zab_raft.core.configuration import Configuration

VOTERS = THREE.configuration
SUPER = (b"super", b"")
ANYONE = (b"ip", b"127.0.0.1")
OBSERVER = b"server.9=127.0.0.1:1:2:observer;127.0.0.1:3"


class Cell:
    """A leader's tree, and the session of a client."""

    def __init__(self, roster: Roster = THREE, options: TreeOptions = TreeOptions(reconfig=True)) -> None:
        self.house = World(options)
        self.house.tree.roster = roster.encode()
        assert self.house.apply(roster_command(self.house.tree, self.house.now_ms)) == (0, b"")
        self.client: Client = self.house.session(0x100, SUPER)
        self.configuration: Configuration = roster.configuration

    @property
    def roster(self) -> Roster:
        return Roster.decode(self.house.tree.roster)

    def plan(
        self,
        joining: bytes | None = None,
        leaving: bytes | None = None,
        new_members: bytes | None = None,
        *,
        config_id: int = -1,
        identity: tuple[bytes, bytes] = SUPER,
    ) -> ConfChange | bytes:
        record = ReconfigRequest(joining, leaving, new_members, config_id).encode()
        self.client.sequence += 1
        self.command = encode_command(
            self.house.now_ms,
            self.client.id,
            self.client.attach,
            self.client.sequence,
            Op.RECONFIG,
            encode_identities([identity]),
            record,
        )
        return plan_change(self.house.tree, self.configuration, self.command)

    def reconfig(self, *request: bytes | None, config_id: int = -1, identity: tuple[bytes, bytes] = SUPER) -> int:
        """The error that the client gets."""
        plan = self.plan(*request, config_id=config_id, identity=identity)
        decided = plan.context if isinstance(plan, ConfChange) else plan
        assert original(decided) == self.command
        return self.house.apply(decided)[0]

    def lines(self) -> list[str]:
        return (self.house.data(b"/zookeeper/config") or b"").decode().split("\n")


@pytest.fixture
def cell() -> Cell:
    return Cell()


def test_an_observer_joins_and_leaves(cell: Cell) -> None:
    before = cell.lines()[:-1]
    plan = cell.plan(OBSERVER)
    assert isinstance(plan, ConfChange)
    assert plan.steps == (Step(StepKind.ADD_LEARNER, 4),)
    assert cell.house.apply(plan.context)[0] == ErrorCode.OK
    assert cell.lines() == [*before, OBSERVER.decode(), f"version={cell.house.tree.zxid:x}"]
    assert cell.roster.raft_id(9) == 4
    cell.configuration = Configuration.of([1, 2, 3], [4])
    plan = cell.plan(None, b"9")
    assert isinstance(plan, ConfChange)
    assert plan.steps == (Step(StepKind.REMOVE, 4),)
    assert cell.house.apply(plan.context)[0] == ErrorCode.OK
    assert cell.lines()[:-1] == before


def test_a_whole_list_takes_the_place_of_joining_and_leaving(cell: Cell) -> None:
    text = "\n".join(cell.lines()[:2]).encode()
    plan = cell.plan(OBSERVER, b"1", text)
    assert isinstance(plan, ConfChange)
    assert plan.steps == (Step(StepKind.REMOVE, 3),)


def test_the_text_that_is_shown_is_taken_as_a_whole_list(cell: Cell) -> None:
    text = "\n".join(cell.lines()).encode()
    assert cell.reconfig(None, None, text, config_id=cell.house.tree.config_version) == ErrorCode.OK
    assert cell.lines()[:-1] == text.decode().split("\n")[:-1]


@pytest.mark.parametrize("request_", [(None, None, None), (b"", b"", None), (None, b"77", None)])
def test_nothing_asked_for_succeeds_and_moves_the_version(cell: Cell, request_: tuple[bytes | None, ...]) -> None:
    before = cell.lines()
    assert cell.reconfig(*request_) == ErrorCode.OK
    assert cell.lines()[:-1] == before[:-1]
    assert cell.lines()[-1] != before[-1]


@pytest.mark.parametrize(
    ("request_", "err"),
    [
        ((b"some thing", None, None), ErrorCode.BAD_ARGUMENTS),
        ((b"server.9=a:1:2", None, None), ErrorCode.BAD_ARGUMENTS),
        ((b"server.9=a:1:2:observer;host1:2181", None, None), ErrorCode.BAD_ARGUMENTS),
        ((b"server.9=\xff:1:2;3", None, None), ErrorCode.BAD_ARGUMENTS),
        ((None, None, b"group.1=1:2"), ErrorCode.BAD_ARGUMENTS),
        ((None, None, b""), ErrorCode.BAD_ARGUMENTS),
        ((None, b"1,2,3", None), ErrorCode.BAD_ARGUMENTS),
        ((b"server.255=a:1:2;3", None, None), ErrorCode.BAD_ARGUMENTS),
        ((b"server.0=a:1:2;3", None, None), ErrorCode.BAD_ARGUMENTS),
        ((None, b"x", None), ErrorCode.MARSHALLING_ERROR),
        ((b"server.x=a:1:2;3", None, None), ErrorCode.MARSHALLING_ERROR),
    ],
)
def test_what_cannot_be_is_refused(cell: Cell, request_: tuple[bytes | None, ...], err: ErrorCode) -> None:
    before = cell.lines()
    assert cell.reconfig(*request_) == err
    assert cell.lines() == before


def test_the_checks_come_in_zookeepers_order(cell: Cell) -> None:
    worst = {"config_id": 99, "identity": ANYONE}
    disabled = Cell(options=TreeOptions())
    assert disabled.reconfig(b"some thing", **worst) == ErrorCode.RECONFIG_DISABLED  # type: ignore[arg-type]
    joint = Configuration(frozenset((1, 2)), frozenset((1, 2, 3)), auto_leave=True, highest_id=3)
    cell.configuration, before = joint, cell.configuration
    assert cell.reconfig(b"some thing", **worst) == ErrorCode.RECONFIG_IN_PROGRESS  # type: ignore[arg-type]
    cell.configuration = before
    assert cell.reconfig(b"some thing", **worst) == ErrorCode.BAD_VERSION  # type: ignore[arg-type]
    assert cell.reconfig(b"some thing", identity=ANYONE) == ErrorCode.BAD_ARGUMENTS
    assert cell.reconfig(b"server.999=a:1:2;3", identity=ANYONE) == ErrorCode.NO_AUTH
    assert cell.reconfig(b"server.999=a:1:2;3") == ErrorCode.BAD_ARGUMENTS


def test_one_member_grows_to_three_and_back(cell: Cell) -> None:
    cell = Cell(Roster.founding([member(1)]))
    plan = cell.plan(b"server.2=b:2888:3888;b:2181,server.3=c:2888:3888;c:2181")
    assert isinstance(plan, ConfChange)
    assert plan.steps == (Step(StepKind.ADD_LEARNER, 2), Step(StepKind.ADD_LEARNER, 3))
    assert cell.house.apply(plan.context)[0] == ErrorCode.OK
    assert [line.split(":")[-2].partition(";")[0] for line in cell.lines()[:-1]] == ["participant"] * 3
    cell.configuration = cell.roster.configuration
    assert cell.reconfig(None, b"2,3") == ErrorCode.OK


def test_a_member_that_is_alone_cannot_become_a_learner() -> None:
    cell = Cell(Roster.founding([member(1), member(2, Role.LEARNER)]))
    assert cell.reconfig(b"server.1=a:1:2:observer;3") == ErrorCode.BAD_ARGUMENTS


def test_a_repeat_is_not_planned_again(cell: Cell) -> None:
    plan = cell.plan(OBSERVER)
    assert isinstance(plan, ConfChange)
    cell.house.apply(plan.context)
    again = plan_change(cell.house.tree, cell.configuration, cell.command)
    assert isinstance(again, bytes)
    assert cell.house.apply(again)[0] == ErrorCode.SESSION_MOVED


def test_before_the_first_leader_has_spoken_a_change_has_to_wait(cell: Cell) -> None:
    cell.house.tree.roster = b""
    assert cell.reconfig(OBSERVER) == ErrorCode.RECONFIG_IN_PROGRESS


def test_what_the_core_refuses_has_a_code_too(cell: Cell) -> None:
    for refusal, err in (
        (Refusal.PENDING, ErrorCode.RECONFIG_IN_PROGRESS),
        (Refusal.NO_QUORUM, ErrorCode.NEW_CONFIG_NO_QUORUM),
        (Refusal.IMPOSSIBLE, ErrorCode.BAD_ARGUMENTS),
    ):
        cell.plan(OBSERVER)
        assert refused_change(cell.command, refusal) == refused_change(cell.command, refusal)
        assert cell.house.apply(refused_change(cell.command, refusal))[0] == err


def test_undecodable_requests_are_marshalling_errors(cell: Cell) -> None:
    cell.plan(OBSERVER)
    plan = plan_change(cell.house.tree, cell.configuration, cell.command[:-1])
    assert isinstance(plan, bytes)
    assert cell.house.apply(plan)[0] == ErrorCode.MARSHALLING_ERROR


def test_bytes_that_are_no_command_are_a_jute_error(cell: Cell) -> None:
    with pytest.raises(JuteError):
        plan_change(cell.house.tree, cell.configuration, b"short")


class TwoOfThree:
    """What the replica of a member that follows knows."""

    leader = 2
    term = 7

    def members(self) -> list[MemberStatus]:
        return statuses(THREE, VOTERS, {}, 0, 2, lambda raft_id: raft_id != 3)


def test_what_is_known_of_the_cell_can_be_told_as_json() -> None:
    told = json.loads(json.dumps(told_members(1, TwoOfThree())))
    assert (told["member"], told["leader"], told["term"]) == (1, 2, 7)
    assert [(each["number"], each["leads"], each["blocks"]) for each in told["members"]] == [
        (1, False, ""),
        (2, True, ""),
        (3, False, "not connected"),
    ]


def test_of_a_cell_that_was_not_entered_nothing_is_told_but_why() -> None:
    class Waiting(TwoOfThree):
        def members(self) -> list[MemberStatus]:
            raise errors.Refused(errors.Reason.NO_LEADER, "it waits")

    assert told_members(1, Waiting()) == {"error": "no leader is known: it waits; its log says for whom it waits"}


def test_a_cell_begins_with_the_configured_members() -> None:
    config = parse(
        {
            "cell": {
                "members": {
                    "1": {"peer": "a:2888", "client": "a:2181"},
                    "2": {"peer": "b:2888", "client": "", "role": "learner"},
                }
            }
        }
    )
    roster = configured_roster(config)
    assert roster == Roster.founding([Member(1, "a:2888", "a:2181"), Member(2, "b:2888", "", Role.LEARNER)])
    table = founding_table(roster)
    assert table.voters == {1}
    assert table.addresses == {1: "a:2888", 2: "b:2888"}
    assert table.digest == founding_table(configured_roster(config)).digest
    assert table.digest != founding_table(THREE).digest


def test_the_roster_is_decoded_when_the_tree_has_another(cell: Cell) -> None:
    known = CellRoster(cell.house.tree)
    assert known.current == THREE
    assert known.current is known.current
    cell.reconfig(OBSERVER)
    assert known.current.raft_id(9) == 4
    known.found(THREE)
    assert known.current == THREE


def test_the_word_conf_tells_the_ports_and_the_members(cell: Cell) -> None:
    text = cell.house.data(b"/zookeeper/config") or b""
    told = conf_lines(THREE.members[1], text, 3)
    assert told.startswith("initLimit=3\nsyncLimit=3\nelectionAlg=3\nelectionPort=3888\nquorumPort=2888\npeerType=0\n")
    assert "\nmembership: \nserver.1=" in told
    assert told.endswith(f"version={cell.house.tree.config_version:x}\n")
    assert "peerType=1" in conf_lines(member(2, Role.LEARNER), text, 3)
