"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.server_process import ServerProcess

# A busy machine is no failure: time is not judged, and what fails prints how to repeat it.
settings.register_profile("znoded", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("znoded")

#: What looks like a PEM file with a block of this label.
PEM = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


@pytest.fixture
def pem_files(tmp_path: Path) -> dict[str, str]:
    """The three files of [client.tls]."""
    labels = {"certificate": "CERTIFICATE", "private_key": "RSA PRIVATE KEY", "client_ca": "CERTIFICATE"}
    for name, label in labels.items():
        (tmp_path / name).write_text(PEM.format(label))
    return {name: str(tmp_path / name) for name in labels}


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A fresh directory, in memory where there is such a place: for tests that sync often and pull no plug."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def znoded_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts real servers: `server = znoded_server(toml)` runs `twistd -n znoded` and returns when it serves.

    `toml` is any configuration (none by default); data directory, client port and admin port are the fixture's. Each
    call starts one more server in a directory of its own. A `ServerProcess` has `address`, `port`, `admin_port`,
    `data_dir`, `log_path`, `pid`, `stop()`, `kill()` and `start()` to run it again on its data. What still runs when
    the test ends is ended by its pid. For a server shared by a module or a session, use `ServerProcess` as a context
    manager.
    """
    with ExitStack() as servers:

        def start(toml: str = "") -> ServerProcess:
            directory = tmp_path / f"server-{len(list(tmp_path.iterdir()))}"
            directory.mkdir()
            return servers.enter_context(ServerProcess(directory, toml))

        yield start
