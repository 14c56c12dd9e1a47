"""Writes to the tree that are carried out only while the lock is held."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError

from znoded.recipes import FencedLock, LeaseLost


def test_a_guarded_write_is_carried_out_by_the_holder(client: KazooClient, path: str) -> None:
    with FencedLock(client, f"{path}/lock").acquire() as lease:
        with lease.guarded() as writes:
            writes.create(f"{path}/a", b"1")
            writes.set_data(f"{path}/a", b"2")
            writes.check(f"{path}/a", 1)
            writes.create(f"{path}/b")
            writes.delete(f"{path}/b")
        assert client.get(f"{path}/a")[0] == b"2"
        writes = lease.guarded()
        writes.create(f"{path}/c")
        assert writes.commit() == [f"{path}/c"]


def test_a_guarded_write_fails_whole_when_the_lock_is_gone(client: KazooClient, path: str) -> None:
    lease = FencedLock(client, f"{path}/lock").acquire()
    writes = lease.guarded()
    writes.create(f"{path}/a")
    client.delete(lease.node)
    with pytest.raises(LeaseLost, match=f"token {lease.token} does not hold"):
        writes.commit()
    assert not client.exists(f"{path}/a")


def test_a_lock_kept_by_the_server_for_a_dead_holder_guards_nothing(client: KazooClient, path: str) -> None:
    lease = FencedLock(client, f"{path}/lock").acquire()
    client.set(lease.node, b"")
    writes = lease.guarded()
    writes.create(f"{path}/a")
    with pytest.raises(LeaseLost):
        writes.commit()


def test_the_operation_that_failed_is_told(client: KazooClient, path: str) -> None:
    with FencedLock(client, f"{path}/lock").acquire() as lease:
        with pytest.raises(NodeExistsError), lease.guarded() as writes:
            writes.create(f"{path}/lock")
        with pytest.raises(BadVersionError), lease.guarded() as writes:
            writes.set_data(f"{path}", b"", 7)


def test_a_block_that_fails_writes_nothing(client: KazooClient, path: str) -> None:
    with FencedLock(client, f"{path}/lock").acquire() as lease:
        with pytest.raises(TypeError), lease.guarded() as writes:
            writes.create(f"{path}/a", value=lease)  # type: ignore[arg-type]
        assert not client.exists(f"{path}/a")


def test_a_lease_that_is_over_guards_nothing(client: KazooClient, path: str) -> None:
    with FencedLock(client, path).acquire() as lease:
        pass
    with pytest.raises(LeaseLost, match="is over"):
        lease.guarded()
