"""What one bad client of HTTP can do: nothing to the others."""

from __future__ import annotations

import json

import pytest

from tests.admin.api.house import ApiHouse, HttpClient, b64
from znoded.admin.api import connections, sink


def answers(client: HttpClient) -> str:
    return client.transport.value().decode(errors="replace")


def test_only_so_many_connections_of_an_address() -> None:
    house = ApiHouse(**{"limits.api_connections_per_address": 2})
    clients = [house.dial("10.0.0.1") for _ in range(2)]
    refused = house.dial("10.0.0.1")
    assert refused.answer()[1]["error"]["code"] == "busy"
    assert refused.transport.disconnecting
    refused.send("get", {"key": "/"})
    house.settle()
    assert not refused.is_answered
    house.dial("10.0.0.2")
    clients[0].drop()
    refused.drop()
    again = house.dial("10.0.0.1")
    assert not again.transport.disconnecting


def test_only_so_many_connections_in_all() -> None:
    house = ApiHouse(**{"limits.api_connections": 1})
    house.dial("10.0.0.1")
    assert house.dial("10.0.0.2").transport.disconnecting


def test_a_body_that_says_it_is_too_large_is_not_read(house: ApiHouse) -> None:
    client = house.dial()
    head = b"POST /v1/txn HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
    client.channel.dataReceived(head)
    status, content = client.answer()
    assert (status, content["error"]["code"]) == (413, "value_too_large")
    assert client.transport.disconnecting


def test_a_body_that_only_becomes_too_large_is_not_kept(house: ApiHouse) -> None:
    client = house.dial()
    client.channel.dataReceived(b"POST /v1/txn HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(60):
        client.channel.dataReceived(b"10000\r\n" + bytes(0x10000) + b"\r\n")
    status, content = client.answer()
    assert (status, content["error"]["code"]) == (413, "value_too_large")
    client.drop()
    assert house.site.bodies_bytes == 0


def test_the_bodies_of_all_are_bounded_together(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODIES_BYTES", 1_000)
    client = house.dial()
    head = b"POST /v1/txn HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    client.channel.dataReceived(head + bytes(2_000))
    assert client.answer()[1]["error"]["code"] == "busy"
    client.drop()
    assert house.put("/a")
    assert house.site.bodies_bytes == 0


def test_who_dawdles_is_cut_off(house: ApiHouse) -> None:
    client = house.dial()
    for letter in b"POST /v1/get HTTP/1.1":
        client.channel.dataReceived(bytes([letter]))
        house.clock.advance(4)
    assert client.transport.disconnecting


def test_requests_of_one_connection_are_answered_in_their_order(house: ApiHouse) -> None:
    client = house.dial()
    put = {"op": "put", "key": "/a", "value": b64(b"x")}
    client.send("txn", {"then": [put]})
    client.send("get", {"key": "/a"})
    house.settle()
    first, second = [json.loads(part.partition("\r\n\r\n")[2]) for part in answers(client).split("HTTP/1.1 ")[1:]]
    assert first["succeeded"]
    assert second["item"]["value"] == b64(b"x")


def pipelined_gets(house: ApiHouse, count: int) -> HttpClient:
    """A client that has sent so many requests at a time, each of which can be answered at once."""
    house.put("/a", bytes(50_000))
    client = house.dial()
    body = b'{"key": "/a", "consistency": "serializable"}'
    head = b"POST /v1/get HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    client.channel.dataReceived((head % len(body) + body) * count)
    return client


def test_of_many_requests_one_is_served_before_others_have_their_turn(house: ApiHouse) -> None:
    client = pipelined_gets(house, 100)
    assert answers(client).count("HTTP/1.1 200") == 1
    house.settle()
    assert answers(client).count("HTTP/1.1 200") == 100


def test_who_does_not_read_an_answer_gets_no_further_one(house: ApiHouse) -> None:
    client = pipelined_gets(house, 100)
    client.transport.block()
    house.settle()
    assert answers(client).count("HTTP/1.1 200") == 1
    client.transport.unblock()
    house.settle()
    assert answers(client).count("HTTP/1.1 200") == 100


def test_who_does_not_read_while_a_request_of_his_waits_is_cut_off(house: ApiHouse) -> None:
    client = pipelined_gets(house, 2)
    client.transport.block()
    house.pass_time(connections.REQUEST_TIMEOUT_S + 1)
    assert client.transport.disconnecting


def test_a_fault_of_ours_shows_no_traceback(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(house.member.tree.history, "node_at", fail)
    status, content = house.ask("get", {"key": "/"})
    assert (status, content["error"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(content)


def test_a_stream_that_does_not_take_its_end_is_cut_off(house: ApiHouse) -> None:
    client = house.dial()
    client.send("watch?key=/a")
    house.settle()
    house.site.feed.stop()
    assert not client.transport.aborted
    house.clock.advance(sink.LINGER_S)
    assert client.transport.aborted
