"""FencedLock on a real server: tokens, order, and nothing left behind."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, NoAuthError
from kazoo.security import make_acl

from tests.recipes.conftest import QUICK_RETRY, TIMEOUT_S, Connect
from tests.recipes.proxy import Proxy
from tests.recipes.waiting import PATIENCE_S, InThread, eventually
from tests.server_process import free_port
from znoded.jute.ops import Op
from znoded.recipes import AcquireCancelled, AcquireTimeout, FencedLock, SessionTimeoutUnknown, Standing, session
from znoded.recipes.removal import remove_in_background
from znoded.recipes.session import session_id


def queue_of(client: KazooClient, path: str) -> list[str]:
    return list(client.get_children(path)) if client.exists(path) else []


def test_the_token_is_the_czxid_of_the_locks_znode(client: KazooClient, path: str) -> None:
    with FencedLock(client, path).acquire() as lease:
        assert lease.token == client.exists(lease.node).czxid
        assert lease.standing is Standing.SAFE
        assert 0 < lease.remaining_s <= 2.0
    assert lease.standing is Standing.LOST
    assert lease.remaining_s == 0
    assert queue_of(client, path) == []


def test_each_holder_has_a_greater_token_than_all_before(connect: Connect, path: str) -> None:
    tokens: list[int] = []

    def work() -> None:
        lock = FencedLock(connect(), path)
        for _ in range(5):
            with lock.acquire() as lease:
                tokens.append(lease.token)

    for thread in [InThread(work) for _ in range(4)]:
        thread.result()
    assert len(tokens) == 20
    assert tokens == sorted(set(tokens))


def test_waiters_get_the_lock_in_the_order_of_their_arrival(connect: Connect, path: str) -> None:
    holder = connect()
    lease = FencedLock(holder, path, "first").acquire()
    order: list[int] = []
    threads = []

    def work(number: int) -> None:
        with FencedLock(connect(), path, f"waiter-{number}").acquire():
            order.append(number)

    for number in range(4):
        threads.append(InThread(partial(work, number)))
        eventually(lambda number=number: len(queue_of(holder, path)) == 2 * (number + 2))
    assert FencedLock(holder, path).contenders() == ["first", "waiter-0", "waiter-1", "waiter-2", "waiter-3"]
    lease.release()
    for thread in threads:
        thread.result()
    assert order == [0, 1, 2, 3]


def test_a_lock_of_one_object_is_not_reentrant(client: KazooClient, path: str) -> None:
    lock = FencedLock(client, path)
    with lock.acquire(), pytest.raises(AcquireTimeout, match="within 0.05 s"):
        lock.acquire(timeout_s=0.05)
    assert queue_of(client, path) == []


def test_a_timed_out_acquire_leaves_nothing_behind(connect: Connect, path: str) -> None:
    first, second = connect(), connect()
    with FencedLock(first, path).acquire():
        with pytest.raises(AcquireTimeout):
            FencedLock(second, path).acquire(timeout_s=0.1)
        assert len(queue_of(first, path)) == 2, "the holder's"
        assert FencedLock(second, path).try_acquire() is None
        assert len(queue_of(first, path)) == 2
    lease = FencedLock(second, path).try_acquire()
    assert lease is not None
    lease.release()


def test_a_cancelled_acquire_leaves_nothing_behind(connect: Connect, path: str) -> None:
    first, second = connect(), connect()
    lock = FencedLock(second, path)
    with FencedLock(first, path).acquire():
        waiting = InThread(lock.acquire)
        eventually(lambda: len(queue_of(first, path)) == 4)
        lock.cancel()
        with pytest.raises(AcquireCancelled):
            waiting.result()
        assert len(queue_of(first, path)) == 2


@pytest.mark.parametrize("how", ["timed out", "cancelled"])
def test_a_create_whose_answer_nobody_waits_for_leaves_nothing_behind(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str, how: str
) -> None:
    client.ensure_path(path)
    waiter = connect(proxy.address)
    FencedLock(waiter, path).acquire().release()  # so that it knows all it has to ask for
    proxy.stall()
    lock = FencedLock(waiter, path)
    waiting = InThread(lambda: lock.acquire(timeout_s=0.2 if how == "timed out" else None))
    if how == "cancelled":
        time.sleep(0.1)
        lock.cancel()
    with pytest.raises((AcquireTimeout, AcquireCancelled)):
        waiting.result()
    proxy.mend()
    with FencedLock(client, path).acquire(timeout_s=1.0):
        eventually(lambda: len(queue_of(client, path)) == 2)


def test_a_create_whose_answer_is_lost_is_found_again(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str
) -> None:
    client.ensure_path(path)
    lock = FencedLock(connect(proxy.address), path)
    proxy.lose_answer_to(Op.MULTI)
    lease = lock.acquire()
    assert proxy.lost_answer.is_set()
    assert len(queue_of(client, path)) == 2, "one contender"
    assert lease.token == client.exists(lease.node).czxid
    lease.release()
    assert queue_of(client, path) == []


def test_a_release_whose_answer_is_lost_is_done(connect: Connect, client: KazooClient, proxy: Proxy, path: str) -> None:
    lease = FencedLock(connect(proxy.address), path).acquire()
    proxy.lose_answer_to(Op.MULTI)
    lease.release()
    lease.release()
    eventually(lambda: not queue_of(client, path))


def test_a_release_without_a_connection_is_done_when_there_is_one(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str
) -> None:
    lease = FencedLock(connect(proxy.address), path).acquire()
    proxy.cut()
    lease.release()
    assert lease.standing is Standing.LOST
    proxy.mend()
    eventually(lambda: not queue_of(client, path))


def test_a_waiter_keeps_its_place_across_a_lost_connection(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str
) -> None:
    first = FencedLock(client, path).acquire()
    waiting = InThread(FencedLock(connect(proxy.address), path, "second").acquire)
    eventually(lambda: len(queue_of(client, path)) == 4)
    before = sorted(queue_of(client, path))
    proxy.cut()
    proxy.mend()
    first.release()
    lease = waiting.result()
    assert lease.node.rpartition("/")[2] in before
    lease.release()


def test_a_waiter_whose_session_expired_queues_anew(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str
) -> None:
    with FencedLock(client, path).acquire() as first:
        waiting = InThread(FencedLock(connect(proxy.address, TIMEOUT_S), path).acquire)
        eventually(lambda: len(queue_of(client, path)) == 4)
        proxy.stall()
        eventually(lambda: len(queue_of(client, path)) == 2)
        proxy.cut()
        proxy.mend()
        eventually(lambda: len(queue_of(client, path)) == 4)
        assert not waiting.is_done
    lease = waiting.result()
    assert lease.token > first.token
    lease.release()


def test_a_waiter_whose_place_is_deleted_queues_anew(connect: Connect, client: KazooClient, path: str) -> None:
    with FencedLock(client, path).acquire() as first:
        waiting = InThread(FencedLock(connect(), path).acquire)
        eventually(lambda: len(queue_of(client, path)) == 4)
        places = [name for name in sorted(queue_of(client, path)) if name not in first.node]
        client.delete(f"{path}/{next(name for name in places if name[-20:-10] != '__lock__lo')}")
    waiting.result().release()
    eventually(lambda: not queue_of(client, path))


def test_attempts_that_give_up_leave_no_watches_behind(connect: Connect, client: KazooClient, path: str) -> None:
    waiter = connect()
    with FencedLock(client, path).acquire():
        for _ in range(5):
            lock = FencedLock(waiter, path)
            for _ in range(2):
                with pytest.raises(AcquireTimeout):
                    lock.acquire(timeout_s=0.05)
        assert sum(map(len, waiter._data_watchers.values())) <= 1


def test_a_timeout_counts_while_the_server_is_asked_for_the_sessions(
    connect: Connect, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(timeout_s=60.0)
    is_over = threading.Event()
    monkeypatch.setattr(session, "_conf", lambda _client: str(is_over.wait(PATIENCE_S)))
    began_s = time.monotonic()
    with pytest.raises(AcquireTimeout):
        FencedLock(client, path).acquire(timeout_s=0.1)
    assert time.monotonic() - began_s < PATIENCE_S / 2
    is_over.set()
    eventually(lambda: not queue_of(client, path))


def test_no_lock_is_given_while_nobody_can_say_how_long_it_is_held(
    connect: Connect, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PAUSE_S", 0.01)
    client = connect(timeout_s=60.0)  # 2 s are granted
    with monkeypatch.context() as patch:
        patch.setattr(session, "_conf", lambda _client: "")
        with pytest.raises(SessionTimeoutUnknown):
            FencedLock(client, path).acquire()
    eventually(lambda: not queue_of(client, path))
    with FencedLock(client, path).acquire() as lease:
        assert lease.remaining_s <= 2.0


def test_a_client_that_is_stopped_before_it_was_ever_connected_waits_no_longer(path: str) -> None:
    client = KazooClient(f"127.0.0.1:{free_port()}", connection_retry=QUICK_RETRY)
    client.start_async()
    acquiring = InThread(FencedLock(client, path).acquire)
    time.sleep(0.1)
    client.stop()
    with pytest.raises(ConnectionClosedError):
        acquiring.result()
    client.close()


def test_a_connection_that_breaks_while_a_place_is_given_up_leaves_nothing_behind(
    client: KazooClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = FencedLock(client, path).acquire()
    known: list[Any] = [None]  # without a connection, the first time
    monkeypatch.setattr(
        "znoded.recipes.removal.session_id", lambda client: known.pop() if known else session_id(client)
    )
    remove_in_background(client, path, lease.node.rpartition("/")[2][len("fenced-") :][:32])
    eventually(lambda: not queue_of(client, path))
    assert not known


def test_rights_that_do_not_suffice_are_told_and_leave_nothing(client: KazooClient, path: str) -> None:
    client.create(path, acl=[make_acl("world", "anyone", read=True, delete=True)])
    with pytest.raises(NoAuthError):
        FencedLock(client, path).acquire()
    assert queue_of(client, path) == []


def test_a_closed_client_is_told(connect: Connect, path: str) -> None:
    client = connect()
    client.stop()
    with pytest.raises(ConnectionClosedError):
        FencedLock(client, path).acquire()
