"""The limits that are the tree's own: at each, the request is refused and the tree stays as it was."""

from __future__ import annotations

import pytest

from tests.tree.world import SEQUENTIAL, World, create, delete
from znoded.jute.errors import ErrorCode
from znoded.jute.records import Acl
from znoded.tree.acl import fix_acl
from znoded.tree.options import TreeOptions
from znoded.tree.refusal import Refused
from znoded.tree.tree import Tree

TEN_BYTES = TreeOptions(children_bytes=10)


def test_the_names_of_the_children_of_a_znode_have_a_limit_together() -> None:
    client = World(TreeOptions(children_bytes=11)).session()
    assert client.create(b"/p") == b"/p"
    assert client.create(b"/123") == ErrorCode.QUOTA_EXCEEDED  # beside `zookeeper` and `p`
    assert client.create(b"/1") == b"/1"
    assert client.create(b"/p/1234567890") == b"/p/1234567890"
    assert client.create(b"/p/12") == ErrorCode.QUOTA_EXCEEDED
    assert client.create(b"/p/1") == b"/p/1"


def test_a_deleted_child_makes_room() -> None:
    client = World(TEN_BYTES).session()
    # `zookeeper` takes nine bytes, so that the root has one left.
    assert client.create(b"/p") == b"/p"
    assert client.create(b"/q") == ErrorCode.QUOTA_EXCEEDED
    for _ in range(3):
        assert client.create(b"/p/123456") == b"/p/123456"
        assert client.create(b"/p/1234") == b"/p/1234"
        assert client.create(b"/p/1") == ErrorCode.QUOTA_EXCEEDED
        assert client.delete(b"/p/123456") == ErrorCode.OK
        assert client.delete(b"/p/1234") == ErrorCode.OK


def test_the_number_of_a_sequential_node_counts_as_part_of_its_name() -> None:
    client = World(TEN_BYTES).session()
    client.create(b"/p")
    assert client.create(b"/p/n", flags=SEQUENTIAL) == ErrorCode.QUOTA_EXCEEDED
    assert client.create(b"/p/", flags=SEQUENTIAL) == b"/p/0000000000"


def test_a_multi_that_fails_gives_back_the_room_it_took() -> None:
    house = World(TEN_BYTES)
    client = house.session()
    client.create(b"/p")
    client.create(b"/p/123")
    before = dict(house.tree.children_bytes)
    assert client.multi_errors(delete(b"/p/123"), create(b"/p/1234567890"), create(b"/p/1"), create(b"/p/2")) == [
        0,
        0,
        ErrorCode.QUOTA_EXCEEDED,
        ErrorCode.RUNTIME_INCONSISTENCY,
    ]
    assert house.tree.children_bytes == before
    assert client.create(b"/p/1234567") == b"/p/1234567"


def test_a_tree_that_is_loaded_knows_how_much_room_is_taken() -> None:
    house = World()
    client = house.session()
    for path in (b"/p", b"/p/123", b"/p/4567", b"/p/123/deep", b"/q", b"/p/gone"):
        client.create(path)
    client.delete(b"/p/gone")
    stored = house.tree.take_changes()
    loaded = Tree()
    loaded.load(lambda table: [(key, value) for key, value in stored[table].items() if value is not None])
    assert loaded.children_bytes == house.tree.children_bytes == {b"/": 11, b"/zookeeper": 11, b"/p": 7, b"/p/123": 4}


def test_an_acl_may_have_only_so_many_entries() -> None:
    options = TreeOptions(acl_entries=3)
    entries = [Acl(1, b"ip", b"192.0.2.%d" % number) for number in range(4)]
    assert len(fix_acl(tuple(entries[:3]), (), options)) == 3
    with pytest.raises(Refused) as refused:
        fix_acl(tuple(entries), (), options)
    assert refused.value.err == ErrorCode.QUOTA_EXCEEDED


def test_an_acl_may_not_grow_above_the_limit_by_who_is_asking() -> None:
    identities = [(b"digest", b"u%d:h" % number) for number in range(4)]
    with pytest.raises(Refused):
        fix_acl((Acl(1, b"auth", b""),), identities, TreeOptions(acl_entries=3))


def test_a_large_acl_is_not_held_for_other_znodes() -> None:
    tree = Tree()
    small, large = (Acl(1, b"ip", b"192.0.2.1"),), (Acl(1, b"digest", b"u:" + b"h" * 2000),)
    assert tree.interned(small) is tree.interned((Acl(1, b"ip", b"192.0.2.1"),))
    assert tree.interned(large) is not tree.interned((Acl(1, b"digest", b"u:" + b"h" * 2000),))


@pytest.mark.parametrize("tail", [b'"', b",", b"\\"])
@pytest.mark.parametrize("part", [b"a=#ab", b"a=   ", b'a="x"', b"a=\\,"])
def test_a_long_wrong_x509_name_is_refused_in_linear_time(part: bytes, tail: bytes) -> None:
    name = b",".join([part] * 5_000) + tail
    with pytest.raises(Refused) as refused:
        fix_acl((Acl(1, b"x509", name),), (), TreeOptions(x509_ids=True))
    assert refused.value.err == ErrorCode.INVALID_ACL
