"""A lock whose holder's session expired is kept for a while (docs/fencing.md)."""

from __future__ import annotations

import time

import pytest

from tests.tree.test_checkpoint_tables import Checkpoint, state
from tests.tree.world import (
    CHILDREN,
    CREATED,
    DELETED,
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    Client,
    World,
    check,
    delete,
    set_data,
    world,
)
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Perm
from znoded.tree.lock_delay import MAX_DELAY_MS, Delays, delay_ms

DELAY_MS = 5000


@pytest.fixture
def lock(house: World, client: Client) -> bytes:
    """The parent of a lock with a delay."""
    client.create(b"/lock")
    client.create(b"/zookeeper/lock_delay")
    client.create(b"/zookeeper/lock_delay/lock", b"%d" % DELAY_MS)
    return b"/lock"


def contend(session: Client, lock: bytes, name: bytes = b"x__lock__") -> bytes:
    path = session.create(lock + b"/" + name, flags=EPHEMERAL_SEQUENTIAL)
    assert isinstance(path, bytes)
    return path


def kept(path: bytes) -> bytes:
    """The path of what is kept of a holder."""
    lock, _, name = path.rpartition(b"/")
    return lock + b"/kept-" + name


def over(house: World, after_ms: int, limit: int = 100) -> list[tuple[bytes, int, int]]:
    """What is to be deleted so long after the first look."""
    delays = Delays()
    delays.over(house.tree, 0, limit)
    return delays.over(house.tree, after_ms, limit)


def due(house: World, after_ms: int, limit: int = 100) -> list[bytes]:
    return [path for path, _, _ in over(house, after_ms, limit)]


def test_a_fresh_server_shows_nothing_of_it(house: World) -> None:
    assert house.children(b"/zookeeper") == [b"/zookeeper/config", b"/zookeeper/quota"]


def test_the_delay_is_what_the_znode_says(house: World, client: Client, lock: bytes) -> None:
    assert delay_ms(house.tree, lock) == DELAY_MS
    assert delay_ms(house.tree, b"/other") == 0
    assert delay_ms(house.tree, b"/") == 0
    for text in (b"0", b"", None, b"-5", b"5 s", b"0" * 1_000_000 + b"x", b"9" * 1_000_000 + b"x"):
        client.set(b"/zookeeper/lock_delay/lock", text)
        assert delay_ms(house.tree, lock) == 0
    for text, expected in ((b"007", 7), (b"60001", MAX_DELAY_MS), (b"9" * 5_000, MAX_DELAY_MS), (b"0" * 5_000, 0)):
        client.set(b"/zookeeper/lock_delay/lock", text)
        assert delay_ms(house.tree, lock) == expected


def test_a_holder_that_expires_is_kept_until_the_delay_is_over(house: World, lock: bytes) -> None:
    holder, waiter = house.session(1), house.session(2)
    held, waiting = contend(holder, lock), contend(waiter, lock)
    before = house.stat(held)
    house.events()
    assert house.expire(holder) == 0
    ended_ms = house.now_ms
    assert house.events() == [(DELETED, held), (CHILDREN, lock), (CREATED, kept(held)), (CHILDREN, lock)]
    after = house.stat(kept(held))
    assert (after.czxid, after.ephemeral_owner) == (before.czxid, 1)
    assert (after.version, after.mtime, after.mzxid) == (1, ended_ms, house.tree.zxid)
    assert house.children(lock) == sorted((kept(held), waiting))
    parent = house.stat(lock)
    assert (parent.num_children, parent.pzxid) == (2, house.tree.zxid)
    assert due(house, DELAY_MS - 1) == []
    [(path, mzxid, pzxid)] = over(house, DELAY_MS)
    assert house.sweep(path, mzxid, pzxid) == 0
    assert house.events() == [(DELETED, kept(held)), (CHILDREN, lock)]
    assert house.children(lock) == [waiting]
    assert due(house, 10 * DELAY_MS) == []


def test_a_clean_end_frees_it_at_once(house: World, lock: bytes) -> None:
    holder = house.session(1)
    contend(holder, lock)
    assert holder.close() == 0
    assert house.children(lock) == []
    releasing = house.session(2)
    releasing.delete(contend(releasing, lock))
    house.expire(releasing)
    assert house.children(lock) == []


def test_a_waiter_that_expires_is_not_kept(house: World, lock: bytes) -> None:
    holder, waiter = house.session(1), house.session(2)
    held = contend(holder, lock)
    contend(waiter, lock)
    house.expire(waiter)
    assert house.children(lock) == [held]


def test_without_a_delay_on_its_parent_nothing_is_kept(house: World, client: Client, lock: bytes) -> None:
    client.create(b"/free")
    holder = house.session(1)
    contend(holder, b"/free")
    holder.create(b"/lock/plain", flags=EPHEMERAL)
    house.expire(holder)
    assert house.children(b"/free") == house.children(lock) == []


def test_without_any_delay_nothing_is_kept(house: World, client: Client) -> None:
    client.create(b"/lock")
    holder = house.session(1)
    contend(holder, b"/lock")
    house.expire(holder)
    assert house.children(b"/lock") == []


def test_both_znodes_of_one_holder_are_kept(house: World, lock: bytes) -> None:
    holder, waiter = house.session(1), house.session(2)
    pair = [contend(holder, lock, name) for name in (b"me__lock__", b"me__lock__lock-")]
    contend(waiter, lock, b"_c_you-lock-")
    house.expire(waiter)
    house.expire(holder)
    assert house.children(lock) == sorted(map(kept, pair))


@pytest.mark.parametrize("name", [b"__rlock__", b"__READ__"])
def test_readers_that_share_a_lock_are_all_kept_and_those_behind_a_writer_are_not(
    house: World, lock: bytes, name: bytes
) -> None:
    house.tree.created[lock] = 2**31 - 2  # the numbers go on below 0
    sessions = [house.session(number) for number in range(1, 5)]
    names = (b"a" + name, b"b" + name, b"c__lock__", b"d" + name)
    first, second, _, _ = (contend(session, lock, each) for session, each in zip(sessions, names, strict=True))
    for session in reversed(sessions):
        house.expire(session)
    assert house.children(lock) == sorted((kept(first), kept(second)))


def test_what_is_kept_may_be_deleted_and_is_put_back_if_that_was_part_of_a_failed_multi(
    house: World, client: Client, lock: bytes
) -> None:
    holder = house.session(1)
    held = contend(holder, lock)
    house.expire(holder)
    before = state(house.tree)
    assert client.multi_errors(delete(kept(held)), check(b"/nowhere"))[1] == ErrorCode.NO_NODE
    assert state(house.tree)["nodes"] == before["nodes"]
    assert due(house, house.now_ms + DELAY_MS) == [kept(held)]
    assert client.delete(kept(held)) == 0
    assert house.tree.kept == {}


def test_a_guarded_write_of_the_expired_holder_fails(house: World, client: Client, lock: bytes) -> None:
    holder = house.session(1)
    held = contend(holder, lock)
    assert isinstance(client.multi(check(held, 0), set_data(lock)), list)
    house.expire(holder)
    assert client.multi_errors(check(held, 0), set_data(lock))[0] == ErrorCode.NO_NODE
    assert client.multi_errors(check(kept(held), 0), set_data(lock))[0] == ErrorCode.BAD_VERSION


def test_what_is_kept_has_no_children_and_keeps_its_acl(house: World, client: Client, lock: bytes) -> None:
    holder = house.session(1)
    held = holder.create(b"/lock/x__lock__", flags=EPHEMERAL_SEQUENTIAL, acl=world(Perm.READ | Perm.CREATE))
    assert isinstance(held, bytes)
    house.expire(holder)
    assert house.acl(kept(held)) == world(Perm.READ | Perm.CREATE)
    assert client.create(kept(held) + b"/child") == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS


def test_a_delay_that_is_taken_away_is_over(house: World, client: Client, lock: bytes) -> None:
    holders = [house.session(number) for number in (1, 2, 3)]
    for number, holder in enumerate(holders):
        client.create(b"/lock-%d" % number)
        client.create(b"/zookeeper/lock_delay/lock-%d" % number, b"1000")
        contend(holder, b"/lock-%d" % number)
        house.expire(holder)
    client.delete(b"/zookeeper/lock_delay/lock-1")
    assert due(house, 100) == [b"/lock-1/kept-x__lock__0000000000"]
    assert len(due(house, 1000, limit=2)) == 2


def test_a_sweep_is_refused_when_it_is_kept_no_more(house: World, client: Client, lock: bytes) -> None:
    holder = house.session(1)
    held = contend(holder, lock)
    house.expire(holder)
    [candidate] = over(house, DELAY_MS)
    client.set(kept(held))
    assert house.sweep(*candidate) == ErrorCode.BAD_VERSION
    client.delete(kept(held))
    assert house.sweep(*candidate) == ErrorCode.NO_NODE


def test_it_survives_a_checkpoint(house: World, lock: bytes) -> None:
    holder, waiter = house.session(1), house.session(2)
    held = contend(holder, lock)
    contend(waiter, lock)
    house.expire(holder)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    loaded = checkpoint.load()
    assert state(loaded) == state(house.tree)
    assert loaded.kept == house.tree.kept == {kept(held): holder.id}


def test_nothing_is_kept_where_its_other_name_is_taken(house: World, client: Client, lock: bytes) -> None:
    holder = house.session(1)
    held = contend(holder, lock)
    client.create(kept(held), b"mine")
    house.expire(holder)
    assert house.children(lock) == [kept(held)]
    assert house.data(kept(held)) == b"mine"
    assert house.tree.kept == {}


def test_a_quota_counts_what_is_kept_once(house: World, client: Client, lock: bytes) -> None:
    holder = house.session(1)
    holder.create(lock + b"/x__lock__", b"12345", flags=EPHEMERAL_SEQUENTIAL)
    for path in (b"", b"/lock"):
        client.create(b"/zookeeper/quota" + path)
    client.create(b"/zookeeper/quota/lock/zookeeper_limits", b"count=-1,bytes=-1")
    client.create(b"/zookeeper/quota/lock/zookeeper_stats", b"count=0,bytes=0")
    before = house.data(b"/zookeeper/quota/lock/zookeeper_stats")
    house.expire(holder)
    assert house.data(b"/zookeeper/quota/lock/zookeeper_stats") == before
    house.sweep(*over(house, DELAY_MS)[0])
    assert house.data(b"/zookeeper/quota/lock/zookeeper_stats") == b"count=1,bytes=0"


def test_a_delay_begins_with_the_first_look_at_each_that_is_kept(house: World, lock: bytes) -> None:
    delays, holders = Delays(), [house.session(1), house.session(2)]
    held = [contend(holder, lock, b"x__rlock__") for holder in holders]
    house.expire(holders[0])
    assert delays.over(house.tree, 1_000, 10) == []
    house.expire(holders[1])
    assert delays.over(house.tree, 3_000, 10) == []
    assert [path for path, _, _ in delays.over(house.tree, 1_000 + DELAY_MS, 10)] == [kept(held[0])]
    assert len(delays.over(house.tree, 3_000 + DELAY_MS, 10)) == 2


def test_another_one_of_the_same_name_has_its_own_delay(house: World, client: Client, lock: bytes) -> None:
    holder, delays = house.session(1), Delays()
    held = contend(holder, lock)
    house.expire(holder)
    assert delays.over(house.tree, 0, 10) == []
    client.set(kept(held))
    assert delays.over(house.tree, DELAY_MS, 10) == []
    assert len(delays.over(house.tree, 2 * DELAY_MS, 10)) == 1


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_session_with_thousands_of_contenders_ends_soon(house: World, lock: bytes, is_ahead: bool) -> None:
    """The whole cell waits for it."""
    holder, other = house.session(1), house.session(2)
    if is_ahead:
        contend(other, lock)
    for _ in range(3000):
        contend(holder, lock)
    began_s = time.process_time()
    house.expire(holder)
    assert time.process_time() - began_s < 5.0, "it takes time that grows with the square"
    assert len(house.tree.kept) == (0 if is_ahead else 3000)
