"""Deleting znodes."""

from __future__ import annotations

import pytest

from tests.tree.world import CHILDREN, DELETED, EPHEMERAL, Client, World, only, world
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.jute.records import DeleteRequest


def test_the_parent_counts_the_deletion_and_the_node_is_gone(house: World, client: Client) -> None:
    client.create(b"/a")
    client.create(b"/a/b")
    before = house.stat(b"/a")
    assert client.delete(b"/a/b") == 0
    assert house.stat(b"/a") == before._replace(cversion=2, num_children=0, pzxid=house.tree.zxid)
    assert b"/a/b" not in house.tree.nodes
    assert b"/a" not in house.tree.children


def test_nothing_of_a_deleted_node_stays(house: World, client: Client) -> None:
    client.create_container(b"/c")
    client.create(b"/c/e", flags=EPHEMERAL, acl=world(Perm.READ))
    client.delete(b"/c/e")
    client.delete(b"/c")
    tree = house.tree
    assert (tree.created, tree.kinds, client.ephemerals()) == ({b"/": 1}, {}, [])
    assert list(tree.acls) == [b"/zookeeper/config"]


def test_a_deletion_fires_deleted_and_the_parents_children_changed(house: World, client: Client) -> None:
    client.create(b"/a", acl=world(Perm.ADMIN))
    house.events()
    client.delete(b"/a")
    assert house.events_with_acls() == [(DELETED, b"/a", world(Perm.ADMIN)), (CHILDREN, b"/", None)]


def test_deleting_takes_the_right_on_the_parent_only(house: World, client: Client) -> None:
    client.create(b"/p", acl=world(Perm.CREATE | Perm.ADMIN))
    client.create(b"/p/a")
    assert client.delete(b"/p/a") == ErrorCode.NO_AUTH
    assert client.delete(b"/p/absent") == ErrorCode.NO_AUTH
    client.set_acl(b"/p", world(Perm.CREATE | Perm.DELETE | Perm.ADMIN))
    client.create(b"/p/closed", acl=only(b"digest", b"someone:else"))
    assert client.delete(b"/p/closed") == 0


def test_the_version_has_to_match_before_children_count(client: Client) -> None:
    client.create(b"/a")
    client.create(b"/a/b")
    assert client.delete(b"/a", version=1) == ErrorCode.BAD_VERSION
    assert client.delete(b"/a", version=0) == ErrorCode.NOT_EMPTY
    assert client.delete(b"/a/b", version=0) == 0


@pytest.mark.parametrize("path", [b"/absent", b"/absent/x", b"/a/", b"//a", b"/a/.", b"/\x01", b"x/y", b"/\xff"])
def test_what_is_not_there_is_not_deleted(client: Client, path: bytes) -> None:
    client.create(b"/a")
    assert client.delete(path) == ErrorCode.NO_NODE


@pytest.mark.parametrize("path", [b"x", b"", b"/a\0b", b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config"])
def test_bad_paths_and_reserved_nodes_are_bad_arguments(house: World, path: bytes) -> None:
    assert house.session(1, (b"super", b"")).delete(path) == ErrorCode.BAD_ARGUMENTS


def test_a_null_path_or_an_undecodable_record_is_a_marshalling_error(client: Client) -> None:
    assert client.delete(None) == ErrorCode.MARSHALLING_ERROR
    whole = DeleteRequest(b"/a", -1).encode()
    for size_bytes in range(len(whole)):
        assert client.send(Op.DELETE, whole[:size_bytes]) == (ErrorCode.MARSHALLING_ERROR, b"")
