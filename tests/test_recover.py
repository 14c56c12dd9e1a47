"""`znoded recover`: what the operator sees and may do, and a whole cell that goes on from one member."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.cell_processes import CellProcesses
from tests.server_process import ServerProcess, free_port
from tests.tree.test_checkpoint_tables import Checkpoint
from tests.tree.world import World
from znoded.command import main
from znoded.recover import _StoppedTree
from znoded.still_there import look_for
from znoded.tree.options import TreeOptions
from znoded.tree.tree import Tree
from znoded.zab_raft.cell.server_lines import Member

TOML = """
[auth]
super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
[tree]
reconfig = true
[cell]
heartbeat_ms = 20
election_ms = 200
"""
PATIENCE_S = 20.0

Captured = pytest.CaptureFixture[str]


def table_of(member: ServerProcess) -> dict[int, str]:
    """Member number -> peer address, as in its configuration."""
    text = (member.data_dir.parent / "member.toml").read_text()
    return {int(number): peer for number, peer in re.findall(r"cell\.members\.(\d)\]\npeer = \"([^\"]+)\"", text)}


@contextmanager
def client_of(member: ServerProcess, **options: object) -> Iterator[KazooClient]:
    client = KazooClient(member.address, timeout=20, **options)
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


def wait_for(member: ServerProcess, line: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while line not in member.log_path.read_text():
        assert time.monotonic() < deadline_s, f"there is no {line!r} in the log:\n{member.log_path.read_text()}"
        time.sleep(0.05)


def wait_until_all_vote(member: ServerProcess) -> None:
    """Each member votes only once it has caught up."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{member.admin_port}/members") as answer:
            members = json.load(answer)["members"]
        if all(each["phase"] == "voter" and not each["blocks"] for each in members):
            return
        assert time.monotonic() < deadline_s, members
        time.sleep(0.05)


def ended(member: ServerProcess) -> int:
    """The exit status of a process that ends by itself."""
    assert member._process is not None
    member._process.wait(PATIENCE_S)
    return member.stop()


@pytest.mark.slow
def test_a_cell_goes_on_from_one_member(tmp_path: Path, capsys: Captured) -> None:
    cell = CellProcesses(tmp_path, lambda _number: TOML)
    first, second, third = cell
    with cell:
        client = KazooClient(third.address, timeout=20)
        client.start()
        client.create("/kept", b"data")
        client.create("/owned", ephemeral=True)
        before = client.exists("/owned")
        for member in cell:
            member.kill()
        path = str(third.data_dir)

        assert main(["recover", path]) == 0
        shown = capsys.readouterr().out
        assert f"{path}: member 3, raft id 3, of cell " in shown
        assert re.search(r"^last entry     index \d+ of term \d+$", shown, re.MULTILINE)
        assert re.search(r"^last command   \d{4}-.* 0 h 0 min \d+ s ago$", shown, re.MULTILINE)
        assert "1 sessions" in shown
        assert f"  server.1={table_of(third)[1]}:" in shown
        assert f"znoded recover {path} --give-up 1,2" in shown
        meta = (third.data_dir / "meta").read_bytes()

        assert main(["recover", path, "--give-up", "1"]) == 1
        assert "the other members are 1,2, not 1" in capsys.readouterr().err
        host, port = table_of(third)[2].split(":")
        with socket.create_server((host, int(port))):
            assert main(["recover", path, "--give-up", "1,2"]) == 1
            refusal = capsys.readouterr().err
            assert f"  member 2: something answers at {host}:{port}\n" in refusal
            assert "stop those that answer first, and for good" in refusal
            assert main(["recover", path]) == 0
            assert "--give-up" not in capsys.readouterr().out
        assert (third.data_dir / "meta").read_bytes() == meta

        assert main(["recover", path, "--give-up", "2,1"]) == 0
        assert "Member 3 is the only voter of a new cell" in capsys.readouterr().out
        third.start()
        wait_for(third, "was begun anew on")
        assert cell.leader() is third
        assert client.retry(client.get, "/kept")[0] == b"data"
        assert client.exists("/owned").ephemeralOwner == before.ephemeralOwner == client.client_id[0]
        assert client.set("/kept", b"new").mzxid > before.czxid
        config, _stat = client.get("/zookeeper/config")
        assert re.fullmatch(rb"server\.3=[^\n]+\nversion=[0-9a-f]+", config)
        client.stop()
        client.close()

        # The old members come back with their disks: a majority of the old cell. It ends.
        for member in (first, second):
            member.launch()
        for member in (first, second):
            wait_for(member, "had member 3 go on without it. Empty the data directory of this member")
            assert member.end(signal.SIGCONT) == 1  # a signal that does nothing: it ends by itself
        wait_for(third, "refused: the other side says: member 3 is of cell")

        with client_of(third, auth_data=[("digest", "super:test")]) as operator:
            for member, number in ((first, 1), (second, 2)):
                member.data_dir.rename(member.data_dir.with_name("old"))
                peer = f"{table_of(third)[number]}:{9000 + number}"
                operator.reconfig(joining=f"server.{number}={peer};{member.address}", leaving=None, new_members=None)
                member.start()
            with client_of(second) as other:
                other.sync("/kept")
                assert other.get("/kept")[0] == b"new"
            wait_until_all_vote(third)
            third.kill()
            assert cell.leader() in (first, second)


@pytest.mark.slow
def test_a_member_of_a_cell_that_has_its_majority_is_refused(tmp_path: Path, capsys: Captured) -> None:
    """Whoever looks at one member that is down must not end the cell that goes on without it."""
    cell = CellProcesses(tmp_path, lambda _number: TOML)
    with cell:
        leader = cell.leader()
        down = next(member for member in cell if member is not leader)
        down.kill()
        meta = (down.data_dir / "meta").read_bytes()
        numbers = [number for number, member in enumerate(cell, 1) if member is not down]
        give_up = ",".join(map(str, numbers))

        assert main(["recover", str(down.data_dir), "--give-up", give_up]) == 1
        refusal = capsys.readouterr().err
        assert f"at {leader.address} it says that it is a leader" in refusal
        assert "it says that it is a follower" in refusal
        assert (
            f"Member {list(cell).index(leader) + 1} leads: the cell has its majority and needs no recovery" in refusal
        )
        assert main(["recover", str(down.data_dir)]) == 0
        shown = capsys.readouterr().out
        assert "needs no recovery" in shown
        assert "--give-up" not in shown
        assert (down.data_dir / "meta").read_bytes() == meta
        assert not (down.data_dir / "renewals").exists()
        down.start()


def words_server(answer: bytes) -> tuple[socket.socket, str]:
    """Answers one connection, as the clients' listener of a member does, and closes it."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        connection.recv(4)
        connection.sendall(answer)
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    return server, f"127.0.0.1:{server.getsockname()[1]}"


def test_a_member_is_found_by_what_it_tells_clients_when_its_peers_cannot_reach_it() -> None:
    server, address = words_server(b"Zookeeper version: 3.9.5\nZxid: 0x5\nMode: leader\nNode count: 5\n")
    with server:
        sign = look_for(Member(2, closed_address(), address))
    assert sign is not None
    assert sign.leads
    assert not sign.peer_answers
    assert sign.text == f"member 2: at {address} it says that it is a leader"


def test_what_listens_for_clients_and_says_nothing_may_be_a_balancer() -> None:
    server, address = words_server(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with server:
        assert look_for(Member(2, closed_address(), address)) is None


def test_a_member_that_is_gone_gives_no_sign() -> None:
    assert look_for(Member(2, closed_address(), closed_address())) is None
    assert look_for(Member(2, closed_address(), "")) is None


def closed_address() -> str:
    return f"127.0.0.1:{free_port()}"


def test_what_is_no_data_directory_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert main(["recover", str(tmp_path / "nowhere")]) == 1
    assert "is no data directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_lone_member_is_refused(tmp_path: Path, capsys: Captured) -> None:
    with ServerProcess(tmp_path) as member:
        assert main(["recover", str(member.data_dir)]) == 1
        assert "is held by another process" in capsys.readouterr().err
    assert main(["recover", str(member.data_dir)]) == 1
    assert "belongs to a member that is alone" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_user_is_refused(tmp_path: Path, capsys: Captured) -> None:
    os.chown(tmp_path, 65534, 65534)
    assert main(["recover", str(tmp_path)]) == 1
    assert "run this as that user, as the member runs" in capsys.readouterr().err


def test_a_cell_of_one_needs_no_recovery(tmp_path: Path, capsys: Captured) -> None:
    cell = CellProcesses(tmp_path, lambda _number: TOML, size=1)
    with cell:
        cell.leader()
    assert main(["recover", str(cell[0].data_dir), "--give-up", "2"]) == 1
    assert "member 1 is the only voter: it needs nobody else, start it" in capsys.readouterr().err


def test_the_history_is_kept_for_as_long_as_the_member_was_told_to() -> None:
    """Who recovers may want to see what happened."""
    hour_ms = 3_600_000
    options = TreeOptions(history_retention_ms=48 * hour_ms)
    house = World(options)
    client = house.session()
    client.create(b"/a")
    for _ in range(2_000):
        client.set(b"/a", b"x" * 600)
    house.now_ms += 5 * hour_ms
    client.set(b"/a", b"later")
    store = Checkpoint()
    house.tree.history.read_stored = store.read_stored
    for _ in range(2):
        store.write(house.tree.take_changes())
    stopped = _StoppedTree()
    stopped.load(store.read)
    stopped.apply_batch(stopped.tree.zxid + 1, [house.log[-1]])
    store.write(stopped.take_changes())
    again = Tree(options)
    again.history.read_stored = store.read_stored
    again.load(store.read)
    assert again.history.oldest == house.tree.history.oldest
