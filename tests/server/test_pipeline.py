"""Requests in their place: what is answered at once, what waits, and in which order it all leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jute.factory import i4, i8, in_pieces, request, string
from tests.server.harness import Client, House, close, create, exists, get_children, get_data, ping, set_data
from znoded.jute.ops import Op, WatcherType


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    client = house.client()
    client.send(create(1, b"/a", b"old"))
    house.replica.commit()
    assert client.replies() == [(1, 0)]
    return client


def test_reads_are_answered_at_once(client: Client) -> None:
    client.send(get_data(2, b"/a"), exists(3, b"/none"), get_children(4, b"/"))
    assert client.replies() == [(2, 0), (3, -101), (4, 0)]


def test_a_write_is_answered_when_it_is_committed(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a"))
    assert client.replies() == []
    house.replica.commit()
    assert client.replies() == [(2, 0)]


def test_a_read_behind_the_sessions_own_write_waits_for_it(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a", b"new"), get_data(3, b"/a"), ping())
    assert client.frames() == []
    house.replica.commit()
    first, second, third = client.frames()
    assert (first[:4], second[:4], third[:4]) == (i4(2), i4(3), i4(-2))
    assert second[16:23] == string(b"new")


def test_a_read_of_another_session_does_not_wait(house: House, client: Client) -> None:
    other = house.client()
    client.send(set_data(2, b"/a", b"new"))
    other.send(get_data(1, b"/a"))
    (reply,) = other.frames()
    assert reply[16:23] == string(b"old")


def test_a_read_between_two_writes_sees_only_the_first(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a", b"one"), get_data(3, b"/a"), set_data(4, b"/a", b"two"), get_data(5, b"/a"))
    house.replica.commit()
    frames = client.frames()
    assert [frame[16:23] for frame in frames[1::2]] == [string(b"one"), string(b"two")]


def test_writes_committed_one_by_one_answer_in_order(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a"), set_data(3, b"/none"), get_data(4, b"/a"))
    house.replica.commit(1)
    assert client.replies() == [(2, 0)]
    house.replica.commit(1)
    assert client.replies() == [(3, -101), (4, 0)]


def test_the_event_of_an_own_write_comes_before_its_reply(house: House, client: Client) -> None:
    client.send(get_data(2, b"/a", watch=True), set_data(3, b"/a"))
    house.replica.commit()
    assert client.replies() == [(2, 0), (-1, 3), (3, 0)]


def test_auth_is_answered_in_arrival_order_and_counts_at_once(house: House, client: Client) -> None:
    auth = request(-4, Op.AUTH, i4(0), string(b"digest"), string(b"u:p"))
    client.send(set_data(2, b"/a"), auth, request(3, Op.WHO_AM_I))
    assert client.replies() == []
    house.replica.commit()
    assert client.replies() == [(2, 0), (-4, 0), (3, 0)]
    assert len(client.connection.identities) == 2


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("::1", b"0:0:0:0:0:0:0:1"),
        ("2001:db8::ab:cd", b"2001:db8:0:0:0:0:ab:cd"),
        ("fe80::1%eth0", b"fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:192.0.2.1", b"192.0.2.1"),
        ("192.0.2.1", b"192.0.2.1"),
    ],
)
def test_an_address_is_shown_as_java_writes_it(house: House, host: str, shown: bytes) -> None:
    connection = house.connect(host).connection
    assert connection.host.encode() == shown
    assert connection.identities == ((b"ip", shown),)


def test_an_unknown_scheme_ends_the_connection_behind_its_answer(client: Client) -> None:
    client.send(request(-4, Op.AUTH, i4(0), string(b"nope"), string(b"x")), get_data(2, b"/a"))
    assert client.replies() == [(-4, -115)]
    assert client.is_closed


@pytest.mark.parametrize(("user_password", "error"), [(None, -115), (b"", 0)])
def test_a_digest_of_nothing_is_refused_and_one_of_an_empty_text_is_not(
    client: Client, user_password: bytes | None, error: int
) -> None:
    client.send(request(-4, Op.AUTH, i4(0), string(b"digest"), string(user_password)))
    assert client.replies() == [(-4, error)]
    assert client.is_closed == bool(error)


@pytest.mark.parametrize(
    ("path", "told"), [(b"/\xff", "/\ufffd".encode()), ("/é".encode(), "/é".encode()), (None, None)]
)
def test_sync_gives_the_path_back_readable(client: Client, path: bytes | None, told: bytes | None) -> None:
    client.send(request(2, Op.SYNC, string(path)))
    (reply,) = client.frames()
    assert reply[16:] == string(told)


@pytest.mark.parametrize(("freshness", "error"), [(b"linearizable", 0), (b"serializable", 0), (b"stale", -115)])
def test_a_connection_may_say_how_fresh_its_reads_must_be(client: Client, freshness: bytes, error: int) -> None:
    identities = client.connection.identities
    client.send(request(-4, Op.AUTH, i4(0), string(b"reads"), string(freshness)))
    assert client.replies() == [(-4, error)]
    assert client.connection.identities == identities
    assert client.is_closed == bool(error)


@pytest.mark.parametrize("op", [0, -1, 10, 13, 20, -10, 999])
def test_an_op_that_is_not_a_clients_ends_the_connection(client: Client, op: int) -> None:
    client.send(request(9, op, string(b"/a"), i4(-1)))
    (reply,) = client.frames()
    assert reply == i4(9) + b"\xff" * 8 + i4(-6)
    assert client.is_closed


def test_an_unknown_op_waits_behind_a_write(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a"), request(3, 999))
    assert client.replies() == []
    house.replica.commit()
    assert client.replies() == [(2, 0), (3, -6)]
    assert client.is_closed


@pytest.mark.parametrize("op", [3, 4, 6, 8, 9, 12, 17, 18, 22, 100, 101, 103, 104, 105, 106])
def test_a_record_that_is_cut_short_is_a_marshalling_error(client: Client, op: int) -> None:
    client.send(request(2, op, b"\0\0"))
    expected = -115 if op == Op.AUTH else -5
    assert client.replies() == [(2, expected)]


def test_a_segment_cut_anywhere_is_answered_alike(house: House, client: Client) -> None:
    data = get_data(2, b"/a") + ping() + exists(3, b"/a") + request(4, Op.WHO_AM_I)
    for cut in range(len(data) + 1):
        for piece in in_pieces(data, [cut]):
            if piece:
                client.send(piece)
        assert client.replies() == [(2, 0), (-2, 0), (3, 0), (4, 0)]


def test_a_segment_in_single_bytes_is_answered_alike(client: Client) -> None:
    for byte in get_data(2, b"/a") + ping():
        client.send(bytes([byte]))
    assert client.replies() == [(2, 0), (-2, 0)]


@pytest.mark.parametrize("length", [-1, 0, 7, -(2**31)])
def test_a_length_that_holds_no_header_ends_the_connection_without_a_word(client: Client, length: int) -> None:
    client.send(i4(length) + b"abcdefgh")
    assert client.transport.aborted
    assert client.frames() == []


def test_an_oversized_request_is_read_past_and_answered(client: Client) -> None:
    client.send(create(2, b"/big", b"x" * 1_048_575), get_data(3, b"/a"))
    assert client.replies() == [(2, -8), (3, 0)]


def test_an_oversized_request_is_a_packet_received(house: House, client: Client) -> None:
    before = house.member.stats.packets_received
    client.send(create(2, b"/big", b"x" * 1_048_575))
    assert house.member.stats.packets_received == before + 1


def test_an_oversized_request_keeps_its_place(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a"), create(3, b"/big", b"x" * 1_048_575))
    house.replica.commit()
    assert client.replies() == [(2, 0), (3, -8)]


def test_an_absurd_length_ends_the_connection_before_it_is_read(client: Client) -> None:
    client.send(i4(2**31 - 1) + i4(2) + i4(Op.CREATE))
    assert client.transport.aborted


def test_a_full_disk_refuses_writes_and_goes_on_with_reads(house: House, client: Client) -> None:
    house.replica.writable = False
    client.send(set_data(2, b"/a"), get_data(3, b"/a"), ping())
    assert client.replies() == [(2, -1), (3, 0), (-2, 0)]
    house.replica.writable = True
    client.send(set_data(4, b"/a"))
    house.replica.commit()
    assert client.replies() == [(4, 0)]


def test_close_is_answered_behind_everything_sent_before_and_ends_the_connection(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a"), get_data(3, b"/a"), close(4), get_data(5, b"/a"))
    house.replica.commit()
    assert client.replies()[:3] == [(2, 0), (3, 0), (4, 0)]
    assert client.is_closed
    assert client.session_id not in house.member.tree.sessions


def test_a_client_that_does_not_read_is_not_served(client: Client) -> None:
    client.transport.block()
    client.send(get_data(2, b"/a"))
    out_bytes = client.connection.out_bytes
    client.send(get_data(3, b"/a"))
    assert client.connection.out_bytes == out_bytes
    assert client.replies() == []
    client.transport.unblock()
    assert client.replies() == [(2, 0), (3, 0)]


def test_replies_larger_than_a_slice_leave_in_slices(house: House, client: Client) -> None:
    client.send(create(2, b"/big", b"x" * 1_000_000))
    house.replica.commit()
    client.replies()
    client.send(*[get_data(xid, b"/big") for xid in range(3, 13)])
    assert client.replies() == [(xid, 0) for xid in range(3, 13)]
    assert client.connection.out_bytes == 0


def test_a_pipeline_stops_being_parsed_while_its_replies_are_not_read(house: House, client: Client) -> None:
    client.send(create(2, b"/big", b"x" * 1_000_000))
    house.replica.commit()
    client.replies()
    client.transport.block()
    client.send(*[get_data(xid, b"/big") for xid in range(3, 103)])
    assert client.connection.out_bytes < 1_100_000
    client.transport.unblock()
    assert client.replies() == [(xid, 0) for xid in range(3, 103)]


def test_a_watcher_that_does_not_read_is_cut_off(house: House, client: Client) -> None:
    limit_bytes = house.member.limits.queued_bytes_per_connection
    watcher = house.client()
    path = b"/" + b"n" * 100_000
    client.send(create(2, path))
    house.replica.commit()
    watcher.send(request(1, Op.ADD_WATCH, string(path), i4(0)))
    watcher.replies()
    watcher.transport.block()
    for _ in range(limit_bytes // 100_000 + 2):
        client.send(set_data(3, path))
        house.replica.commit()
    assert watcher.transport.aborted
    assert not client.is_closed
    watcher.drop()
    assert not house.member.watches.watchers


def test_a_watcher_that_left_is_told_nothing_more(house: House, client: Client) -> None:
    """Its connection lingers until the client has taken the last answer."""
    watcher = house.client()
    watcher.send(request(1, Op.ADD_WATCH, string(b"/a"), i4(0)), close(2))
    house.replica.commit()
    client.send(set_data(3, b"/a"))
    house.replica.commit()
    assert watcher.replies() == [(1, 0), (2, 0)]
    assert watcher.connection.out == []


def test_outstanding_requests_have_a_limit_and_all_are_answered() -> None:
    house = House(**{"limits.outstanding_per_connection": 10})
    client = house.client()
    client.send(*[create(xid, b"/n%d" % xid) for xid in range(1, 31)])
    assert len(house.replica.collected) == 10
    assert client.transport.producerState == "paused"
    replies: list[tuple[int, int]] = []
    while house.replica.collected:
        house.replica.commit()
        replies += client.replies()
    assert replies == [(xid, 0) for xid in range(1, 31)]
    assert client.transport.producerState == "producing"


def test_a_session_may_watch_only_so_much() -> None:
    house = House(**{"limits.watches_per_session": 2})
    client = house.client()
    client.send(*[exists(xid, b"/n%d" % xid, watch=True) for xid in range(1, 4)], exists(4, b"/n4"))
    assert client.replies() == [(1, -101), (2, -101), (3, -125), (4, -101)]


def big_node(house: House, client: Client) -> None:
    client.send(create(2, b"/big", b"x" * 1_000_000))
    house.replica.commit()
    client.replies()


def test_large_reads_behind_a_write_wait_for_a_client_that_is_slow(house: House, client: Client) -> None:
    big_node(house, client)
    client.send(set_data(3, b"/a"), *[get_data(xid, b"/big") for xid in range(4, 24)])
    client.transport.block()
    house.replica.commit()
    assert client.connection.out_bytes < house.member.limits.queued_bytes_per_connection
    assert not client.is_closed
    client.transport.unblock()
    assert client.replies() == [(xid, 0) for xid in range(3, 24)]


@pytest.mark.parametrize("reads", [1, 10])
def test_large_reads_between_writes_of_one_segment_are_answered(house: House, client: Client, reads: int) -> None:
    """All of them have to be answered before the next write is applied, whether their client could read meanwhile."""
    big_node(house, client)
    requests = [
        frame
        for xid in range(3, 300, reads + 1)
        for frame in (
            set_data(xid, b"/big", b"%d" % xid + b"x" * 100_000),
            *[get_data(xid + behind, b"/big") for behind in range(1, reads + 1)],
        )
    ]
    client.transport.block()
    client.send(*requests)
    replies: list[tuple[int, int]] = []
    while house.replica.collected:
        house.replica.commit()
        assert client.connection.out_bytes < 2 * house.member.limits.queued_bytes_per_connection
        client.transport.unblock()
        replies += client.replies()
        client.transport.block()
    client.transport.unblock()
    replies += client.replies()
    assert replies == [(xid, 0) for xid in range(3, 3 + len(requests))]


def test_what_an_identity_sees_does_not_depend_on_how_its_requests_came(house: House, client: Client) -> None:
    """Requests before an auth are answered to who it was before, though they waited for a write."""
    who = request(4, Op.WHO_AM_I)
    auth = request(-4, Op.AUTH, i4(0), string(b"digest"), string(b"u:p"))
    client.send(set_data(3, b"/"), who, auth, request(5, Op.WHO_AM_I))
    house.replica.commit()
    house.clock.advance(0)
    before, after = [frame for frame in client.frames() if frame[:4] in (i4(4), i4(5))]
    assert b"digest" not in before
    assert b"digest" in after


def test_nothing_behind_an_auth_that_fails_is_done(house: House, client: Client) -> None:
    auth = request(-4, Op.AUTH, i4(0), string(b"nope"), string(b""))
    client.send(set_data(3, b"/"), auth, create(4, b"/new"))
    house.replica.commit()
    house.clock.advance(0)
    assert client.replies() == [(3, 0), (-4, -115)]
    assert b"/new" not in house.member.tree.nodes
    assert client.is_closed


def test_a_client_that_is_slow_to_take_an_answer_is_heard(house: House, client: Client) -> None:
    """It has no other way to say that it is alive, and its session is that of somebody who reads."""
    big_node(house, client)
    client.transport.block()
    client.send(get_data(3, b"/big"))
    live = client.connection.live
    assert live is not None
    live.heard_ms = 0
    assert client.transport.producerState == "producing"
    client.send(ping(), get_data(4, b"/big"))
    assert live.heard_ms > 0
    client.transport.unblock()
    assert client.replies() == [(3, 0), (-2, 0), (4, 0)]


def test_what_a_client_sends_that_does_not_read_is_kept_up_to_a_limit(house: House, client: Client) -> None:
    big_node(house, client)
    client.transport.block()
    client.send(get_data(3, b"/big"))
    xid = 4
    while client.transport.producerState == "producing":
        client.send(exists(xid, b"/" + b"n" * 10_000))
        xid += 1
        assert xid < 500
    client.transport.unblock()
    replies = client.replies()
    for _ in range(xid):  # a busy machine takes turns for so many
        house.clock.advance(0)
        replies += client.replies()
    assert replies == [(3, 0), *[(each, -101) for each in range(4, xid)]]
    assert client.transport.producerState == "producing"


def test_a_read_that_waits_for_a_slow_client_does_not_see_the_clients_next_write(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a", b"one"), get_data(3, b"/a"), set_data(4, b"/a", b"two"), get_data(5, b"/a"))
    client.transport.block()
    house.replica.commit(1)
    house.replica.commit(1)
    client.transport.unblock()
    frames = client.frames()
    assert [frame[:4] for frame in frames] == [i4(2), i4(3), i4(4), i4(5)]
    assert [frame[16:23] for frame in frames[1::2]] == [string(b"one"), string(b"two")]


def test_a_request_that_takes_long_behind_what_a_slow_client_did_not_take_is_answered(
    house: House, client: Client
) -> None:
    count_all = request(4, Op.GET_ALL_CHILDREN_NUMBER, string(b"/"))
    client.send(set_data(2, b"/a"), get_data(3, b"/a"), count_all)
    client.transport.block()
    house.replica.commit()
    client.transport.unblock()
    house.clock.advance(0)
    assert client.replies() == [(2, 0), (3, 0), (4, 0)]


def test_a_slow_client_that_goes_away_leaves_nothing_behind(house: House, client: Client) -> None:
    client.send(set_data(2, b"/a"), get_data(3, b"/a"))
    client.transport.block()
    house.replica.commit()
    assert house.member.delivery.lagging
    client.drop()
    assert not house.member.delivery.lagging


def test_a_client_that_missed_much_is_told_all_of_it(house: House, client: Client) -> None:
    path = b"/" + b"n" * 1_000
    client.send(create(2, path))
    house.replica.commit()
    begin = house.member.zxid
    count = house.member.limits.queued_bytes_per_connection // 1_000 + 10
    for _ in range(count // 500 + 1):
        client.send(*[set_data(3, path) for _ in range(500)])
        house.replica.commit()
    client.replies()
    watcher = house.client()
    watcher.send(request(-8, Op.SET_WATCHES2, i8(begin), *[i4(0)] * 4, i4(1), string(path)))
    replies = watcher.replies()
    assert replies[-1] == (-8, 0)
    assert len(replies) > count
    assert not watcher.is_closed


# ---- watches on paths that name no node


def check_watches(xid: int, path: bytes | None, kind: int = WatcherType.ANY) -> bytes:
    return request(xid, Op.CHECK_WATCHES, string(path), i4(kind))


@pytest.mark.parametrize("read", [get_data, get_children, exists])
def test_a_watch_on_the_empty_path_is_none_on_the_root(house: House, client: Client, read: Any) -> None:
    client.send(read(2, b"", watch=True), check_watches(3, b""), check_watches(4, b"/"))
    client.send(set_data(5, b"/"), create(6, b"/b"))
    house.replica.commit()
    assert client.replies() == [(2, 0), (3, 0), (4, -121), (5, 0), (6, 0)]


def test_a_watch_on_no_path_is_none_on_the_empty_one(client: Client) -> None:
    client.send(request(2, Op.ADD_WATCH, string(None), i4(0)), check_watches(3, None), check_watches(4, b""))
    client.send(request(5, Op.ADD_WATCH, string(b""), i4(0)), request(6, Op.REMOVE_WATCHES, string(None), i4(3)))
    client.send(check_watches(7, None), check_watches(8, b""))
    assert client.replies() == [(2, 0), (3, 0), (4, -121), (5, 0), (6, 0), (7, -121), (8, 0)]


@pytest.mark.parametrize(("zxid", "events"), [(1 << 60, []), (-1, [(-1, 3)])])
def test_set_watches_finds_the_root_by_the_empty_path(client: Client, zxid: int, events: list[tuple[int, int]]) -> None:
    client.send(request(-8, Op.SET_WATCHES, i8(zxid), i4(1), string(b""), i4(0), i4(0)), check_watches(2, b""))
    assert client.replies() == [*events, (-8, 0), (2, -121 if events else 0)]
