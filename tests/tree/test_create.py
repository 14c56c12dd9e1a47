"""Creating znodes."""

from __future__ import annotations

import pytest

from tests.jute.factory import i4, string
from tests.tree.world import (
    CHILDREN,
    CREATED,
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    OPEN,
    SEQUENTIAL,
    TTL,
    TTL_SEQUENTIAL,
    Client,
    World,
    only,
    world,
)
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import CreateFlags, Op, Perm
from znoded.jute.records import CreateRequest, CreateTtlRequest
from znoded.tree.options import TreeOptions

BAD = ErrorCode.BAD_ARGUMENTS
MAX_TTL_MS = (1 << 40) - 1


def test_a_new_node_has_its_data_and_a_fresh_stat(house: World, client: Client) -> None:
    assert client.create(b"/a", b"12345") == b"/a"
    assert house.data(b"/a") == b"12345"
    zxid, now_ms = house.tree.zxid, house.now_ms
    assert house.stat(b"/a") == (zxid, zxid, now_ms, now_ms, 0, 0, 0, 0, 5, 0, zxid)
    assert house.acl(b"/a") == OPEN


def test_null_data_is_kept_apart_from_empty(house: World, client: Client) -> None:
    client.create(b"/null", None)
    client.create(b"/empty", b"")
    assert (house.data(b"/null"), house.data(b"/empty")) == (None, b"")
    assert house.stat(b"/null").data_length == house.stat(b"/empty").data_length == 0


def test_the_parent_counts_the_creation_and_nothing_else(house: World, client: Client) -> None:
    client.create(b"/a")
    before = house.stat(b"/a")
    client.create(b"/a/b")
    assert house.stat(b"/a") == before._replace(cversion=1, num_children=1, pzxid=house.tree.zxid)
    assert house.children(b"/a") == [b"/a/b"]


def test_a_creation_fires_created_and_the_parents_children_changed(house: World, client: Client) -> None:
    client.create(b"/a", acl=world(Perm.ALL & ~Perm.READ))
    client.create(b"/a/b", acl=world(Perm.READ))
    assert house.events_with_acls() == [
        (CREATED, b"/a", world(30)),
        (CHILDREN, b"/", None),
        (CREATED, b"/a/b", world(1)),
        (CHILDREN, b"/a", world(30)),
    ]


def test_create2_answers_the_stat(house: World, client: Client) -> None:
    assert client.create2(b"/a", b"xyz") == house.stat(b"/a")


def test_an_ephemeral_belongs_to_its_session(house: World, client: Client) -> None:
    client.create(b"/e", flags=EPHEMERAL)
    assert house.stat(b"/e").ephemeral_owner == client.id
    assert client.ephemerals() == [b"/e"]


def test_an_ephemeral_has_no_children(client: Client) -> None:
    client.create(b"/e", flags=EPHEMERAL)
    assert client.create(b"/e/a") == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
    assert client.create_container(b"/e/c") == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
    assert client.create_ttl(b"/e/t", 1000) == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS


def test_the_op_and_not_the_flag_makes_a_container(house: World, client: Client) -> None:
    client.create(b"/plain", flags=CreateFlags.CONTAINER)
    client.create2(b"/plain2", flags=CreateFlags.CONTAINER)
    assert client.create_container(b"/flag-4") == b"/flag-4"
    assert client.create_container(b"/flag-0", flags=0) == b"/flag-0"
    assert client.create_container(b"/flag-1", flags=EPHEMERAL) == b"/flag-1"
    assert client.create_container(b"/s-", flags=EPHEMERAL_SEQUENTIAL) == b"/s-0000000005"
    assert house.tree.kinds == {b"/flag-4": 0, b"/flag-0": 0, b"/flag-1": 0, b"/s-0000000005": 0}
    assert {house.stat(path).ephemeral_owner for path in house.tree.kinds} == {0}
    assert client.ephemerals() == []


def test_a_ttl_node_keeps_its_time_to_live(house: World, client: Client) -> None:
    assert client.create_ttl(b"/t", 1) == b"/t"
    assert client.create_ttl(b"/t-", MAX_TTL_MS, TTL_SEQUENTIAL) == b"/t-0000000001"
    assert house.tree.kinds == {b"/t": 1, b"/t-0000000001": MAX_TTL_MS}
    assert house.stat(b"/t").ephemeral_owner == 0


@pytest.mark.parametrize("ttl_ms", [0, -1, -(1 << 63), 1 << 40, (1 << 63) - 1])
def test_a_time_to_live_out_of_bounds_is_a_bad_argument(client: Client, ttl_ms: int) -> None:
    assert client.create_ttl(b"/t", ttl_ms) == BAD


@pytest.mark.parametrize("flags", range(5))
@pytest.mark.parametrize("ttl_ms", [-1, 0, 1000])
def test_a_time_to_live_needs_its_flags(client: Client, flags: int, ttl_ms: int) -> None:
    assert client.create_ttl(b"/t", ttl_ms, flags) == BAD


def test_flags_of_a_time_to_live_need_one(client: Client) -> None:
    for flags in (TTL, TTL_SEQUENTIAL):
        assert client.create(b"/t", flags=flags) == BAD
        assert client.create2(b"/t", flags=flags) == BAD
        assert client.create_container(b"/t", flags=flags) == BAD


@pytest.mark.parametrize("flags", [7, 9, 99, -1, 2**31 - 1, -(2**31)])
def test_other_flags_are_bad_arguments(client: Client, flags: int) -> None:
    assert client.create(b"/n", flags=flags) == BAD
    assert client.create_ttl(b"/n", 1000, flags) == BAD


def test_ttl_nodes_can_be_switched_off() -> None:
    client = World(TreeOptions(ttl_nodes=False)).session()
    assert client.create_ttl(b"/t", 1000) == ErrorCode.UNIMPLEMENTED
    assert client.create_ttl(b"/t", 0) == ErrorCode.UNIMPLEMENTED
    assert client.create(b"/t", flags=TTL) == ErrorCode.UNIMPLEMENTED
    assert client.create_ttl(b"/t", 1000, flags=0) == BAD


@pytest.mark.parametrize("path", [b"x", b"", b"/a\0b", b"/a/", b"/a/.", b"/a/..", b"//", b"//n", b"/a\x01", b"/\xff"])
def test_bad_paths_are_bad_arguments(house: World, client: Client, path: bytes) -> None:
    client.create(b"/a")
    assert client.create(path) == BAD
    assert len(house.tree.nodes) == 5


@pytest.mark.parametrize("path", [b"x/n", b"/a/./b", b"/a/../b", b"/a//n", b"/absent/n", b"/absent/."])
def test_without_its_parent_nothing_is_created(client: Client, path: bytes) -> None:
    client.create(b"/a")
    assert client.create(path) == ErrorCode.NO_NODE


@pytest.mark.parametrize("path", [b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config", b"/a"])
def test_what_exists_is_not_created_again(client: Client, path: bytes) -> None:
    client.create(b"/a")
    assert client.create(path) == ErrorCode.NODE_EXISTS


def test_creating_takes_the_right_on_the_parent(house: World) -> None:
    owner = house.session(1, (b"digest", b"me:hash"))
    owner.create(b"/a", acl=only(b"digest", b"me:hash"))
    assert house.session(2).create(b"/a/b") == ErrorCode.NO_AUTH
    assert owner.create(b"/a/b") == b"/a/b"


def test_the_first_failing_check_decides(house: World, client: Client) -> None:
    client.create(b"/closed", acl=world(Perm.READ))
    client.create(b"/e", flags=EPHEMERAL)
    assert client.create(None, flags=99, acl=()) == BAD, "flags, before the null path"
    assert client.create(None, acl=()) == ErrorCode.MARSHALLING_ERROR, "the null path, before the ACL"
    assert client.create(b"x", acl=()) == BAD, "a path without a slash, before the ACL"
    assert client.create(b"/absent/x", acl=()) == ErrorCode.INVALID_ACL, "the ACL, before the parent"
    assert client.create(b"/closed/.") == ErrorCode.NO_AUTH, "rights, before the name"
    assert client.create(b"/e/.") == BAD, "the name, before the ephemeral parent"
    house.tree.nodes[b"/e/x"] = house.tree.nodes[b"/e"]
    assert client.create(b"/e/x") == ErrorCode.NODE_EXISTS, "existence, before the ephemeral parent"


def test_a_null_path_or_an_undecodable_record_is_a_marshalling_error(client: Client) -> None:
    assert client.create(None) == ErrorCode.MARSHALLING_ERROR
    whole = CreateRequest(b"/a", b"data", OPEN, 0).encode()
    for size_bytes in range(len(whole)):
        assert client.send(Op.CREATE, whole[:size_bytes]) == (ErrorCode.MARSHALLING_ERROR, b"")
    whole = CreateTtlRequest(b"/a", b"data", world(Perm.READ), TTL, 1000).encode()
    for size_bytes in range(len(whole)):
        assert client.send(Op.CREATE_TTL, whole[:size_bytes]) == (ErrorCode.MARSHALLING_ERROR, b"")


@pytest.mark.parametrize("count", [-1, -2, 0])
def test_an_acl_of_no_entries_is_invalid(client: Client, count: int) -> None:
    record = string(b"/a") + string(b"") + i4(count) + i4(0)
    assert client.send(Op.CREATE, record) == (ErrorCode.INVALID_ACL, b"")


def test_bytes_behind_the_record_are_ignored(client: Client) -> None:
    record = CreateRequest(b"/a", b"", OPEN, SEQUENTIAL).encode() + b"more"
    assert client.send(Op.CREATE, record) == (0, string(b"/a0000000000"))
