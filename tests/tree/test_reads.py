"""The operations that only read."""

from __future__ import annotations

import pytest

from tests.jute.factory import i4, multi, string, strings
from tests.tree.world import EPHEMERAL, OPEN, Client, World, only, world
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.jute.primitives import Reader
from znoded.jute.records import Acl, GetAclReply, GetChildren2Reply, GetDataReply
from znoded.tree import reads
from znoded.tree.acl import SUPER

NOBODY = ((b"ip", b"127.0.0.1"),)
NO_NODE, NO_AUTH = ErrorCode.NO_NODE, ErrorCode.NO_AUTH
ALL_READS = [
    reads.get_data,
    reads.exists,
    reads.get_children,
    reads.get_children2,
    reads.get_acl,
    reads.get_all_children_number,
]


def test_get_data_answers_data_and_stat(house: World, client: Client) -> None:
    client.create(b"/a", b"data")
    err, body = reads.get_data(house.tree, b"/a", NOBODY)
    assert (err, GetDataReply.decode(Reader(body))) == (0, GetDataReply(b"data", house.stat(b"/a")))


def test_exists_answers_the_stat(house: World, client: Client) -> None:
    client.create(b"/a", b"data")
    assert reads.exists(house.tree, b"/a", NOBODY) == (0, house.stat(b"/a").encode())


def test_exists_alone_looks_for_a_nul(house: World) -> None:
    assert reads.exists(house.tree, b"/a\0", NOBODY) == (ErrorCode.BAD_ARGUMENTS, b"")
    assert reads.get_data(house.tree, b"/a\0", NOBODY) == (NO_NODE, b"")


def test_children_are_listed_by_name(house: World, client: Client) -> None:
    client.create(b"/a")
    client.create(b"/a/b")
    client.create(b"/a/ccc")
    assert reads.get_children(house.tree, b"/a", NOBODY) == (0, strings(b"b", b"ccc"))
    assert reads.get_children(house.tree, b"/a/b", NOBODY) == (0, strings())
    assert reads.get_children(house.tree, b"/", NOBODY) == (0, strings(b"zookeeper", b"a"))
    err, body = reads.get_children2(house.tree, b"/a", NOBODY)
    assert (err, GetChildren2Reply.decode(Reader(body))) == (0, GetChildren2Reply((b"b", b"ccc"), house.stat(b"/a")))


@pytest.mark.parametrize("read", ALL_READS)
def test_what_is_not_there_is_not_read(house: World, read: reads.Read) -> None:
    for path in (b"/absent", b"x", b"/a/", b"//a", b"/\xff"):
        assert read(house.tree, path, NOBODY) == (NO_NODE, b"")


@pytest.mark.parametrize("read", ALL_READS)
def test_reading_takes_the_right(house: World, client: Client, read: reads.Read) -> None:
    client.create(b"/closed", acl=world(Perm.WRITE | Perm.CREATE | Perm.DELETE))
    assert read(house.tree, b"/closed", NOBODY) == (NO_AUTH, b"")
    assert read(house.tree, b"/closed", (SUPER,))[0] == 0


def acl_seen(house: World, path: bytes, *identities: tuple[bytes, bytes]) -> tuple[Acl, ...] | None:
    err, body = reads.get_acl(house.tree, path, identities)
    reply = GetAclReply.decode(Reader(body))
    assert (err, reply.stat) == (0, house.stat(path))
    return reply.acl


def test_get_acl_shows_hashes_to_who_may_change_them(house: World, client: Client) -> None:
    acl = (*only(b"digest", b"u:hash"), *world(Perm.READ))
    client.create(b"/a", acl=acl)
    assert acl_seen(house, b"/a") == (Acl(31, b"digest", b"u:x"), *world(Perm.READ))
    assert acl_seen(house, b"/a", (b"digest", b"u:hash")) == acl
    assert acl_seen(house, b"/") == OPEN


def test_get_acl_takes_read_or_admin(house: World, client: Client) -> None:
    for perm in Perm:
        path = b"/%d" % perm
        client.create(path, acl=world(perm))
        assert (reads.get_acl(house.tree, path, NOBODY)[0] == 0) == (perm in Perm.READ | Perm.ADMIN)


def test_all_descendants_are_counted_and_no_neighbours(house: World, client: Client) -> None:
    for path in (b"/a", b"/a/1", b"/a/1/x", b"/a/2", b"/ab", b"/ab/1"):
        client.create(path)
    counts = {b"/a": 3, b"/a/1": 1, b"/a/1/x": 0, b"/ab": 1, b"/": 9, b"": 10}
    for path, count in counts.items():
        assert reads.get_all_children_number(house.tree, path, NOBODY) == (0, i4(count))


def test_ephemerals_are_found_by_plain_prefix(house: World, client: Client) -> None:
    for path in (b"/a", b"/ab", b"/b"):
        client.create(path, flags=EPHEMERAL)
    house.session(2).create(b"/other", flags=EPHEMERAL)
    assert client.ephemerals(b"/a") == [b"/a", b"/ab"]
    assert client.ephemerals(b"/zzz") == []
    assert client.ephemerals(b" /a") == []
    for everything in (None, b"", b"  ", b"/", b" /", b"\0/\n"):
        assert client.ephemerals(everything) == [b"/a", b"/ab", b"/b"]


def test_a_session_that_is_gone_has_no_ephemerals_to_list(house: World) -> None:
    assert reads.get_ephemerals(house.tree, 99, None) == (ErrorCode.SESSION_EXPIRED, b"")


def test_multi_read_answers_each_read(house: World, client: Client) -> None:
    client.create(b"/a", b"data")
    client.create(b"/a/b")
    record = multi(
        (Op.GET_DATA, string(b"/a") + b"\1"),
        (Op.GET_DATA, string(b"/absent") + b"\0"),
        (Op.GET_CHILDREN, string(b"/a") + b"\0"),
        (Op.GET_CHILDREN, string(b"") + b"\0"),
    )
    err, body = reads.multi_read(house.tree, record, NOBODY, limit_bytes=1 << 20)
    assert err == 0
    assert body == b"".join(
        (
            i4(4) + b"\0" + i4(0) + house.tree.nodes[b"/a"],
            i4(-1) + b"\0" + i4(NO_NODE) + i4(NO_NODE),
            i4(8) + b"\0" + i4(0) + strings(b"b"),
            i4(8) + b"\0" + i4(0) + strings(b"zookeeper", b"a"),
            i4(-1) + b"\1" + i4(-1),
        )
    )


@pytest.mark.parametrize(
    "record", [b"", multi((Op.CREATE, b"")), multi((Op.GET_DATA, string(None) + b"\0")), multi((Op.EXISTS, b""))]
)
def test_a_multi_read_of_anything_else_is_a_marshalling_error(house: World, record: bytes) -> None:
    assert reads.multi_read(house.tree, record, NOBODY, limit_bytes=1 << 20) == (ErrorCode.MARSHALLING_ERROR, b"")


def test_a_multi_read_that_asks_for_too_much_is_refused(house: World, client: Client) -> None:
    client.create(b"/a", b"x" * 1000)
    record = multi(*[(Op.GET_DATA, string(b"/a") + b"\0")] * 3)
    assert reads.multi_read(house.tree, record, NOBODY, limit_bytes=4000)[0] == 0
    assert reads.multi_read(house.tree, record, NOBODY, limit_bytes=3000) == (ErrorCode.QUOTA_EXCEEDED, b"")


def test_who_am_i_shows_no_hash(house: World) -> None:
    identities = ((b"ip", b"127.0.0.1"), (b"digest", b"bob:hash"), (b"sasl", b"eve"), SUPER)
    shown = [(b"ip", b"127.0.0.1"), (b"digest", b"bob"), (b"sasl", b"eve"), (b"super", b"")]
    assert reads.who_am_i(identities) == (0, i4(4) + b"".join(string(scheme) + string(user) for scheme, user in shown))


def test_a_user_that_is_not_utf8_is_shown_readable(house: World) -> None:
    _, body = reads.who_am_i(((b"digest", b"\xffbob:hash"),))
    assert body == i4(1) + string(b"digest") + string("\ufffdbob".encode())
