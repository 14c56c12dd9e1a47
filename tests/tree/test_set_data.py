"""Setting the data of znodes."""

from __future__ import annotations

import struct

import pytest

from tests.tree.world import CHANGED, Client, World, world
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.jute.records import SetDataRequest
from znoded.jute.stat import Stat


def set_version(house: World, path: bytes, version: int) -> None:
    house.tree.nodes[path] = house.tree.nodes[path][:-68] + house.stat(path)._replace(version=version).encode()


def test_a_set_moves_version_mzxid_mtime_and_length_only(house: World, client: Client) -> None:
    client.create(b"/a")
    client.create(b"/a/b")
    before = house.stat(b"/a")
    after = client.set(b"/a", b"12")
    assert after == before._replace(version=1, mzxid=house.tree.zxid, mtime=house.now_ms, data_length=2)
    assert after == house.stat(b"/a")
    assert house.data(b"/a") == b"12"


def test_a_set_of_the_same_bytes_counts(house: World, client: Client) -> None:
    client.create(b"/a", b"x")
    client.set(b"/a", b"x")
    assert house.stat(b"/a").version == 1


def test_null_and_empty_are_kept_apart(house: World, client: Client) -> None:
    client.create(b"/a", b"x")
    client.set(b"/a", None)
    assert (house.data(b"/a"), house.stat(b"/a").data_length) == (None, 0)
    client.set(b"/a", b"")
    assert house.data(b"/a") == b""


def test_a_set_fires_data_changed(house: World, client: Client) -> None:
    client.create(b"/a", acl=world(Perm.WRITE))
    house.events()
    client.set(b"/a")
    assert house.events_with_acls() == [(CHANGED, b"/a", world(Perm.WRITE))]


def test_the_version_has_to_match(client: Client) -> None:
    client.create(b"/a")
    assert client.set(b"/a", version=1) == ErrorCode.BAD_VERSION
    assert isinstance(client.set(b"/a", version=0), Stat)
    assert client.set(b"/a", version=0) == ErrorCode.BAD_VERSION
    assert client.set(b"/a", version=-2) == ErrorCode.BAD_VERSION


def test_versions_wrap_and_leave_out_minus_one(house: World, client: Client) -> None:
    client.create(b"/a")
    set_version(house, b"/a", 2**31 - 1)
    client.set(b"/a")
    assert house.stat(b"/a").version == -(2**31)
    set_version(house, b"/a", -2)
    client.set(b"/a", version=-2)
    assert house.stat(b"/a").version == 0


def test_setting_takes_the_right_before_the_version(client: Client) -> None:
    client.create(b"/a", acl=world(Perm.ALL & ~Perm.WRITE))
    assert client.set(b"/a", version=9) == ErrorCode.NO_AUTH


@pytest.mark.parametrize("path", [None, b"", b"x", b"/a/", b"//a", b"/.", b"/\x01", b"/a\0b", b"/\xff"])
def test_bad_paths_are_bad_arguments(client: Client, path: bytes | None) -> None:
    assert client.set(path) == ErrorCode.BAD_ARGUMENTS


def test_what_is_not_there_is_not_set(client: Client) -> None:
    assert client.set(b"/absent") == ErrorCode.NO_NODE


def test_an_undecodable_record_is_a_marshalling_error(client: Client) -> None:
    client.create(b"/a")
    whole = SetDataRequest(b"/a", b"data", -1).encode()
    for size_bytes in range(len(whole)):
        assert client.send(Op.SET_DATA, whole[:size_bytes]) == (ErrorCode.MARSHALLING_ERROR, b"")


@pytest.mark.parametrize(("path_bytes", "data_bytes"), [(-2, 1), (2, -2), (-(1 << 31), 1)])
def test_a_length_below_that_of_null_is_no_request(client: Client, path_bytes: int, data_bytes: int) -> None:
    path, data = struct.pack(">i", path_bytes), struct.pack(">i", data_bytes)
    record = (
        path + (b"/a" if path_bytes > 0 else b"") + data + (b"x" if data_bytes > 0 else b"") + struct.pack(">i", -1)
    )
    assert client.send(Op.SET_DATA, record) == (ErrorCode.MARSHALLING_ERROR, b"")
