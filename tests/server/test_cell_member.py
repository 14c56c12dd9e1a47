"""A member of a cell and its clients, while the leader is there, cannot be reached, or is another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from tests.server.harness import Client, HandReplica, House, create, exists, ping
from znoded.config import parse
from znoded.jute.primitives import encode_buffer
from znoded.jute.stat import STAT
from znoded.server import cell_member
from znoded.server.cell_member import CellMember
from znoded.server.membership import configured_roster
from znoded.server.readiness import PATIENCE_S
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import new_term
from znoded.tree.tree import Tree

TICK_MS = 2_000
PATIENCE_MS = 3_000
CELL = {
    "tick_ms": TICK_MS,
    "cell": {"members": {str(n): {"peer": f"h{n}:1", "client": f"h{n}:2", "role": "voter"} for n in (1, 2, 3)}},
}


class FollowingReplica(HandReplica):
    """One that follows a leader, which may be out of reach."""

    mode = "follower"
    leads = False
    has_leader = True
    reaches_leader = True

    leader = 2

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[bytes] = []
        self.confirms: bool | None = True
        """What reads are told; None: nothing, they wait."""
        self.asked: list[Callable[[bool], None]] = []

    def confirm_reads(self, then: Callable[[bool], None]) -> None:
        self.asked.append(then)
        if self.confirms is not None:
            then(self.confirms)

    numbers: tuple[int, ...] = (1, 2, 3)
    """Of the cell's members."""

    def members(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(number=number, phase="voter", connected=number != 2, leads=number == self.leader, blocks="")
            for number in self.numbers
        ]

    def tell_leader(self, payload: bytes) -> None:
        self.told.append(payload)


class FollowersHouse(House):
    """A follower and its clients."""

    member: CellMember
    replica: FollowingReplica

    def __init__(self, **keys: Any) -> None:
        self.clock = MemoryReactorClock()
        self.member = CellMember(parse({**CELL, **keys}), self.clock)
        self.replica = self.member.replica  # type: ignore[assignment]
        self.now_ms = 1_000_000
        self.member.monotonic_ms = lambda: self.now_ms  # type: ignore[method-assign]
        self.member.start()

    def pass_time(self, time_ms: int) -> None:
        """Let reports be made meanwhile."""
        self.now_ms += time_ms
        self.member._report_sessions()


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> FollowersHouse:
    def make(_config: Any, *arguments: Any) -> FollowingReplica:
        return FollowingReplica(*arguments)

    monkeypatch.setattr(cell_member, "_make_replica", make)
    return FollowersHouse()


@pytest.fixture
def client(house: FollowersHouse) -> Client:
    return house.client()


def test_what_was_told_into_a_connection_that_was_cut_is_told_again(house: FollowersHouse, client: Client) -> None:
    name = client.session_id.to_bytes(8, signed=True)
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    house.pass_time(500)
    house.pass_time(500)
    live.heard_ms = house.now_ms
    house.pass_time(500)
    assert any(name in told for told in house.replica.told)
    for _ in range(9):
        house.pass_time(500)
    house.replica.told.clear()
    house.member.leader_reached()
    house.pass_time(500)
    assert [told for told in house.replica.told if name in told] == [name]
    house.replica.told.clear()
    house.pass_time(500)
    assert not house.replica.told


def test_a_short_tick_makes_no_report_in_each_turn_of_the_reactor(house: FollowersHouse) -> None:
    short = FollowersHouse(tick_ms=1)
    short.client(timeout_ms=20)
    short.replica.told.clear()
    for _ in range(100):
        short.clock.advance(0.001)
    assert 3 <= len(short.replica.told) <= 4


def test_a_member_that_hears_a_leader_and_does_not_reach_it_sends_its_clients_away(
    house: FollowersHouse, client: Client
) -> None:
    house.replica.reaches_leader = False
    house.pass_time(0)
    house.pass_time(PATIENCE_MS)
    assert not client.transport.aborted
    house.pass_time(1)
    assert client.transport.aborted
    assert house.member.turns_clients_away


def test_it_takes_clients_again_when_it_reaches_the_same_leader(house: FollowersHouse) -> None:
    house.replica.reaches_leader = False
    house.pass_time(0)
    house.pass_time(PATIENCE_MS + 1)
    house.replica.reaches_leader = True
    house.pass_time(0)
    house.client()


def test_what_was_heard_while_the_leader_was_out_of_reach_is_told_later(house: FollowersHouse, client: Client) -> None:
    house.pass_time(1)
    house.replica.told.clear()
    house.replica.reaches_leader = False
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    live.heard_ms = house.now_ms
    house.pass_time(1)
    assert house.replica.told == []
    house.replica.reaches_leader = True
    house.pass_time(1)
    assert house.replica.told == [client.session_id.to_bytes(8)]


def test_what_was_heard_just_before_the_connection_was_lost_is_told(house: FollowersHouse, client: Client) -> None:
    house.pass_time(1)
    house.replica.told.clear()
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    live.heard_ms = house.now_ms
    client.drop()
    house.pass_time(1)
    assert house.replica.told == [client.session_id.to_bytes(8)]
    house.pass_time(1)
    assert len(house.replica.told) == 1


def test_what_was_heard_before_this_member_led_is_not_told_to_a_later_leader(
    house: FollowersHouse, client: Client
) -> None:
    """That one would take a session that is long silent for one that was just heard."""
    house.member.found(configured_roster(house.member.config))
    house.pass_time(1)
    house.replica.reaches_leader = False
    client.send(ping())
    client.drop()
    house.replica.leads, house.replica.reaches_leader = True, True
    house.member.lead(2)
    house.pass_time(60_000)
    house.replica.told.clear()
    house.replica.leads = False
    house.pass_time(1)
    assert house.replica.told == []


def test_what_was_heard_while_this_member_led_is_not_told_to_the_leader_that_followed_it(
    house: FollowersHouse, client: Client
) -> None:
    house.member.found(configured_roster(house.member.config))
    house.pass_time(1)
    house.replica.leads = house.replica.reaches_leader = True
    house.member.lead(2)
    house.pass_time(9_000)
    house.replica.leads = house.replica.reaches_leader = False
    house.replica.told.clear()
    house.pass_time(2_000)
    client.drop()
    house.pass_time(20_000)
    house.replica.reaches_leader = True
    house.pass_time(600)
    assert house.replica.told == []


def test_the_leader_is_told_who_reads_before_it_confirms_the_read(
    house: FollowersHouse, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may take its session for good from the moment at which it asked."""
    told_before: list[list[bytes]] = []

    def confirm(then: Callable[[bool], None]) -> None:
        told_before.append(list(house.replica.told))
        then(True)

    monkeypatch.setattr(house.member.gate, "confirm", confirm)
    client.send(exists(1, b"/"))
    assert told_before == [[client.session_id.to_bytes(8)]]


def test_a_client_that_pings_behind_a_read_that_waits_is_heard(
    house: FollowersHouse, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader may confirm nothing for longer than a session timeout, and lead on."""
    monkeypatch.setattr(house.member.gate, "confirm", lambda then: None)
    client.send(exists(1, b"/"))
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    for _ in range(3):
        house.now_ms += 3_000
        client.send(ping())
        assert live.heard_ms == house.now_ms


def test_a_snapshot_leaves_nobody_waiting_for_a_session(house: FollowersHouse) -> None:
    waiting = house.connect()
    waiting.shake()
    house.member.load(lambda _table: ())
    assert waiting.transport.aborted
    assert not house.member.handshake._opening


def test_a_state_that_was_read_ahead_is_the_one_that_is_loaded(house: FollowersHouse) -> None:
    other = Tree(TreeOptions())
    other.apply(1, new_term(1_000, 1, b"s" * 32, TreeOptions()))
    for number in range(3):
        data = encode_buffer(b"%d" % number) + STAT.pack(*[number] * len(STAT.unpack(bytes(STAT.size))))
        other.nodes[b"/%d" % number] = other.dirty.nodes[b"/%d" % number] = data
    tables = other.take_changes()

    read_table = house.member.read_ahead(lambda table: iter(tables.get(table, {}).items()))  # type: ignore[arg-type]
    house.member.load(read_table)
    tree = house.member.tree
    assert tree.nodes == other.nodes
    assert tree.zxid == 1
    assert {b"/0", b"/1", b"/2", b"/zookeeper"} == set(tree.children[b"/"])


# ---- its figures

#: What docs/metrics.md has in its part on cells.
COUNTERS = {
    "quorum_size", "learners", "synced_followers", "synced_observers", "synced_non_voting_followers", "pending_syncs",
    "leader_uptime", "last_proposal_size", "min_proposal_size", "max_proposal_size",
}  # fmt: skip


def test_a_leader_counts_who_is_there_and_a_follower_the_voters_alone(house: FollowersHouse) -> None:
    assert counters(house).keys() == {"quorum_size", "peer_state"}
    house.replica.leads, house.replica.mode = True, "leader"
    told = counters(house)
    assert told.keys() == COUNTERS | {"peer_state"}
    assert (told["learners"], told["synced_followers"], told["pending_syncs"]) == (2, 2, 0)


# ---- what a probe is told


def readiness(house: FollowersHouse) -> list[str]:
    """What is missing, once it is said."""
    told: list[str] = []
    house.member.look_at_readiness().addCallback(told.append)
    return told


def test_a_member_that_confirms_a_read_is_ready(house: FollowersHouse) -> None:
    assert readiness(house) == [""]


def test_a_member_that_knows_no_leader_says_whom_it_reaches(house: FollowersHouse) -> None:
    house.replica.confirms = house.replica.has_leader = house.replica.reaches_leader = False
    (missing,) = readiness(house)
    assert "no leader is known" in missing
    assert "2 of 3 voters are needed, and within reach is member 1, member 3" in missing


def test_a_member_that_was_removed_says_so(house: FollowersHouse) -> None:
    """It heard of its removal, and of no leader any more."""
    house.replica.confirms = house.replica.has_leader = house.replica.reaches_leader = False
    house.replica.numbers = (2, 3)
    (missing,) = readiness(house)
    assert "this is member 1, which was removed from the cell and can be ended" in missing


def test_a_client_that_is_content_with_what_is_known_stays_for_as_long_as_its_session_may_live(
    house: FollowersHouse,
) -> None:
    """The others have ended it by then, and given its locks away."""
    timeout_ms = 10_000
    client = house.client(timeout_ms=timeout_ms)
    client.connection.is_serializable = True
    house.replica.reaches_leader = False
    house.pass_time(0)
    for _ in range(timeout_ms // 1_000):
        house.pass_time(1_000)
        client.send(ping(), exists(1, b"/"))
    assert len(client.replies()) == 2 * (timeout_ms // 1_000)
    house.pass_time(1)
    assert client.is_closed


def test_a_member_that_confirms_no_read_in_time_is_not_ready(house: FollowersHouse) -> None:
    """Its leader may have lost the others and not know it yet, or it has yet to catch up."""
    house.replica.confirms = None
    told = readiness(house)
    house.clock.advance(PATIENCE_S - 0.01)
    assert told == []
    house.clock.advance(0.01)
    (missing,) = told
    assert "member 2 leads, but no read was confirmed within 750 ms" in missing


def test_a_member_that_cannot_reach_its_leader_is_not_ready(house: FollowersHouse) -> None:
    house.replica.confirms, house.replica.reaches_leader = None, False
    told = readiness(house)
    house.clock.advance(PATIENCE_S)
    assert told == ["member 2 leads and cannot be reached, so that reads and writes wait"]


def test_a_member_that_sends_its_clients_away_is_not_ready(house: FollowersHouse) -> None:
    house.replica.reaches_leader = False
    house.pass_time(0)
    house.pass_time(PATIENCE_MS + 1)
    assert readiness(house) == ["member 2 leads and cannot be reached, so that reads and writes wait"]
    assert house.replica.asked == []
    house.replica.reaches_leader = True
    house.pass_time(0)
    assert readiness(house) == [""]


def test_probes_wait_for_one_read_together(house: FollowersHouse) -> None:
    """Also for one that an earlier probe did not wait for to the end: reads that nobody confirms do not pile up."""
    house.replica.confirms = None
    first = readiness(house)
    house.clock.advance(PATIENCE_S)
    assert len(first) == 1
    second, third = readiness(house), readiness(house)
    (read,) = house.replica.asked
    read(True)
    assert second == third == [""]
    house.clock.advance(PATIENCE_S)
    readiness(house)
    assert len(house.replica.asked) == 2


def test_a_member_that_stops_is_not_ready(house: FollowersHouse) -> None:
    house.member.stop()
    (missing,) = readiness(house)
    assert missing.startswith("the member is starting or stopping")


# ---- what the words tell of the cell


def counters(house: FollowersHouse) -> dict[str, int | str]:
    return dict(house.member.cell_counters())


def test_a_follower_tells_whether_it_has_a_leader(house: FollowersHouse) -> None:
    house.member.found(configured_roster(house.member.config))
    assert counters(house) == {"peer_state": "following - broadcast", "quorum_size": 3}
    house.replica.reaches_leader = False
    assert counters(house)["peer_state"] == "looking - election"


def test_a_leader_tells_since_when_and_how_large_its_proposals_were(house: FollowersHouse, client: Client) -> None:
    house.member.found(configured_roster(house.member.config))
    house.replica.leads, house.replica.mode = True, "leader"
    house.member.lead(2)
    house.now_ms += 5_000
    told = counters(house)
    assert (told["peer_state"], told["leader_uptime"]) == ("leading - broadcast", 5_000)
    assert proposal_sizes(house) == [-1, -1, -1]
    for each, data_bytes in enumerate((100, 0, 50)):
        client.send(create(each, b"/%d" % each, bytes(data_bytes)))
        house.replica.commit()
    last, least, most = proposal_sizes(house)
    assert (last - least, most - least) == (50, 100)


def proposal_sizes(house: FollowersHouse) -> list[int]:
    return [int(counters(house)[f"{which}_proposal_size"]) for which in ("last", "min", "max")]
