"""Quotas (protocol facts 11)."""

from __future__ import annotations

import pytest

from tests.tree.world import EPHEMERAL, SEQUENTIAL, Client, World, create, delete
from znoded.jute.errors import ErrorCode
from znoded.jute.stat import Stat
from znoded.tree.options import TreeOptions
from znoded.tree.quota import HardLimits, parse_limits

EXCEEDED = ErrorCode.QUOTA_EXCEEDED
Q = b"/zookeeper/quota"
STATS = b"/zookeeper_stats"
LIMITS = b"/zookeeper_limits"


def put_quota(client: Client, path: bytes, limits: bytes | None = b"count=9,bytes=9", *, stats: bool = True) -> bytes:
    """Put a quota on `path` in the way clients do; the path of the quota's node."""
    node = Q
    for name in path[1:].split(b"/"):
        node += b"/" + name
        client.create(node, None)
    client.create(node + LIMITS, limits)
    if stats:
        client.create(node + STATS, b"count=0,bytes=0")
    return node


def hard(nodes: int = -1, data_bytes: int = -1) -> bytes:
    return b"count=-1,bytes=-1=;byteHardLimit=%d;countHardLimit=%d" % (data_bytes, nodes)


def usage(house: World, path: bytes) -> bytes | None:
    return house.data(Q + path + STATS)


def test_new_stats_are_filled_in_with_the_usage_of_the_whole_subtree(house: World, client: Client) -> None:
    for path in (b"/q", b"/q/a", b"/q/a/b", b"/q/c"):
        client.create(path, b"xy")
    client.create(b"/q/null", None)
    put_quota(client, b"/q")
    assert usage(house, b"/q") == b"count=5,bytes=8"


def test_the_reply_to_creating_stats_has_the_length_that_was_sent(house: World, client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", stats=False)
    made = client.create2(Q + b"/q" + STATS, b"zzz")
    assert isinstance(made, Stat)
    assert (made.data_length, house.stat(Q + b"/q" + STATS).data_length) == (3, 15)


def test_every_change_below_is_counted_in_place(house: World, client: Client) -> None:
    client.create(b"/q", b"1")
    put_quota(client, b"/q")
    before = house.stat(Q + b"/q" + STATS)
    client.create(b"/q/a", b"234")
    client.set(b"/q/a", b"2")
    client.create(b"/q/e", b"56", flags=EPHEMERAL)
    assert usage(house, b"/q") == b"count=3,bytes=4"
    client.delete(b"/q/a")
    assert usage(house, b"/q") == b"count=2,bytes=3"
    client.close()
    assert usage(house, b"/q") == b"count=1,bytes=1"
    assert house.stat(Q + b"/q" + STATS) == before


def test_counting_fires_nothing(house: World, client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q")
    house.events()
    client.create(b"/q/a", b"234")
    assert len(house.events()) == 2


def test_soft_limits_refuse_nothing(client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", b"count=1,bytes=1")
    assert client.create(b"/q/a", b"12345") == b"/q/a"


def test_a_hard_count_refuses_creates_of_every_kind(client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", hard(nodes=2))
    client.create(b"/q/a")
    assert client.create(b"/q/b") == EXCEEDED
    assert client.create(b"/q/a/b") == EXCEEDED
    assert client.create(b"/q/s-", flags=SEQUENTIAL) == EXCEEDED
    assert client.create(b"/q/e", flags=EPHEMERAL) == EXCEEDED
    client.delete(b"/q/a")
    assert client.create(b"/q/b") == b"/q/b"


def test_hard_bytes_refuse_what_would_pass_them(client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", hard(data_bytes=10))
    client.create(b"/q/a", b"12345")
    assert client.create(b"/q/b", b"123456") == EXCEEDED
    assert client.set(b"/q/a", b"12345678901") == EXCEEDED
    assert isinstance(client.set(b"/q/a", b"1234567890"), Stat)
    assert client.set(b"/q", b"1") == EXCEEDED
    assert client.create(b"/q/empty") == b"/q/empty"


def test_what_shrinks_is_allowed_above_the_limit_too(client: Client) -> None:
    client.create(b"/q", b"1234567890")
    put_quota(client, b"/q", hard(nodes=0, data_bytes=2))
    assert isinstance(client.set(b"/q", b"123456789"), Stat)
    assert isinstance(client.set(b"/q", b"abcdefghi"), Stat)
    assert client.set(b"/q", b"1234567890") == EXCEEDED


def test_a_quota_is_checked_before_the_version_and_after_existence(client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", hard(nodes=1, data_bytes=2))
    assert client.set(b"/q", b"12345", version=9) == EXCEEDED
    assert client.create(b"/q", b"12345") == ErrorCode.NODE_EXISTS


def test_enforcement_can_be_switched_off() -> None:
    house = World(TreeOptions(enforce_quota=False))
    client = house.session()
    client.create(b"/q")
    put_quota(client, b"/q", hard(nodes=1))
    assert client.create(b"/q/a", b"xy") == b"/q/a"
    assert usage(house, b"/q") == b"count=2,bytes=2"


def test_without_stats_nothing_is_counted_or_refused(client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", hard(nodes=1), stats=False)
    assert client.create(b"/q/a") == b"/q/a"


def test_without_limits_stats_are_filled_in_once(house: World, client: Client) -> None:
    client.create(b"/q")
    client.create(Q + b"/q", None)
    client.create(Q + b"/q" + STATS)
    client.create(b"/q/a")
    assert usage(house, b"/q") == b"count=1,bytes=0"


def test_limits_that_are_set_anew_count_at_once(client: Client) -> None:
    client.create(b"/q")
    node = put_quota(client, b"/q", hard(nodes=1))
    client.set(node + LIMITS, hard(nodes=2))
    assert client.create(b"/q/a") == b"/q/a"
    assert client.create(b"/q/b") == EXCEEDED


def test_deleting_the_limits_ends_the_quota(house: World, client: Client) -> None:
    client.create(b"/q")
    node = put_quota(client, b"/q", hard(nodes=1))
    client.delete(node + LIMITS)
    assert client.create(b"/q/a") == b"/q/a"
    assert usage(house, b"/q") == b"count=1,bytes=0"


def test_only_the_deepest_quota_counts_a_change(house: World, client: Client) -> None:
    client.create(b"/q")
    client.create(b"/q/in")
    put_quota(client, b"/q")
    put_quota(client, b"/q/in")
    client.create(b"/q/in/a", b"123")
    assert (usage(house, b"/q"), usage(house, b"/q/in")) == (b"count=2,bytes=0", b"count=2,bytes=3")


def test_a_quota_on_a_node_that_is_not_there_yet(house: World, client: Client) -> None:
    put_quota(client, b"/later")
    assert usage(house, b"/later") == b"count=0,bytes=0"
    client.create(b"/later", b"123")
    assert usage(house, b"/later") == b"count=1,bytes=3"


def test_the_root_and_the_reserved_subtree_have_no_quota(house: World, client: Client) -> None:
    client.create(Q + LIMITS, hard(nodes=1))
    client.create(Q + STATS, b"as it is")
    assert house.data(Q + STATS) == b"as it is"
    put_quota(client, b"/zookeeper", hard(nodes=1))
    assert client.create(b"/zookeeper/x") == b"/zookeeper/x"
    assert client.create(b"/y") == b"/y"


def test_stats_that_a_client_sets_are_counted_on_from(house: World, client: Client) -> None:
    client.create(b"/q")
    node = put_quota(client, b"/q")
    client.set(node + STATS, b"count=10,bytes=20")
    client.create(b"/q/a", b"1")
    assert usage(house, b"/q") == b"count=11,bytes=21"


def test_stats_that_a_client_set_too_low_go_below_zero(house: World, client: Client) -> None:
    client.create(b"/q")
    client.create(b"/q/a", b"123")
    node = put_quota(client, b"/q")
    client.set(node + STATS, b"count=0,bytes=0")
    client.delete(b"/q/a")
    assert usage(house, b"/q") == b"count=-1,bytes=-3"
    client.create(b"/q/b", b"1234")
    assert usage(house, b"/q") == b"count=0,bytes=1"


def test_stats_that_make_no_sense_are_replaced(house: World, client: Client) -> None:
    client.create(b"/q", b"12")
    node = put_quota(client, b"/q")
    for text in (b"garbage", None, b"count=1", b"count=,bytes=1"):
        client.set(node + STATS, text)
        assert usage(house, b"/q") == b"count=1,bytes=2"


@pytest.mark.parametrize("text", [b"garbage", b"count=abc,bytes=5", b"count=99999999999999999999,bytes=1", None, b""])
def test_limits_that_make_no_sense_refuse_nothing(client: Client, text: bytes | None) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", text)
    assert client.create(b"/q/a", b"xx") == b"/q/a"
    assert isinstance(client.set(b"/q", b"new"), Stat)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (b"count=3,bytes=-1", HardLimits()),
        (b"count=3,bytes=-1=;byteHardLimit=20;countHardLimit=4", HardLimits(4, 20)),
        (b"byteHardLimit=3;countHardLimit=2", HardLimits(2, 3)),
        (b"count=+3,bytes=1=;countHardLimit=+2", HardLimits(2)),
        (b"countHardLimit=2,bytes=7,", HardLimits(2)),
        (b"countHardLimit=2,,;bytes=7", HardLimits(2)),
        (b"countHardLimit=1=2,byteHardLimit=3", HardLimits(1, 3)),
        (b"countHardLimit=9223372036854775808", HardLimits()),
        (b"countHardLimit=9223372036854775807", HardLimits((1 << 63) - 1)),
        (b"countHardLimit=2,x", HardLimits()),
        (b"countHardLimit=", HardLimits()),
        (b"", HardLimits()),
    ],
)
def test_hard_limits_are_read_from_their_text(text: bytes, limits: HardLimits) -> None:
    assert parse_limits(text) == limits


def test_a_multi_is_judged_with_what_it_has_done_so_far(client: Client) -> None:
    client.create(b"/q")
    put_quota(client, b"/q", hard(nodes=2))
    assert client.multi_errors(create(b"/q/a"), create(b"/q/b")) == [0, EXCEEDED]
    assert isinstance(client.multi(create(b"/q/a"), delete(b"/q/a"), create(b"/q/b")), list)
