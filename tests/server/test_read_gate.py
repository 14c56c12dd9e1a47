"""The read gate: what waits for a confirmation is answered once and in order, however its connection goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.harness import Client, House, close, get_data, ping
from znoded.server.read_gate import ReadGate


class GatedHouse(House):
    """A member whose reads wait until the test confirms them."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self.rounds: list[Callable[[bool], None]] = []
        self.member.gate = ReadGate(self.clock, self.member.pipeline, self.rounds.append, lambda _connections: None)

    def confirm(self) -> None:
        """All that has been asked so far."""
        rounds, self.rounds[:] = list(self.rounds), []
        for answer in rounds:
            answer(True)


@pytest.fixture
def house() -> GatedHouse:
    return GatedHouse()


@pytest.fixture
def client(house: GatedHouse) -> Client:
    return house.client()


def test_a_read_waits_with_what_comes_behind_it(house: GatedHouse, client: Client) -> None:
    client.send(get_data(1, b"/"), ping())
    assert client.replies() == []
    house.confirm()
    assert client.replies() == [(1, 0), (-2, 0)]


def test_what_comes_after_the_question_waits_for_the_next_one(house: GatedHouse, client: Client) -> None:
    client.send(get_data(1, b"/"))
    client.send(get_data(2, b"/"))
    house.confirm()
    assert client.replies() == [(1, 0)]
    house.confirm()
    assert client.replies() == [(2, 0)]
    assert house.rounds == []


def test_a_connection_that_paused_and_goes_on_while_it_waits_is_answered(house: GatedHouse, client: Client) -> None:
    """What waits at the gate stays there: held twice, it was asked for again and again, and never answered."""
    client.send(get_data(1, b"/"))
    client.connection.stop_reading()
    client.connection.go_on()
    client.send(get_data(2, b"/"))
    for _ in range(2):
        house.confirm()
    assert client.replies() == [(1, 0), (2, 0)]
    assert house.rounds == []


def test_a_connection_that_waited_once_is_served_when_its_client_reads_again(house: GatedHouse, client: Client) -> None:
    """What it sends while it is slow to read is kept, but not at the gate."""
    client.send(get_data(1, b"/"))
    house.confirm()
    client.transport.block()
    client.send(ping())
    client.send(ping(), ping())
    client.transport.unblock()
    assert client.replies() == [(1, 0), (-2, 0), (-2, 0), (-2, 0)]


def test_a_read_that_is_confirmed_for_a_client_that_is_slow_keeps_what_comes_behind(
    house: GatedHouse, client: Client
) -> None:
    client.transport.block()
    client.send(ping())
    client.transport.unblock()
    client.replies()
    client.send(get_data(1, b"/"))
    client.transport.block()
    house.confirm()
    out_bytes = client.connection.out_bytes
    client.send(ping())
    assert client.connection.out_bytes == out_bytes
    client.transport.unblock()
    assert client.replies() == [(1, 0), (-2, 0)]


def test_nothing_is_kept_for_a_connection_that_has_ended(house: GatedHouse, client: Client) -> None:
    """With TLS it comes until the client answers that it closes, too."""
    client.send(close(1), get_data(2, b"/"))
    house.replica.commit()
    assert client.connection.has_ended
    client.send(b"j" * 1_000_000)
    assert not client.connection.kept
