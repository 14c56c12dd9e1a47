"""Setting the ACL of znodes."""

from __future__ import annotations

import pytest

from tests.tree.world import OPEN, Client, World, world
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.jute.records import Acl, SetAclRequest


def test_only_the_aversion_moves_and_nothing_fires(house: World, client: Client) -> None:
    client.create(b"/a", b"data")
    before = house.stat(b"/a")
    house.events()
    assert client.set_acl(b"/a", world(Perm.ADMIN)) == before._replace(aversion=1) == house.stat(b"/a")
    assert house.events() == []
    assert house.acl(b"/a") == world(Perm.ADMIN)
    assert house.data(b"/a") == b"data"


def test_the_open_acl_takes_no_room(house: World, client: Client) -> None:
    client.create(b"/a", acl=world(Perm.ADMIN))
    client.set_acl(b"/a", OPEN)
    client.set_acl(b"/a", OPEN)
    assert b"/a" not in house.tree.acls


def test_equal_acls_are_one_object(house: World, client: Client) -> None:
    client.create(b"/a", acl=world(Perm.ADMIN))
    client.create(b"/b", acl=world(Perm.ADMIN))
    assert house.tree.acls[b"/a"] is house.tree.acls[b"/b"]


def test_the_aversion_has_to_match(client: Client) -> None:
    client.create(b"/a")
    assert client.set_acl(b"/a", OPEN, version=1) == ErrorCode.BAD_VERSION
    client.set_acl(b"/a", OPEN, version=0)
    assert client.set_acl(b"/a", OPEN, version=0) == ErrorCode.BAD_VERSION


def test_the_aversion_of_config_goes_on_from_minus_one(house: World) -> None:
    house.session(1, (b"super", b"")).set_acl(b"/zookeeper/config", OPEN)
    assert house.stat(b"/zookeeper/config").aversion == 0


def test_the_first_failing_check_decides(client: Client) -> None:
    client.create(b"/a", acl=world(Perm.READ))
    assert client.set_acl(b"/.", ()) == ErrorCode.BAD_ARGUMENTS
    assert client.set_acl(None, ()) == ErrorCode.BAD_ARGUMENTS
    assert client.set_acl(b"/absent", ()) == ErrorCode.INVALID_ACL
    assert client.set_acl(b"/absent", OPEN) == ErrorCode.NO_NODE
    assert client.set_acl(b"/a", OPEN, version=7) == ErrorCode.NO_AUTH


def test_a_right_taken_away_counts_at_once(client: Client) -> None:
    client.create(b"/a")
    client.set_acl(b"/a", world(Perm.READ))
    assert client.set(b"/a") == ErrorCode.NO_AUTH


def test_null_ids_and_undecodable_records_are_marshalling_errors(client: Client) -> None:
    client.create(b"/a")
    assert client.set_acl(b"/a", (Acl(31, b"world", None),)) == ErrorCode.MARSHALLING_ERROR
    whole = SetAclRequest(b"/a", OPEN, -1).encode()
    for size_bytes in range(len(whole)):
        assert client.send(Op.SET_ACL, whole[:size_bytes]) == (ErrorCode.MARSHALLING_ERROR, b"")


@pytest.mark.parametrize("count", [3, 5000])
def test_many_different_acls_are_stored(house: World, client: Client, count: int) -> None:
    client.create(b"/a")
    for perms in range(count):
        client.set_acl(b"/a", (Acl(Perm.ADMIN | perms << 5, b"world", b"anyone"),))
    assert house.acl(b"/a")[0].perms == Perm.ADMIN | (count - 1) << 5
