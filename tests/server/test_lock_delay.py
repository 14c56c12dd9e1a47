"""Lock-delay on members: clients of any kind just wait, across a restart and a change of the leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.cell_processes import CellProcesses
from tests.crash.raw_client import RawClient
from tests.server.harness import House, create
from tests.server_process import ServerProcess
from znoded.server import housekeeping
from znoded.tree.proposals import expire_session

TOML = "tick_ms = 100\n"
TIMEOUT_MS = 500
DELAY_MS = 2_000
PATIENCE_S = 20.0
EPHEMERAL_SEQUENTIAL = 3
RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.1}


@pytest.fixture
def connect() -> Iterator[Callable[[str], KazooClient]]:
    with ExitStack() as clients:

        def connected(addresses: str) -> KazooClient:
            client = KazooClient(addresses, timeout=2.0, connection_retry=RETRY, command_retry=RETRY)
            client.start()
            clients.callback(client.close)
            clients.callback(client.stop)
            return client

        yield connected


def fall_silent_with_the_lock(client: KazooClient, port: int) -> float:
    """Somebody takes the lock, which has a delay, and is not heard of again: when that was."""
    client.create("/zookeeper/lock_delay/lock", b"%d" % DELAY_MS, makepath=True)
    client.create("/lock")
    holder = RawClient(port, TIMEOUT_MS)
    holder.create(b"/lock/vanished__lock__", EPHEMERAL_SEQUENTIAL)
    silent_s = time.monotonic()
    holder.close()
    return silent_s


def expect_delay(client: KazooClient, silent_s: float) -> None:
    """A plain Kazoo lock is not to be had before both the session's timeout and the delay are over."""
    assert client.Lock("/lock").acquire(timeout=PATIENCE_S)
    assert time.monotonic() - silent_s > (TIMEOUT_MS + DELAY_MS) / 1000


def test_a_lock_is_free_a_delay_after_its_holder_expired(
    znoded_server: Callable[..., ServerProcess], connect: Callable[[str], KazooClient]
) -> None:
    server = znoded_server(TOML)
    client = connect(server.address)
    expect_delay(client, fall_silent_with_the_lock(client, server.port))


def test_a_delay_goes_on_behind_a_restart(
    znoded_server: Callable[..., ServerProcess], connect: Callable[[str], KazooClient]
) -> None:
    server = znoded_server(TOML)
    client = connect(server.address)
    silent_s = fall_silent_with_the_lock(client, server.port)
    wait_until_it_is_kept(client)
    server.kill()
    server.start()
    expect_delay(client, silent_s)


def test_a_delay_goes_on_under_another_leader(tmp_path: Path, connect: Callable[[str], KazooClient]) -> None:
    with CellProcesses(tmp_path, lambda _number: TOML) as cell:
        leader = cell.leader()
        client = connect(",".join(member.address for member in cell if member is not leader))
        silent_s = fall_silent_with_the_lock(client, next(member for member in cell if member is not leader).port)
        wait_until_it_is_kept(client)
        leader.kill()
        expect_delay(client, silent_s)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("wall_ms", [1 << 60, 0])
def test_a_delay_ends_by_the_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch, leads: bool, wall_ms: int) -> None:
    house = House()
    monkeypatch.setattr(house.member, "monotonic_ms", lambda: round(house.clock.seconds() * 1000))
    monkeypatch.setattr(type(house.member), "ends_sessions", leads)
    holder, other = house.client(), house.client()
    other.send(create(1, b"/zookeeper/lock_delay"), create(2, b"/zookeeper/lock_delay/lock", b"%d" % DELAY_MS))
    other.send(create(3, b"/lock"))
    holder.send(create(4, b"/lock/x__lock__", flags=EPHEMERAL_SEQUENTIAL))
    house.replica.commit()
    attach = house.member.tree.sessions[holder.session_id].attach
    house.member.propose(expire_session(0, holder.session_id, attach, house.replica.term))
    house.replica.commit()
    assert list(house.member.tree.kept) == [b"/lock/kept-x__lock__0000000000"]
    monkeypatch.setattr(housekeeping, "wall_ms", lambda: wall_ms)
    house.clock.advance(housekeeping.DELAYS_LOOK_S)
    house.clock.advance(DELAY_MS / 1000 - 0.001)
    assert house.replica.collected == []
    monkeypatch.setattr(type(house.member), "ends_sessions", True)  # it leads now, and knows since when
    house.clock.advance(housekeeping.DELAYS_LOOK_S)
    house.replica.commit()
    assert not house.member.tree.kept


def wait_until_it_is_kept(client: KazooClient) -> None:
    """The lock's znode gets another name when its session ends."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not client.get_children("/lock")[0].startswith("kept-"):
        assert time.monotonic() < deadline_s, "the session does not expire"
        time.sleep(0.05)
