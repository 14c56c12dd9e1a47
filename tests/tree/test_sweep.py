"""Containers and TTL nodes that go by themselves (protocol facts 5.2)."""

from __future__ import annotations

from tests.jute.factory import string
from tests.tree.world import CHILDREN, DELETED, Client, World
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.tree.sweep import sweep_candidates


def due(house: World, now_ms: int | None = None, limit: int = 100) -> list[bytes]:
    return [path for path, _, _ in sweep_candidates(house.tree, now_ms or house.now_ms, limit)]


def test_a_container_is_due_once_it_was_used_and_emptied(house: World, client: Client) -> None:
    client.create_container(b"/c")
    client.create(b"/plain")
    assert due(house) == []
    for path in (b"/c", b"/plain"):
        client.create(path + b"/x")
        assert due(house) == []
    for path in (b"/c", b"/plain"):
        client.delete(path + b"/x")
    assert due(house) == [b"/c"]


def test_a_ttl_node_is_due_when_it_was_childless_and_not_set_for_longer_than_its_time(
    house: World, client: Client
) -> None:
    client.create_ttl(b"/t", 1000)
    made_ms = house.now_ms
    assert due(house, made_ms + 1000) == []
    assert due(house, made_ms + 1001) == [b"/t"]
    client.set(b"/t")
    assert due(house, made_ms + 1001) == []
    client.create(b"/t/x")
    assert due(house, made_ms + 10_000) == []
    client.delete(b"/t/x")
    assert due(house, made_ms + 10_000) == [b"/t"]


def test_no_more_are_given_than_asked_for(house: World, client: Client) -> None:
    for n in range(5):
        client.create_ttl(b"/t%d" % n, 1)
    assert len(due(house, house.now_ms + 100, limit=3)) == 3


def test_a_sweep_deletes_with_the_ordinary_events(house: World, client: Client) -> None:
    client.create_ttl(b"/t", 1)
    house.events()
    [(path, mzxid, pzxid)] = sweep_candidates(house.tree, house.now_ms + 2, 1)
    assert house.sweep(path, mzxid, pzxid) == 0
    assert house.events() == [(DELETED, b"/t"), (CHILDREN, b"/")]
    assert house.tree.kinds == {}


def test_a_sweep_is_refused_when_the_node_has_changed_since(house: World, client: Client) -> None:
    client.create_ttl(b"/t", 1)
    [before] = sweep_candidates(house.tree, house.now_ms + 2, 1)
    client.create(b"/t/x")
    assert house.sweep(*before) == ErrorCode.NOT_EMPTY
    client.delete(b"/t/x")
    assert house.sweep(*before) == ErrorCode.BAD_VERSION
    [before] = sweep_candidates(house.tree, house.now_ms + 2, 1)
    client.set(b"/t")
    assert house.sweep(*before) == ErrorCode.BAD_VERSION
    client.delete(b"/t")
    client.create(b"/t")
    assert house.sweep(*before) == ErrorCode.NO_NODE, "no TTL node any more"


def test_a_sweep_needs_a_path_and_a_whole_record(house: World) -> None:
    assert house.command(Op.DELETE_CONTAINER, string(None) + bytes(16)) == ErrorCode.NO_NODE
    assert house.command(Op.DELETE_CONTAINER, string(b"/t")) == ErrorCode.MARSHALLING_ERROR
