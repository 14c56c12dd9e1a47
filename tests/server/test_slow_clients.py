"""Clients that read, but slowly: they are heard, get all that they asked for, and are cut off for nothing of it."""

from __future__ import annotations

import pytest

from tests.jute.factory import i4, request, string
from tests.server.harness import Client, House, create, exists, get_children, get_data, ping, set_data
from tests.server.test_read_gate import GatedHouse
from znoded.jute.ops import Op
from znoded.tree.proposals import expire_session

BIG = b"x" * 1_000_000
#: What is written in one go and fills a narrow socket.
SOCKET_BYTES = 200_000
ALL_CHILDREN = request(3, Op.GET_ALL_CHILDREN_NUMBER, string(b"/"))


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    return house.client()


def make_nodes(house: House, client: Client) -> None:
    client.send(create(900, b"/a"), create(901, b"/big", BIG))
    house.replica.commit()
    client.replies()


def narrow(client: Client) -> None:
    """From now on each large piece of answers fills the socket."""
    write = client.transport.write

    def write_and_block(data: bytes) -> None:
        write(data)
        if len(data) > SOCKET_BYTES:
            client.transport.block()

    client.transport.write = write_and_block  # type: ignore[method-assign]


def test_one_that_goes_on_reading_may_still_be_told_events() -> None:
    """The answers that it has not taken yet do not count for what is told it beside them."""
    limit_bytes = 1 << 20
    house = House(**{"limits.queued_bytes_per_connection": limit_bytes})
    client = house.client()
    make_nodes(house, client)
    other = house.client()
    client.send(exists(1, b"/watched", watch=True))
    client.replies()
    narrow(client)
    reads = [get_data(xid, b"/big") for xid in range(3, 7)]
    client.send(set_data(2, b"/a"), *reads, set_data(7, b"/a"))
    house.replica.commit()
    client.transport.unblock()
    assert client.connection.is_blocked
    assert client.connection.out_bytes > limit_bytes
    other.send(create(1, b"/watched"))
    house.replica.commit()
    assert not client.is_closed


@pytest.mark.parametrize(
    ("keys", "requests"),
    [
        ({}, [set_data(2, b"/a"), ALL_CHILDREN, get_data(4, b"/big")]),
        (
            {"limits.outstanding_per_connection": 3},
            [set_data(2, b"/a"), get_data(3, b"/big"), get_data(4, b"/a"), ping()],
        ),
    ],
    ids=["waited for a write", "asked for much"],
)
def test_one_that_was_not_read_from_before_it_became_slow_is_heard(keys: dict[str, int], requests: list[bytes]) -> None:
    house = House(**keys)
    client = house.client()
    make_nodes(house, client)
    narrow(client)
    client.send(*requests)
    house.replica.commit()
    house.clock.advance(0)
    assert client.connection.is_blocked
    live = client.connection.live
    assert live is not None
    live.heard_ms = 0
    assert client.transport.producerState == "producing"
    client.send(ping())
    assert live.heard_ms > 0


def test_what_one_of_several_writes_made_large_may_be_read_behind_them(house: House, client: Client) -> None:
    client.send(create(900, b"/a"), create(901, b"/b"))
    house.replica.commit()
    client.replies()
    reads = [get_data(xid, b"/b") for xid in range(3, 11)]
    client.send(set_data(1, b"/b", BIG), set_data(2, b"/a"), *reads, set_data(11, b"/a"))
    narrow(client)
    house.replica.commit()
    assert not client.is_closed


def test_a_large_acl_may_be_read_many_times(house: House, client: Client) -> None:
    users = b"".join(i4(31) + string(b"digest") + string(b"u%06d:" % number + b"h" * 900) for number in range(900))
    acl = i4(901) + i4(31) + string(b"world") + string(b"anyone") + users
    client.send(create(900, b"/a"), request(901, Op.CREATE, string(b"/acl"), string(b""), acl, i4(0)))
    house.replica.commit()
    client.replies()
    narrow(client)
    reads = [request(xid, Op.GET_ACL, string(b"/acl")) for xid in range(3, 11)]
    client.send(set_data(2, b"/a"), *reads, set_data(11, b"/a"))
    house.replica.commit()
    assert not client.is_closed


def test_many_ephemerals_may_be_read_many_times(house: House, client: Client) -> None:
    for number in range(100):
        client.send(create(900, b"/%02d" % number + b"n" * 10_000, flags=1))
    client.send(create(901, b"/a"))
    house.replica.commit()
    client.replies()
    narrow(client)
    reads = [request(xid, Op.GET_EPHEMERALS, string(b"/")) for xid in range(3, 11)]
    client.send(set_data(2, b"/a"), *reads, set_data(11, b"/a"))
    house.replica.commit()
    assert not client.is_closed


def test_a_large_answer_that_is_confirmed_while_events_fill_the_socket_is_given() -> None:
    house = GatedHouse()
    client, other = house.client(), house.client()
    other.send(create(900, b"/p"))
    for number in range(60):
        other.send(create(number, b"/p/%02d" % number + b"n" * 100_000))
    house.replica.commit()
    client.send(get_children(2, b"/p"))
    client.transport.block()
    house.confirm()
    assert not client.is_closed
    client.transport.unblock()
    assert client.replies() == [(2, 0)]


def test_one_whose_requests_are_too_large_is_stopped_behind_a_write_like_any_other() -> None:
    house = House(**{"limits.frame_bytes": 2000, "limits.outstanding_per_connection": 3})
    for pieces in (1, 2):
        client = house.client()
        client.send(create(1, b"/a"))
        sent = 0
        while client.connection.is_reading:
            frame = set_data(2 + sent, b"/a", bytes(2500))
            for start in range(0, len(frame), -(-len(frame) // pieces)):
                client.send(frame[start : start + -(-len(frame) // pieces)])
            sent += 1
            assert sent <= 3
        assert len(client.connection.pending or ()) <= 4


def test_one_that_does_not_read_is_stopped_at_a_part_of_a_request(house: House, client: Client) -> None:
    make_nodes(house, client)
    client.transport.block()
    client.send(set_data(1, b"/a"), set_data(2, b"/a")[:9])
    assert not client.connection.is_reading


def test_one_is_stopped_when_others_fill_the_room_for_writes() -> None:
    house = House(**{"limits.outstanding": 4})
    client, other = house.client(), house.client()
    make_nodes(house, client)
    received = [
        (client.connection, get_data(1, b"/a") + set_data(2, b"/a")),
        (other.connection, b"".join(set_data(xid, b"/a") for xid in range(3))),
    ]
    house.member.pipeline.serve(received)
    assert not client.connection.is_reading
    house.replica.commit()
    assert client.connection.is_reading


def test_one_that_waits_for_its_writes_goes_on_although_an_overtaken_expiry_had_them_answered(
    house: House, client: Client
) -> None:
    make_nodes(house, client)
    client.send(set_data(1, b"/a"), get_data(2, b"/a"), ALL_CHILDREN)
    client.transport.block()
    house.replica.commit()
    earlier = client.connection.attach - 1
    house.member.propose(expire_session(0, client.session_id, earlier, house.replica.term))
    house.replica.commit()
    client.transport.unblock()
    house.clock.advance(0)
    assert [xid for xid, _ in client.replies()] == [1, 2, 3]
    assert client.connection.is_reading


def test_one_that_was_stopped_for_a_limit_stays_so_when_tls_brings_more() -> None:
    house = House(**{"limits.outstanding_per_connection": 3})
    client = house.client()
    client.send(*(set_data(xid, b"/a") for xid in range(5)))
    assert client.transport.producerState == "paused"
    client.send(set_data(5, b"/a"))
    assert client.transport.producerState == "paused"
