"""Every limit is met with an outcome that the client can see, and costs a bounded amount of memory."""

from __future__ import annotations

import pytest
from twisted.logger import LogEvent, globalLogPublisher

from tests.hostile.invariants import check_memory, check_tree
from tests.jute.factory import acl, frame, i4, i8, multi, request, string, strings, vector
from tests.server.harness import Client, House, create, exists, get_data, ping, set_data
from znoded.jute.ops import Op
from znoded.server import delivery
from znoded.server.complaints import LINES_IN_ALL, LINES_PER_ADDRESS, PERIOD_MS, Complaints
from znoded.server.figures import Figures
from znoded.tree.acl import allowed

QUOTA_EXCEEDED = -125


def auth(user: bytes, scheme: bytes = b"digest") -> bytes:
    return request(-4, Op.AUTH, i4(0), string(scheme), string(user + b":p"))


def committed(client: Client, *frames: bytes) -> list[tuple[int, int]]:
    """The answers to some requests, all that is proposed being committed."""
    client.send(*frames)
    client.house.replica.commit()
    return client.replies()


# ---- identities


def test_identities_have_a_limit_and_the_one_too_many_ends_the_connection() -> None:
    house = House(**{"limits.identity_bytes_per_connection": 1024})
    client = house.client()
    replies: list[tuple[int, int]] = []
    for number in range(1000):
        if client.is_closed:
            break
        client.send(auth(b"user-%d" % number))
        replies += client.replies()
        check_memory(house.member, client.connection)
    assert replies[-1] == (-4, -115)
    assert set(replies[:-1]) == {(-4, 0)}
    assert 10 < len(replies) < 50
    assert client.is_closed


def test_the_same_identity_over_and_over_is_one() -> None:
    client = House(**{"limits.identity_bytes_per_connection": 1024}).client()
    for _ in range(100):
        client.send(auth(b"user"))
    assert client.replies() == [(-4, 0)] * 100
    assert len(client.connection.identities) == 2


def test_a_long_identity_is_refused_at_once() -> None:
    client = House().client()
    client.send(auth(b"u" * 100_000))
    assert client.replies() == [(-4, -115)]
    assert client.is_closed


# ---- requests


@pytest.mark.parametrize("answered", [True, False])
def test_large_requests_that_wait_have_a_limit(answered: bool) -> None:
    house = House()
    client = house.client()
    writes = [create(xid, b"/n%d" % xid, b"x" * 500_000) for xid in range(1, 21)]
    client.send(*writes)
    assert len(house.replica.collected) == 9
    assert not client.connection.is_reading
    if answered:
        replies: list[tuple[int, int]] = []
        while house.replica.collected:
            house.replica.commit()
            replies += client.replies()
        assert replies == [(xid, 0) for xid in range(1, 21)]
        assert client.connection.is_reading
        assert client.connection.waiting_bytes == 0


def test_large_requests_of_all_clients_together_have_a_limit() -> None:
    house = House(**{"limits.outstanding_bytes": 1_000_000})
    clients = [house.client() for _ in range(10)]
    for client in clients:
        client.send(*[create(xid, b"/%d-%d" % (client.session_id, xid), b"x" * 300_000) for xid in range(1, 5)])
    # Each has one under way at least: that a client is read from again never depends on what others do.
    assert len(house.replica.collected) == 4 + 9
    replies = {client.session_id: client.replies() for client in clients}
    while house.replica.collected:
        house.replica.commit()
        for client in clients:
            replies[client.session_id] += client.replies()
    assert all(answers == [(xid, 0) for xid in range(1, 5)] for answers in replies.values())


def test_a_reader_is_served_while_the_writes_of_others_are_over_the_limit() -> None:
    house = House(**{"limits.outstanding": 1})
    writer, reader = house.client(), house.client()
    assert committed(reader, create(1, b"/a")) == [(1, 0)]
    writer.send(create(1, b"/b"))
    reader.send(get_data(2, b"/a"), get_data(3, b"/a"))
    assert reader.replies() == [(2, 0), (3, 0)]
    reader.send(get_data(4, b"/a"))
    assert reader.replies() == [(4, 0)]


def test_an_oversized_request_is_not_kept_while_it_comes() -> None:
    house = House()
    client = house.client()
    data = create(1, b"/big", b"x" * 2_000_000)
    for start in range(0, len(data), 60_000):
        assert client.replies() == []
        client.send(data[start : start + 60_000])
        assert len(client.connection.kept or b"") <= 12
    client.send(get_data(2, b"/"))
    assert client.replies() == [(1, -8), (2, 0)]


def test_an_oversized_request_may_end_in_the_middle_of_a_segment() -> None:
    client = House(**{"limits.frame_bytes": 1024}).client()
    data = create(1, b"/big", b"x" * 1500) + ping() + exists(3, b"/none")
    for cut in range(0, len(data), 13):
        client.send(data[:cut])
        client.send(data[cut:])
        assert client.replies() == [(1, -8), (-2, 0), (3, -101)]


def test_a_request_in_tiny_segments_takes_no_more_room_than_its_size() -> None:
    house = House()
    client = house.client()
    data = create(1, b"/n", b"x" * 100_000)
    for start in range(0, len(data), 2):
        client.send(data[start : start + 2])
    house.replica.commit()
    assert client.replies() == [(1, 0)]


@pytest.mark.parametrize("length", [27, 128 * 1024 + 1, 1_048_575, 2**31 - 1, 0, -5])
def test_a_first_frame_that_is_no_connect_request_ends_the_connection(length: int) -> None:
    client = House().connect()
    client.send(i4(length))
    assert client.transport.aborted


# ---- answers


def test_a_multi_read_that_asks_for_a_large_node_again_and_again_is_refused() -> None:
    house = House(**{"limits.multi_read_bytes": 1_000_000})
    client = house.client()
    assert committed(client, create(1, b"/big", b"x" * 400_000)) == [(1, 0)]
    read = string(b"/big") + b"\0"
    client.send(request(2, Op.MULTI_READ, multi(*[(Op.GET_DATA, read)] * 2)))
    client.send(request(3, Op.MULTI_READ, multi(*[(Op.GET_DATA, read)] * 10_000)))
    assert client.replies() == [(2, 0), (3, QUOTA_EXCEEDED)]


def test_a_closed_connection_still_gets_what_it_is_owed() -> None:
    house = House()
    client = house.client()
    committed(client, create(1, b"/n", b"x" * 500_000))
    client.transport.block()
    client.send(get_data(2, b"/n"))
    client.transport.unblock()
    assert client.replies() == [(2, 0)]
    client.send(set_data(3, b"/n"), request(4, 999))
    client.transport.block()
    house.replica.commit()
    client.transport.unblock()
    assert client.replies() == [(3, 0), (4, -6)]
    assert client.is_closed


def test_a_closed_connection_that_does_not_read_is_cut_off_in_time() -> None:
    house = House(**{"limits.handshake_timeout_ms": 100})
    client = house.client()
    now_ms = house.member.monotonic_ms()
    client.send(request(1, 999))
    assert client.is_closed
    assert not client.transport.aborted
    assert list(house.member.admission.overstayed(now_ms + 10_000)) == [client.connection]


# ---- watches


def test_watches_on_long_paths_have_a_limit_of_their_own() -> None:
    house = House(**{"limits.watch_bytes_per_session": 10_000})
    client = house.client()
    paths = [b"/%d" % number + b"x" * 2990 for number in range(5)]
    client.send(*[exists(xid, path, watch=True) for xid, path in enumerate(paths)])
    assert client.replies() == [(0, -101), (1, -101), (2, -101), (3, QUOTA_EXCEEDED), (4, QUOTA_EXCEEDED)]
    client.send(request(5, Op.ADD_WATCH, string(paths[3]), i4(0)))
    client.send(request(6, Op.SET_WATCHES, i8(0), strings(), strings(*paths), strings()))
    assert client.replies() == [(5, QUOTA_EXCEEDED), (6, QUOTA_EXCEEDED)]
    client.send(request(7, Op.REMOVE_WATCHES, string(paths[0]), i4(3)), exists(8, paths[3], watch=True))
    assert client.replies() == [(7, 0), (8, -101)]
    check_memory(house.member, client.connection)


def test_set_watches_counts_what_it_sets() -> None:
    client = House(**{"limits.watches_per_session": 5}).client()
    client.send(request(1, Op.SET_WATCHES, i8(0), strings(), strings(*[b"/%d" % n for n in range(6)]), strings()))
    client.send(request(2, Op.SET_WATCHES, i8(0), strings(), strings(*[b"/%d" % n for n in range(5)]), strings()))
    client.send(request(3, Op.ADD_WATCH, string(b"/x"), i4(1)))
    assert client.replies() == [(1, QUOTA_EXCEEDED), (2, 0), (3, QUOTA_EXCEEDED)]


@pytest.mark.parametrize("count", [2**31 - 1, 100_000, -(2**31)])
def test_set_watches_with_a_count_that_is_not_there(count: int) -> None:
    client = House().client()
    client.send(request(1, Op.SET_WATCHES2, i8(-1), *[i4(count)] * 5), ping())
    assert client.replies() == [(1, 0 if count == -(2**31) else -5), (-2, 0)]


def test_the_ancestors_of_a_long_path_are_not_looked_for_one_by_one() -> None:
    client = House().client()
    path = b"/" * 400_000
    client.send(request(1, Op.SET_WATCHES2, i8(-9), strings(), strings(), strings(), strings(path), strings(path)))
    assert client.replies()[-1] == (1, 0)


def test_a_long_acl_is_looked_at_once_for_watchers_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    owner = house.client()
    owner.send(auth(b"owner"))
    mine = vector(acl(31, b"auth", b""))
    committed(owner, request(1, Op.CREATE, string(b"/n"), string(b""), mine, i4(0)))
    friends, strangers = [house.client() for _ in range(5)], [house.client() for _ in range(5)]
    for friend in friends:
        friend.send(auth(b"owner"))
    for watcher in (*friends, *strangers):
        watcher.send(request(1, Op.ADD_WATCH, string(b"/n"), i4(0)))
        watcher.replies()
    looked: list[object] = []
    monkeypatch.setattr(delivery, "allowed", lambda *of: looked.append(of) or allowed(*of))
    committed(owner, set_data(2, b"/n"))
    assert [watcher.replies() for watcher in friends] == [[(-1, 3)]] * 5
    assert [watcher.replies() for watcher in strangers] == [[]] * 5
    assert len(looked) == 2


# ---- sessions and connections


def test_sessions_have_a_limit_that_counts_those_on_their_way() -> None:
    house = House(**{"limits.sessions": 3})
    clients = [house.connect() for _ in range(5)]
    for client in clients:
        client.shake()
    assert [client.transport.aborted for client in clients] == [False] * 3 + [True] * 2
    house.replica.commit()
    assert len(house.member.tree.sessions) == 3
    clients[0].established()
    clients[0].drop()
    returned = house.connect()
    returned.resume(clients[0].session_id, clients[0].password)
    assert returned.established() > 0


def test_connections_beyond_the_limit_are_closed_and_the_others_stay() -> None:
    house = House(**{"limits.connections_per_address": 2, "limits.connections": 3})
    held = [house.client() for _ in range(2)]
    assert house.connect().transport.aborted
    other = house.connect("192.0.2.1")
    assert not other.transport.aborted
    assert house.connect("192.0.2.2").transport.aborted
    assert not any(client.is_closed for client in held)
    assert len(house.member.admission) == 3


# ---- the tree


def test_a_wide_list_of_children_meets_its_limit() -> None:
    house = House(**{"limits.children_bytes": 1024})
    client = house.client()
    replies = committed(client, *[create(xid, b"/%0100d" % xid) for xid in range(1, 21)])
    assert [error for _, error in replies] == [0] * 10 + [QUOTA_EXCEEDED] * 10
    check_tree(house.member.tree)


def test_an_acl_with_too_many_entries_is_refused() -> None:
    house = House(**{"limits.acl_entries": 10})
    client = house.client()
    entries = [acl(31, b"ip", b"192.0.2.%d" % number) for number in range(11)]
    made = request(1, Op.CREATE, string(b"/a"), string(b""), vector(*entries[:10]), i4(0))
    refused = request(2, Op.CREATE, string(b"/b"), string(b""), vector(*entries), i4(0))
    assert committed(client, made, refused) == [(1, 0), (2, QUOTA_EXCEEDED)]


def test_a_multi_as_large_as_a_frame_is_carried_out_or_refused_as_one() -> None:
    house = House()
    client = house.client()
    operation = Op.CREATE, string(b"/m/") + string(b"") + vector(acl(31, b"world", b"anyone")) + i4(2)
    many = [operation] * 15_000
    assert committed(client, create(1, b"/m"), request(2, Op.MULTI, multi(*many))) == [(1, 0), (2, 0)]
    assert len(house.member.tree.nodes) == 15_005
    wrong = Op.DELETE, string(b"/none") + i4(-1)
    assert committed(client, request(3, Op.MULTI, multi(*many, wrong))) == [(3, 0)]
    assert len(house.member.tree.nodes) == 15_005


def test_a_deep_path_is_made_and_taken_apart() -> None:
    house = House()
    client = house.client()
    paths = [b"/d" * depth for depth in range(1, 1501)]
    for start in range(0, 1500, 500):
        part = paths[start : start + 500]
        assert committed(client, *[create(1, path) for path in part]) == [(1, 0)] * 500
    client.send(request(2, Op.GET_ALL_CHILDREN_NUMBER, string(b"/d")))
    (reply,) = client.frames()
    assert reply[16:] == i4(1499)
    check_tree(house.member.tree)


# ---- faults that ZooKeeper has


@pytest.mark.parametrize("op", [1, 2, 5, 7, 14, 15, 16, 19, 21])
@pytest.mark.parametrize("record", [b"", b"\0\0", i4(2**31 - 1), string(b"/a")])
def test_a_truncated_write_is_an_error_and_the_log_goes_on(op: int, record: bytes) -> None:
    house = House()
    client, other = house.client(), house.client()
    assert committed(client, request(1, op, record)) == [(1, -5)]
    assert committed(other, create(1, b"/other")) == [(1, 0)]


@pytest.mark.parametrize("op", [20, -10, 13, -20])
def test_an_op_that_only_a_server_may_use_ends_the_connection(op: int) -> None:
    house = House()
    client = house.client()
    assert committed(client, request(1, op, string(b"/a"), i8(1), i8(1))) == [(1, -6)]
    assert client.is_closed


@pytest.mark.parametrize("ttl_ms", [-1, 0, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4, 5, 6])
def test_a_ttl_that_cannot_be_is_refused(flags: int, ttl_ms: int) -> None:
    client = House().client()
    record = string(b"/t") + string(b"") + vector(acl(31, b"world", b"anyone")) + i4(flags) + i8(ttl_ms)
    ((_, error),) = committed(client, request(1, Op.CREATE_TTL, record))
    assert error == -8
    assert committed(client, create(2, b"/after")) == [(2, 0)]


def test_a_ping_may_carry_anything() -> None:
    client = House().client()
    client.send(request(7, Op.PING, b"\xff" * 1000), frame(i4(-2), i4(Op.PING)))
    assert client.replies() == [(-2, 0), (-2, 0)]


# ---- the log about clients


class Lines:
    """What was logged about clients, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.complaints = Complaints(lambda: self.now_ms)
        self.lines: list[LogEvent] = []

    def add(self, host: str) -> int:
        """How many lines one more complaint makes."""
        before = len(self.lines)
        globalLogPublisher.addObserver(self.lines.append)
        try:
            self.complaints.add(host, 1, "why")
        finally:
            globalLogPublisher.removeObserver(self.lines.append)
        return len(self.lines) - before


def test_one_address_cannot_flood_the_log() -> None:
    lines = Lines()
    for _ in range(10_000):
        lines.add("192.0.2.1")
    assert len(lines.lines) == LINES_PER_ADDRESS + 1
    assert lines.add("192.0.2.2") == 1


def test_many_addresses_cannot_flood_the_log() -> None:
    lines = Lines()
    for number in range(10_000):
        lines.add(f"2001:db8::{number:x}")
    assert len(lines.lines) == LINES_IN_ALL


def test_what_was_left_out_is_told_when_the_minute_is_over() -> None:
    lines = Lines()
    for _ in range(100):
        lines.add("192.0.2.1")
    lines.now_ms = PERIOD_MS
    assert lines.add("192.0.2.1") == 2
    assert lines.lines[-2]["count"] == 100 - LINES_PER_ADDRESS


def test_a_count_that_takes_long_is_not_made_for_everyone_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    figures = Figures(house.member)
    clock = iter([1_000, 1_020, 2_000, 2_999, 3_000, 3_000, 3_001, 3_001])
    monkeypatch.setattr(house.member, "monotonic_ms", lambda: next(clock))
    before = figures.data_bytes
    house.member.tree.nodes[b"/x"] = bytes(172)
    assert [figures.data_bytes for _ in range(2)] == [before] * 2
    assert [figures.data_bytes for _ in range(2)] == [before + 102] * 2
