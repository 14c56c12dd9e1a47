"""Curator's recipes and features on one member, on a cell of three, and on a cell whose leader is killed at times."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.cell_processes import CellProcesses
from tests.interop.conftest import Parts
from tests.interop.java_programs import VARIANTS, class_path, compile_java
from tests.interop.member import SUPER_PASSWORD, cell, member
from tests.interop.programs import Conversation, Report, check_names, run_checks
from tests.server_process import ROOT
from znoded.recipes import FencedLock

HERE = Path(__file__).parent
CHECKS = check_names(HERE, "*Checks.java", r'checks\.add\("(\w+)"')
KILL_INTERVAL_S = 10.0
ACQUIRE_TIMEOUT_S = 20.0
LOCK_DELAY_S = 4
POLL_S = 0.02
# A check may lose to a kill, as it would with any server: Curator does not know if what it sent was done. Not so often.
TRIES_WHILE_LEADERS_ARE_KILLED = 2


@pytest.fixture(scope="module", params=VARIANTS)
def java(request: pytest.FixtureRequest, parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a class of our Curator programs, with each variant of the libraries."""
    libraries = class_path(parts, request.param, curator=True)
    return compile_java(parts, libraries, HERE, tmp_path_factory.mktemp("curator-classes"))


@pytest.fixture(scope="module")
def report(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What our Curator program says of its checks."""
    directory = tmp_path_factory.mktemp("curator")
    with member(directory) as server:
        return run_checks([*java, "CuratorProgram", server.address, SUPER_PASSWORD], directory)


@pytest.fixture(scope="module")
def cell_report(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The same, on a cell of three."""
    directory = tmp_path_factory.mktemp("curator-cell")
    with cell(directory) as members:
        return run_checks([*java, "CuratorProgram", members.addresses, SUPER_PASSWORD], directory)


@pytest.fixture(scope="module")
def troubled_report(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The same, while the leader is killed every so often."""
    directory = tmp_path_factory.mktemp("curator-troubled")
    program = [*java, f"-Dtries={TRIES_WHILE_LEADERS_ARE_KILLED}", "CuratorProgram"]
    with cell(directory) as members, killed_leaders(members) as kills:
        report = run_checks([*program, members.addresses, SUPER_PASSWORD], directory)
    assert kills, "the program ended before a leader was killed"
    return report


@contextmanager
def killed_leaders(members: CellProcesses) -> Iterator[list[int]]:
    """In the block, kill the leader every so often and start it again at once. Yields the ports of those killed."""
    ended = threading.Event()
    killed: list[int] = []
    errors: list[Exception] = []

    def kill_leaders() -> None:
        try:
            while not ended.wait(KILL_INTERVAL_S):
                leader = members.leader()
                leader.kill()
                killed.append(leader.port)
                leader.start()
        except Exception as error:
            errors.append(error)

    killer = threading.Thread(target=kill_leaders)
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()
    assert not errors, errors


@pytest.mark.parametrize("name", CHECKS)
def test_curator_on_a_cell(cell_report: Report, name: str) -> None:
    cell_report.expect_ok(name)


@pytest.mark.parametrize("name", CHECKS)
def test_curator_while_leaders_are_killed(troubled_report: Report, name: str) -> None:
    troubled_report.expect_ok(name)


@pytest.mark.parametrize("name", CHECKS)
def test_curator(report: Report, name: str) -> None:
    report.expect_ok(name)


@pytest.mark.parametrize("how", ["terminated", "killed"])
def test_curator_keeps_its_session_over_a_restart(java: list[str], tmp_path: Path, how: str) -> None:
    with member(tmp_path) as server, Conversation([*java, "RestartProgram", server.address]) as program:
        program.wait_for("^ready ")
        if how == "killed":
            server.process.kill()
        else:
            server.process.stop()
        server.process.start()
        program.wait_for("^ok$")


def test_curator_keeps_its_session_when_its_member_is_killed(java: list[str], tmp_path: Path) -> None:
    with cell(tmp_path) as members, Conversation([*java, "RestartProgram", members.addresses]) as program:
        program.wait_for("^ready ")
        port = program.heard[-1].split()[1]
        next(each for each in members if str(each.port) == port).kill()
        program.wait_for("^ok$")


def test_curators_mutex_and_a_fenced_lock_exclude_each_other_and_count_on(java: list[str], tmp_path: Path) -> None:
    with (
        member(tmp_path) as server,
        closed_client(server.address) as client,
        Conversation([*java, "FencingProgram", server.address, "/locks/mixed"]) as program,
    ):
        program.wait_for("^ready$")
        lock = FencedLock(client, "/locks/mixed")
        tokens = []
        for _ in range(2):
            program.say("acquire", r"^token \d+$")
            tokens.append(int(program.heard[-1].split()[1]))
            assert lock.try_acquire() is None
            program.say("release", "^released$")
            with lock.acquire(timeout_s=ACQUIRE_TIMEOUT_S) as lease:
                tokens.append(lease.token)
                program.say("acquire", "^busy$")
        assert tokens == sorted(set(tokens))


def test_a_mutex_stays_taken_for_the_lock_delay_after_its_holders_session_expired(
    java: list[str], tmp_path: Path
) -> None:
    lock = "/locks/delayed"
    with member(tmp_path) as server, closed_client(server.address) as client:
        program = [*java, "FencingProgram", server.address, lock]
        with Conversation(program) as holder, Conversation(program) as heir:
            client.create(f"/zookeeper/lock_delay{lock}", b"%d" % (LOCK_DELAY_S * 1000), makepath=True)
            holder.wait_for("^ready$")
            heir.wait_for("^ready$")
            holder.say("acquire", r"^token \d+$")
            (contender,) = client.get_children(lock)
            holder.kill()
            while contender in client.get_children(lock):
                time.sleep(POLL_S)
            expired_s = time.monotonic()
            assert client.get_children(lock) == [f"kept-{contender}"]
            heir.say("acquire", "^busy$")
            while heir.heard[-1] == "busy":
                heir.say("acquire", r"^(busy|token \d+)$")
            assert time.monotonic() - expired_s > LOCK_DELAY_S - 1
            assert int(heir.heard[-1].split()[1]) > int(holder.heard[-1].split()[1])
            heir.say("release", "^released$")
            heir.say("acquire", r"^token \d+$")  # a release delays nothing


def test_the_helper_for_curator_is_the_one_in_the_documentation() -> None:
    page = (ROOT / "docs" / "fencing.md").read_text()
    helper = (HERE / "FencedMutex.java").read_text().partition("class ")
    assert helper[1] + helper[2] in page


@contextmanager
def closed_client(address: str) -> Iterator[KazooClient]:
    """A client that is closed in the end."""
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
