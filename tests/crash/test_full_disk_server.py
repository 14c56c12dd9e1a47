"""The whole program on a full disk."""

from __future__ import annotations

import time
from pathlib import Path

from tests.crash.full_disk import take_all_room
from tests.crash.raw_client import CREATE, PATIENCE_S, RawClient, create_body
from tests.server_process import ServerProcess

TOML = "[log]\nsegment_bytes = 262144\n"


def create(client: RawClient, number: int) -> int:
    """Returns the error code."""
    return client.call(CREATE, create_body(b"/%d" % number, bytes(5000))).error


def test_full_disk_refuses_writes_and_keeps_serving_reads(disk: Path) -> None:
    with ServerProcess(disk, TOML) as server:
        client = RawClient(server.port, 10_000)
        client.create(b"/node")
        take_all_room(disk / "ballast")
        made = 0
        while not (refusal := create(client, made)):
            made += 1
        assert refusal < 0
        assert client.data(b"/0") == bytes(5000)
        assert len(client.children(b"/")) == made + 2
        (disk / "ballast").unlink()
        deadline_s = time.monotonic() + PATIENCE_S
        while create(client, made):
            assert time.monotonic() < deadline_s, "the server does not recover"
        server.kill()
        server.start()
        client = RawClient(server.port, 10_000)
        assert len(client.children(b"/")) == made + 3


def test_a_restart_on_a_full_disk_serves_reads_to_the_sessions_there_are(disk: Path) -> None:
    with ServerProcess(disk, TOML) as server:
        client = RawClient(server.port, 10_000)
        take_all_room(disk / "ballast")
        made = 0
        while not create(client, made):
            made += 1
        client.close()
        server.kill()
        take_all_room(disk / "more")
        server.start()
        client = RawClient(server.port, 10_000, client.session)
        assert len(client.children(b"/")) == made + 1
        assert create(client, made)
        (disk / "ballast").unlink()
        deadline_s = time.monotonic() + PATIENCE_S
        while create(client, made):
            assert time.monotonic() < deadline_s, "the server does not recover"
