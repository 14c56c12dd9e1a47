"""Kazoo's own locks, Curator's names, readers and writers: who keeps out whom on one path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.recipes.conftest import TIMEOUT_S, Connect
from tests.recipes.proxy import Proxy
from tests.recipes.waiting import InThread, eventually
from znoded.recipes import FencedLock, FencedReadLock, FencedWriteLock

Acquire = Callable[[KazooClient, str], Callable[[], object]]


def fenced(kind: type[FencedLock]) -> Acquire:
    return lambda client, path: kind(client, path).acquire().release


def kazoo(kind: str) -> Acquire:
    def acquire(client: KazooClient, path: str) -> Callable[[], object]:
        lock: Any = getattr(client, kind)(path)
        assert lock.acquire()
        release: Callable[[], object] = lock.release
        return release

    return acquire


def curator(client: KazooClient, path: str) -> Callable[[], object]:
    """As Curator's InterProcessMutex does: the children are sorted by what follows the last `lock-`."""
    client.ensure_path(path)
    node = client.create(f"{path}/_c_6f0e4a8e-2bb9-4a51-9d1c-0f2e2ad2a1f7-lock-", ephemeral=True, sequence=True)
    own = node.rpartition("/")[2]
    eventually(lambda: min(client.get_children(path), key=lambda name: name.rpartition("lock-")[2]) == own)
    return lambda: client.delete(node)


LOCK, READ, WRITE = fenced(FencedLock), fenced(FencedReadLock), fenced(FencedWriteLock)
EXCLUDE = {
    "lock-lock": (LOCK, LOCK),
    "lock-kazoo": (LOCK, kazoo("Lock")),
    "kazoo-lock": (kazoo("Lock"), LOCK),
    "lock-curator": (LOCK, curator),
    "curator-lock": (curator, LOCK),
    "read-write": (READ, WRITE),
    "write-read": (WRITE, READ),
    "lock-read": (LOCK, READ),
    "read-lock": (READ, LOCK),
    "read-kazoo write": (READ, kazoo("WriteLock")),
    "kazoo write-read": (kazoo("WriteLock"), READ),
    "kazoo read-write": (kazoo("ReadLock"), WRITE),
    "write-kazoo read": (WRITE, kazoo("ReadLock")),
    "read-curator": (READ, curator),
    "curator-read": (curator, READ),
}


@pytest.mark.parametrize(("first", "second"), EXCLUDE.values(), ids=EXCLUDE)
def test_one_keeps_out_the_other(connect: Connect, path: str, first: Acquire, second: Acquire) -> None:
    path = path.replace(" ", "-")
    holder, waiter = connect(), connect()
    release = first(holder, path)
    before = len(holder.get_children(path))
    waiting = InThread(lambda: second(waiter, path))
    eventually(lambda: len(holder.get_children(path)) > before or waiting.is_done)
    third = FencedLock(holder, path).try_acquire()
    assert third is None
    assert not waiting.is_done
    release()
    waiting.result()()
    with FencedLock(holder, path).acquire():
        pass


@pytest.mark.parametrize("other", [READ, kazoo("ReadLock")], ids=["read", "kazoo"])
def test_readers_hold_a_lock_together(connect: Connect, path: str, other: Acquire) -> None:
    with FencedReadLock(connect(), path).acquire():
        other(connect(), path)()
    release = other(connect(), path)
    FencedReadLock(connect(), path).acquire().release()
    release()


def test_a_mixed_queue_moves_on(connect: Connect, path: str) -> None:
    """Each waits for the right one, whatever it makes of the others' names."""
    kinds = [LOCK, curator, kazoo("Lock"), LOCK, curator, LOCK, kazoo("Lock"), READ, READ, curator]
    observer = connect()
    release = kinds[0](observer, path)
    waiting = []
    for kind in kinds[1:]:
        before = len(observer.get_children(path))
        client = connect()
        waiting.append(InThread(lambda kind=kind, client=client: kind(client, path)()))
        eventually(lambda before=before: len(observer.get_children(path)) > before)
    release()
    for each in waiting:
        each.result()
    eventually(lambda: not observer.get_children(path))


def test_a_waiter_of_kazoos_does_not_take_what_a_lock_delay_keeps_of_its_old_session_for_the_lock(
    connect: Connect, client: KazooClient, proxy: Proxy
) -> None:
    path = "/kept"
    client.create(f"/zookeeper/lock_delay{path}", b"3000", makepath=True)
    first = client.Lock(path)
    first.acquire()
    waiter = connect(proxy.address, TIMEOUT_S)
    waiting = InThread(waiter.Lock(path).acquire)
    eventually(lambda: len(client.get_children(path)) == 2)
    proxy.stall()
    first.release()  # the waiter has the lock, does not know it, and its session expires
    eventually(lambda: client.get_children(path)[0].startswith("kept-"))
    proxy.cut()
    proxy.mend()
    eventually(lambda: len(client.get_children(path)) == 2)
    assert not waiting.is_done
    assert waiting.result()
    [node] = client.get_children(path)
    assert client.exists(f"{path}/{node}").ephemeralOwner == waiter.client_id[0]
