"""Requests that take long: others have their turn in between, and the answers stay in order."""

from __future__ import annotations

import pytest

from tests.jute.factory import i4, request, string
from tests.server.harness import Client, House, create, get_children, ping, set_data
from znoded.jute.ops import Op
from znoded.server import pipeline


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """Every request but the quickest takes too long here."""
    monkeypatch.setattr(pipeline, "TURN_S", -1.0)
    return House()


def count(xid: int) -> bytes:
    return request(xid, Op.GET_ALL_CHILDREN_NUMBER, string(b"/zookeeper"))


def receive(client: Client, data: bytes) -> None:
    """The bytes arrive, and the reactor does nothing yet."""
    client.connection.dataReceived(data)


def next_round(house: House) -> None:
    """The reactor goes round once."""
    (call,) = house.clock.getDelayedCalls()[:1]
    house.clock.calls.remove(call)  # type: ignore[arg-type]
    call.func(*call.args, **call.kw)


def xids(client: Client) -> list[int]:
    return [xid for xid, _ in client.replies()]


def test_one_request_of_one_client_is_served_in_each_round(house: House) -> None:
    first, second = house.client(), house.client()
    receive(first, b"".join([count(xid) for xid in (1, 2, 3)]))
    receive(second, b"".join([count(xid) for xid in (4, 5)]))
    assert (xids(first), xids(second)) == ([1], [4])
    assert not first.connection.is_reading
    seen = []
    for _ in range(5):
        next_round(house)
        seen += xids(first) + xids(second)
    assert seen == [2, 5, 3]
    assert first.connection.is_reading
    assert second.connection.is_reading


def test_a_client_that_leaves_the_line_does_not_hold_up_the_others(house: House) -> None:
    first, second = house.client(), house.client()
    receive(first, count(1) + count(2))
    receive(second, count(3) + count(4))
    first.drop()
    house.clock.advance(0)
    assert xids(second) == [3, 4]


def test_a_costly_request_behind_a_write_waits_for_its_turn_after_it(house: House) -> None:
    client = house.client()
    house.client().send(ping())
    client.send(create(1, b"/a"), count(2), set_data(3, b"/a"), count(4), get_children(5, b"/"))
    assert client.replies() == []
    assert len(house.replica.collected) == 1
    house.replica.commit()
    assert client.replies() == [(1, 0), (2, 0)]
    house.replica.commit()
    assert client.replies() == [(3, 0), (4, 0), (5, 0)]


def test_what_comes_while_a_client_is_in_the_line_is_kept(house: House) -> None:
    client = house.client()
    client.send(create(1, b"/a"), count(2))
    for xid in range(3, 50):
        receive(client, count(xid))
    house.replica.commit()
    replies = client.replies()
    assert replies == [(xid, 0) for xid in range(1, 50)]


def test_set_watches_behind_a_write_sees_it(house: House) -> None:
    client = house.client()
    no_paths = i4(0)
    client.send(
        create(1, b"/a"),
        request(-8, Op.SET_WATCHES, bytes(8), no_paths, i4(1) + string(b"/a"), no_paths),
    )
    house.replica.commit()
    assert client.replies() == [(1, 0), (-1, 1), (-8, 0)]
