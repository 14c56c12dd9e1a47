"""Kazoo's recipes as a user would put them to work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, LockTimeout, RolledBackError
from kazoo.recipe.cache import TreeCache, TreeEvent

from tests.server_process import ServerProcess

WAIT_S = 20.0
# A client that comes back at once when its server does.
QUICK_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.1}

Connect = Callable[[], KazooClient]


@pytest.fixture
def server(znoded_server: Callable[..., ServerProcess]) -> ServerProcess:
    return znoded_server()


@pytest.fixture
def connect(server: ServerProcess) -> Iterator[Connect]:
    """Makes connected clients and closes them at the end."""
    with ExitStack() as clients:

        def connected() -> KazooClient:
            client = KazooClient(server.address, timeout=10.0, connection_retry=QUICK_RETRY, command_retry=QUICK_RETRY)
            client.start()
            clients.callback(client.close)
            clients.callback(client.stop)
            return client

        yield connected


def in_thread(target: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_a_lock_lets_one_holder_in_at_a_time(connect: Connect) -> None:
    inside = 0
    most_inside = 0
    entered = 0

    def work(client: KazooClient) -> None:
        nonlocal inside, most_inside, entered
        for _ in range(5):
            with client.Lock("/lock", "worker"):
                inside += 1
                most_inside = max(most_inside, inside)
                entered += 1
                client.get("/lock")
                inside -= 1

    clients = [connect() for _ in range(4)]
    for thread in [in_thread(partial(work, client)) for client in clients]:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert (most_inside, entered) == (1, 20)


def test_a_lock_passes_on_when_its_holder_goes(connect: Connect) -> None:
    holder, waiter = connect(), connect()
    assert holder.Lock("/lock").acquire()
    lock = waiter.Lock("/lock")
    with pytest.raises(LockTimeout):
        lock.acquire(timeout=0.1)
    holder.stop()
    assert lock.acquire(timeout=WAIT_S)


def test_an_election_has_one_leader_and_then_the_next(connect: Connect) -> None:
    leaders: queue.Queue[str] = queue.Queue()
    terms = {name: threading.Event() for name in ("a", "b")}

    def lead(name: str) -> None:
        leaders.put(name)
        terms[name].wait(WAIT_S)

    threads = []
    for name in terms:
        election = connect().Election("/election", name)
        threads.append(in_thread(partial(election.run, lead, name)))
    first = leaders.get(timeout=WAIT_S)
    assert leaders.empty()
    terms[first].set()
    assert {first, leaders.get(timeout=WAIT_S)} == {"a", "b"}
    for term in terms.values():
        term.set()
    for thread in threads:  # their clients are closed next
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_tree_cache_follows_every_change(connect: Connect) -> None:
    writer, reader = connect(), connect()
    writer.create("/app/old", b"0", makepath=True)
    cache = TreeCache(reader, "/app")
    events: queue.Queue[TreeEvent] = queue.Queue()
    cache.listen(events.put)
    cache.start()

    def next_event() -> tuple[int, str | None, bytes | None]:
        event = events.get(timeout=WAIT_S)
        data = event.event_data
        return event.event_type, data and data.path, data and data.data

    assert {next_event() for _ in range(3)} == {
        (TreeEvent.NODE_ADDED, "/app", b""),
        (TreeEvent.NODE_ADDED, "/app/old", b"0"),
        (TreeEvent.INITIALIZED, None, None),
    }
    writer.create("/app/new", b"1")
    assert next_event() == (TreeEvent.NODE_ADDED, "/app/new", b"1")
    writer.set("/app/new", b"2")
    assert next_event() == (TreeEvent.NODE_UPDATED, "/app/new", b"2")
    writer.delete("/app/old")
    assert next_event() == (TreeEvent.NODE_REMOVED, "/app/old", b"0")
    assert cache.get_children("/app") == frozenset({"new"})
    assert cache.get_data("/app/new").data == b"2"
    cache.close()


def test_a_transaction_is_all_or_nothing(connect: Connect) -> None:
    client = connect()
    good = client.transaction()
    good.create("/one", b"1")
    good.create("/one/two", b"2")
    good.set_data("/one", b"1a")
    good.check("/one", 1)
    results = good.commit()
    assert results[:2] == ["/one", "/one/two"]
    assert results[2].version == 1
    bad = client.transaction()
    bad.delete("/one/two")
    bad.check("/one", 7)
    assert [type(result) for result in bad.commit()] == [RolledBackError, BadVersionError]
    assert client.exists("/one/two")


def test_a_session_its_ephemerals_and_its_watches_live_on_over_a_restart(
    connect: Connect, server: ServerProcess
) -> None:
    client, other = connect(), connect()
    states: queue.Queue[str] = queue.Queue()
    client.add_listener(states.put)
    client.create("/app", b"before")
    client.create("/app/member", ephemeral=True)
    session = client.client_id[0]
    seen: queue.Queue[bytes] = queue.Queue()
    client.DataWatch("/app", lambda data, stat: seen.put(data))
    assert seen.get(timeout=WAIT_S) == b"before"

    server.stop()
    server.start()

    assert states.get(timeout=WAIT_S) == KazooState.SUSPENDED
    assert states.get(timeout=WAIT_S) == KazooState.CONNECTED
    assert client.client_id[0] == session
    assert other.retry(other.exists, "/app/member").ephemeralOwner == session
    other.set("/app", b"after")
    assert seen.get(timeout=WAIT_S) == b"after"


def test_what_a_client_was_told_is_there_after_the_server_was_killed(connect: Connect, server: ServerProcess) -> None:
    client = connect()
    client.create("/queue")
    told = {client.create("/queue/item-", b"x", sequence=True).rpartition("/")[2] for _ in range(50)}
    server.kill()
    server.start()
    assert set(client.retry(client.get_children, "/queue")) == told
