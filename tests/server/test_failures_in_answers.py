"""A fault in answering one client ends that client's connection and nothing else."""

from __future__ import annotations

from typing import Any

from tests.jute.factory import request, string
from tests.server.harness import House, set_data
from znoded.jute.ops import Op


def fail(*_: Any) -> None:
    raise RuntimeError("a fault in answering")


def test_a_fault_behind_a_write_ends_its_connection_only() -> None:
    house = House()
    house.member.pipeline._senders[Op.GET_ACL] = fail
    unlucky, other = house.client(), house.client()
    unlucky.send(set_data(1, b"/"), request(2, Op.GET_ACL, string(b"/")))
    other.send(set_data(1, b"/"), set_data(2, b"/"))
    house.replica.commit()
    assert other.replies() == [(1, 0), (2, 0)]
    assert unlucky.is_closed
    assert house.member.outstanding == 0


def test_a_fault_in_somebodys_turn_does_not_stop_the_line() -> None:
    house = House()
    house.member.pipeline._senders[Op.GET_ACL] = fail
    unlucky, other = house.client(), house.client()
    unlucky.connection.stop_reading()
    unlucky.connection.keep(request(2, Op.GET_ACL, string(b"/")))
    house.member.turns.wait(unlucky.connection)
    house.clock.advance(0)
    house.member.turns.wait(other.connection)
    house.clock.advance(0)
    assert not other.connection.in_line


def test_a_resumed_connection_is_not_kept_once_it_is_gone() -> None:
    house = House()
    owner = house.client()
    for _ in range(3):
        client = house.connect()
        client.resume(owner.session_id, owner.password)
        client.established()
        client.drop()
    assert not house.member.delivery._to_flush
