"""A server with quick sessions, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from tests.recipes.proxy import Proxy
from tests.server_process import ServerProcess

TOML = "tick_ms = 100\n[limits]\nconnections_per_address = 0\n"
#: The longest that the server grants is 2 s.
TIMEOUT_S = 1.0
QUICK_RETRY = {"max_tries": -1, "delay": 0.02, "backoff": 1, "max_delay": 0.05}

Connect = Callable[..., KazooClient]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("recipes"), TOML) as server:
        yield server


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def connect(server: ServerProcess) -> Iterator[Connect]:
    """Makes connected clients, and closes them at the end: `connect(address, timeout_s)`."""
    with ExitStack() as clients:

        def connected(address: str = server.address, timeout_s: float = 2.0) -> KazooClient:
            client = KazooClient(address, timeout=timeout_s, connection_retry=QUICK_RETRY)
            client.start()
            clients.callback(client.close)
            clients.callback(client.stop)
            return client

        yield connected


@pytest.fixture
def client(connect: Connect) -> KazooClient:
    return connect()


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    """A path of the test's own."""
    return f"/{request.node.name.replace('[', '-').replace(']', '')}"
