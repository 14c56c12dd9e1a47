"""Patroni keeps a PostgreSQL pair available with znoded as its coordination service."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.interop.conftest import Parts
from tests.server_process import ServerProcess, free_port

HOST = "127.0.0.1"
TTL_S = 5
DEATH_TIMEOUT_S = 30
LEADER_ROLES = ("master", "primary")
POSTGRES_USER = "postgres"  # PostgreSQL refuses to run as root
POSTGRES_PROGRAMS = "/usr/lib/postgresql/*/bin/postgres"

CONFIGURATION = """\
scope: pair
name: {name}
restapi:
  listen: {host}:{rest_port}
  connect_address: {host}:{rest_port}
zookeeper:
  hosts: ['{coordinator}']
bootstrap:
  dcs:
    ttl: {ttl_s}
    loop_wait: 1
    retry_timeout: 10
    postgresql:
      use_pg_rewind: true
      parameters:
        wal_log_hints: on
  initdb:
  - encoding: UTF8
  - locale: C
  - auth: trust
watchdog:
  mode: off
postgresql:
  listen: {host}:{postgres_port}
  connect_address: {host}:{postgres_port}
  data_dir: {directory}/data
  bin_dir: {bin_dir}
  pgpass: {directory}/pgpass
  authentication:
    superuser: {{username: postgres, password: trusted}}
    replication: {{username: replicator, password: trusted}}
  parameters:
    unix_socket_directories: {directory}
    fsync: off
    shared_buffers: 16MB
  pg_hba:
  - local all all trust
  - host all all {host}/32 trust
  - host replication all {host}/32 trust
"""


class Node:
    """One PostgreSQL server with the Patroni that manages it."""

    def __init__(self, name: str, directory: Path, coordinator: str, patroni: str, bin_dir: Path) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir(mode=0o700)
        self.rest_port = free_port()
        self.postgres_port = free_port()
        self._command = [patroni, str(self.directory / "patroni.yml")]
        self._psql = [str(bin_dir / "psql"), "-h", HOST, "-p", str(self.postgres_port), "-U", "postgres", "-Atq"]
        self._process: subprocess.Popen[bytes] | None = None
        (self.directory / "patroni.yml").write_text(
            CONFIGURATION.format(
                name=name,
                host=HOST,
                rest_port=self.rest_port,
                postgres_port=self.postgres_port,
                coordinator=coordinator,
                ttl_s=TTL_S,
                directory=self.directory,
                bin_dir=bin_dir,
            )
        )

    def start(self) -> None:
        with (self.directory / "patroni.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                user=POSTGRES_USER,
                group=pwd.getpwnam(POSTGRES_USER).pw_gid,
                extra_groups=[],
                env={"PATH": os.defpath, "HOME": str(self.directory), "LC_ALL": "C.UTF-8"},
            )

    def kill(self) -> None:
        """End Patroni and its PostgreSQL as the loss of their machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            postmaster = os.pidfd_open(int((self.directory / "data" / "postmaster.pid").read_text().split()[0]))
            signal.pidfd_send_signal(postmaster, signal.SIGKILL)
            select.select([postmaster], [], [], DEATH_TIMEOUT_S)
            os.close(postmaster)

    def state(self) -> dict[str, Any]:
        """What Patroni says of its PostgreSQL; {} while it says nothing."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.rest_port}/patroni", timeout=2) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:  # 503, with the same body: it is not running yet
            return dict(json.load(error))
        except OSError:
            return {}

    def leads(self) -> bool:
        state = self.state()
        return state.get("role") in LEADER_ROLES and state.get("state") == "running"

    def follows(self) -> bool:
        """Whether this is a running replica that replays what its leader streams."""
        state = self.state()
        return (
            state.get("role") == "replica"
            and state.get("state") in ("running", "streaming")
            and self.ask("select count(*) from pg_stat_wal_receiver where status = 'streaming'") == "1"
        )

    def last_saw_coordinator_s(self) -> float:
        return float(self.state().get("dcs_last_seen", 0))

    def ask(self, statement: str) -> str | None:
        """What PostgreSQL answers to `statement`; None when it fails."""
        done = subprocess.run([*self._psql, "-c", statement], capture_output=True, text=True, timeout=20, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    def log(self) -> str:
        path = self.directory / "patroni.log"
        return path.read_text(errors="replace")[-20_000:] if path.exists() else ""


def eventually(what: str, holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Poll until `holds()`; fail with `what` after `within_s`."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        time.sleep(0.2)


@pytest.fixture
def coordinator(znoded_server: Callable[..., ServerProcess]) -> ServerProcess:
    return znoded_server()


@pytest.fixture
def pair(parts: Parts, coordinator: ServerProcess) -> Iterator[list[Node]]:
    """Two nodes of one scope: the first is the leader, the second its streaming replica."""
    patroni = parts.program("patroni", "Debian's patroni and python3-kazoo")
    bin_dir = parts.file(POSTGRES_PROGRAMS, "Debian's postgresql-15").parent
    if os.geteuid() != 0:
        parts.missing("only root can become the user postgres, who runs PostgreSQL")
    # Not pytest's tmp_path: that lies below a folder which only root may enter.
    directory = Path(tempfile.mkdtemp(prefix="patroni-"))
    nodes = [Node(name, directory, coordinator.address, patroni, bin_dir) for name in "ab"]
    for path in [directory, *directory.iterdir()]:
        shutil.chown(path, POSTGRES_USER, POSTGRES_USER)
    try:
        nodes[0].start()
        eventually("the first node leads", nodes[0].leads)
        nodes[1].start()
        eventually("the second node follows", nodes[1].follows)
        yield nodes
    finally:
        for node in nodes:
            node.kill()
            print(f"--- Patroni of {node.name}:\n{node.log()}")  # pytest shows it if the test failed
        shutil.rmtree(directory, ignore_errors=True)  # the backends of a killed server may still be leaving


def told_of_checkpoint(coordinator: ServerProcess, name: str) -> bool:
    """Whether the node has told the others that it leads, and that its checkpoint behind the promotion is made."""
    client = KazooClient(hosts=coordinator.address)
    client.start()
    try:
        told = json.loads(client.get(f"/service/pair/members/{name}")[0])
    except NoNodeError:  # it takes the znode away and makes it again
        return False
    finally:
        client.stop()
        client.close()
    return told["role"] in LEADER_ROLES and "checkpoint_after_promote" not in told


def test_the_replica_is_promoted_when_the_leader_dies(pair: list[Node], coordinator: ServerProcess) -> None:
    leader, replica = pair
    assert leader.ask("create table kept (value int); insert into kept values (1)") is not None
    eventually("the row is replicated", lambda: replica.ask("select value from kept") == "1")
    leader.kill()
    eventually("the replica leads", replica.leads, within_s=TTL_S + 25)
    assert replica.ask("insert into kept values (2)") is not None
    assert replica.ask("select sum(value) from kept") == "3"
    # Patroni 3.0.2 forgets an event that comes while it reads the members, on ZooKeeper as here: `_cluster_loader` sets
    # `_fetch_cluster` last. An old leader that comes back within this second may wait for the checkpoint for ever.
    eventually("the new leader has made its checkpoint", lambda: told_of_checkpoint(coordinator, replica.name))
    leader.start()
    eventually("the old leader follows the new one", leader.follows)
    eventually("the new row is replicated", lambda: leader.ask("select sum(value) from kept") == "3")


def test_a_restart_of_the_coordinator_leaves_the_leader_in_place(pair: list[Node], coordinator: ServerProcess) -> None:
    leader, replica = pair
    before = leader.state()
    coordinator.stop()
    coordinator.start()
    back_s = time.time()
    eventually("Patroni sees znoded again", lambda: all(node.last_saw_coordinator_s() > back_s for node in pair))
    after = leader.state()
    assert leader.leads()
    assert replica.follows()
    # A demotion would have restarted PostgreSQL, a promotion begun a new timeline.
    assert [after[key] for key in ("postmaster_start_time", "timeline")] == [
        before[key] for key in ("postmaster_start_time", "timeline")
    ]
