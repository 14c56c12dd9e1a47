"""What a holder is told when contact is lost: jeopardy, then safe again or lost."""

from __future__ import annotations

import queue as queues
import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from tests.interop.certificates import make_certificates
from tests.recipes.conftest import QUICK_RETRY, TIMEOUT_S, Connect
from tests.recipes.proxy import Proxy
from tests.recipes.waiting import PATIENCE_S, InThread, eventually
from tests.server_process import ServerProcess, free_port
from znoded.recipes import FencedLock, Lease, Standing


class Told:
    """What `on_standing` was called with."""

    def __init__(self) -> None:
        self._told: queues.Queue[Standing] = queues.Queue()

    def __call__(self, lease: Lease, standing: Standing) -> None:
        self._told.put(standing)

    def next(self) -> Standing:
        return self._told.get(timeout=PATIENCE_S)

    @property
    def is_empty(self) -> bool:
        return self._told.empty()


def test_a_holder_is_in_jeopardy_without_contact_and_safe_with_it(connect: Connect, proxy: Proxy, path: str) -> None:
    told = Told()
    with FencedLock(connect(proxy.address), path, on_standing=told).acquire() as lease:
        proxy.cut()
        assert told.next() is Standing.JEOPARDY
        assert lease.standing is Standing.JEOPARDY
        assert lease.remaining_s == 0
        proxy.mend()
        assert told.next() is Standing.SAFE
        assert lease.standing is Standing.SAFE
    assert told.is_empty


def test_silence_is_jeopardy_although_no_connection_broke(connect: Connect, proxy: Proxy, path: str) -> None:
    told = Told()
    with FencedLock(connect(proxy.address), path, on_standing=told).acquire():
        proxy.stall()
        assert told.next() is Standing.JEOPARDY
        proxy.mend()
        assert told.next() is Standing.SAFE


def test_a_lease_is_lost_when_its_session_may_be_over(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str
) -> None:
    told = Told()
    lease = FencedLock(connect(proxy.address, TIMEOUT_S), path, on_standing=told).acquire()
    waiting = InThread(FencedLock(client, path).acquire)
    proxy.cut()
    assert told.next() is Standing.JEOPARDY
    assert told.next() is Standing.LOST
    assert not waiting.is_done, "the server grants a little more than the timeout, the holder a little less"
    assert lease.wait_until_over(PATIENCE_S)
    assert waiting.result().token > lease.token
    proxy.mend()


def test_a_lease_is_lost_when_the_grace_is_over_and_leaves_its_place(
    connect: Connect, client: KazooClient, proxy: Proxy, path: str
) -> None:
    told = Told()
    lease = FencedLock(connect(proxy.address), path, grace_s=0.1, on_standing=told).acquire()
    proxy.cut()
    assert told.next() is Standing.JEOPARDY
    assert told.next() is Standing.LOST
    assert client.exists(lease.node), "its session goes on"
    proxy.mend()
    eventually(lambda: not client.get_children(path))
    assert lease.standing is Standing.LOST


def test_a_lease_is_lost_when_its_session_is_ended(connect: Connect, path: str) -> None:
    told = Told()
    holder = connect()
    FencedLock(holder, path, on_standing=told).acquire()
    holder.stop()
    assert told.next() is Standing.LOST


def test_a_lease_is_lost_when_somebody_deletes_its_znode(connect: Connect, client: KazooClient, path: str) -> None:
    told = Told()
    lease = FencedLock(connect(), path, on_standing=told).acquire()
    client.delete(lease.node)
    assert told.next() is Standing.LOST
    eventually(lambda: not client.get_children(path))


def test_a_holder_whose_callback_fails_is_kept_all_the_same(connect: Connect, proxy: Proxy, path: str) -> None:
    def fail(lease: Lease, standing: Standing) -> None:
        raise RuntimeError(standing)

    with FencedLock(connect(proxy.address), path, on_standing=fail).acquire() as lease:
        proxy.cut()
        eventually(lambda: lease.standing is Standing.JEOPARDY)
        proxy.mend()
        eventually(lambda: lease.standing is Standing.SAFE)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lease_whose_thread_is_ended_by_its_callback_is_lost(connect: Connect, proxy: Proxy, path: str) -> None:
    threads: list[threading.Thread] = []

    def end(lease: Lease, standing: Standing) -> None:
        threads.append(threading.current_thread())
        raise SystemExit

    lease = FencedLock(connect(proxy.address), path, on_standing=end).acquire()
    proxy.cut()
    assert lease.wait_until_over(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)  # its exception would be taken for one of the next test's
    assert lease.standing is Standing.LOST, "nobody keeps it, and its place is given up"


def test_a_lease_that_begins_without_contact_is_in_jeopardy(
    client: KazooClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    with monkeypatch.context() as patch:
        patch.setattr("znoded.recipes.lease.session_id", lambda _client: None)  # the connection has just broken
        lease = FencedLock(client, path, on_standing=told).acquire()
    assert told.next() is Standing.JEOPARDY
    assert told.next() is Standing.SAFE
    lease.release()


def test_a_connection_that_breaks_behind_a_confirmation_costs_no_lease(
    client: KazooClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = FencedLock(client, path).acquire()
    asked: list[Any] = []
    monkeypatch.setattr("znoded.recipes.lease.session_id", asked.append)  # None, as without a connection
    eventually(lambda: len(asked) > 1)
    assert lease.standing is Standing.SAFE
    lease.release()


def test_reads_of_a_member_that_is_cut_off_are_no_contact(
    connect: Connect, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers those who are content with what it knows, or read only, and confirms no `sync`."""
    client = connect(timeout_s=TIMEOUT_S)
    with FencedLock(client, path).acquire() as lease:
        unanswered = client.handler.async_result()
        unanswered.set_exception(ConnectionLoss())
        monkeypatch.setattr(client, "sync_async", lambda _path: unanswered)
        assert lease.wait_until_over(PATIENCE_S)
        assert client.exists(path)


@pytest.mark.parametrize("is_new", [False, True], ids=["the lease that there is", "a new one"])
def test_a_timeout_that_another_connection_was_granted_is_what_counts(tmp_path: Path, path: str, is_new: bool) -> None:
    server = ServerProcess(tmp_path, "tick_ms = 200\n")
    server.start()  # which grants 4 s
    client = KazooClient(server.address, timeout=4.0, connection_retry=QUICK_RETRY)
    client.start()
    lock = FencedLock(client, path)
    lease = lock.acquire()
    assert lease.remaining_s > 3.0
    if is_new:
        lease.release()
    server.stop()
    (tmp_path / "member.toml").write_text("tick_ms = 200\n[limits]\nsession_timeout_max_ms = 1000\n")
    server.start()
    if is_new:
        lease = lock.acquire()
    eventually(lambda: 0.0 < lease.remaining_s <= 1.0)
    assert lease.standing is Standing.SAFE
    client.stop()
    client.close()
    server.stop()


def test_a_client_with_tls_knows_what_it_was_granted(tmp_path: Path, path: str) -> None:
    """Kazoo's own way to ask for it looks for the port in the certificate."""
    made = make_certificates(tmp_path)
    port = free_port()
    toml = (
        f'tick_ms = 100\n[client.tls]\nlisten = ["tcp:{port}:interface=127.0.0.1"]\n'
        f'certificate = "{made.server_certificate}"\nprivate_key = "{made.server_key}"\n'
    )
    with ServerProcess(tmp_path, toml):
        client = KazooClient(f"localhost:{port}", timeout=45.0, use_ssl=True, ca=str(made.ca_certificate))
        client.start()
        with FencedLock(client, path).acquire() as lease:
            assert lease.remaining_s <= 2.0
        client.stop()
        client.close()
