"""Kills a server under load with SIGKILL, again and again, and compares what it kept with what it acknowledged.

    python -m tests.crash.kill_under_load --rounds 200 --seed 7

Every writer keeps one session through all rounds and has many requests in flight. After each kill, what is there must
be what the first n requests of each writer make, in their order, with n at least the number of acknowledged ones.
Sessions survive with their ephemeral nodes, those of clients that never come back expire.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from pathlib import Path

from tests.crash.raw_client import (
    CREATE,
    EPHEMERAL,
    MULTI,
    PATIENCE_S,
    SET_DATA,
    RawClient,
    Session,
    create_body,
    multi_body,
    set_data_body,
)
from tests.server_process import ServerProcess

TOML = "tick_ms = 500\n[log]\nsegment_bytes = 1048576\ncheckpoint_interval_ms = 200\n"
WRITERS = 6
IN_FLIGHT = 32
WRITER_TIMEOUT_MS = 10_000
LOST_TIMEOUT_MS = 1_000
ACKNOWLEDGED_MOST = 4_000


class Writer:
    """Writes through one session: nodes, pairs of nodes in one multi, and a counter, below a folder for each round."""

    def __init__(self, number: int) -> None:
        self.session = Session(0, bytes(16), 0)
        self.ephemeral = b"/ephemeral-%d" % number
        self.counter = b"/counter-%d" % number
        self.sent = 0
        self.acknowledged = 0
        self._name = b"writer-%d" % number
        self._folder = b""
        self._value_before = b""
        self._client: RawClient

    def connect(self, port: int) -> None:
        """Open the session, or come back to it."""
        known = self.session.id
        self._client = RawClient(port, WRITER_TIMEOUT_MS, self.session)
        assert known in (0, self._client.id), f"session {known:#x} did not survive"
        if not known:
            self._client.create(self.ephemeral, EPHEMERAL)
            self._client.create(self.counter)
        self.session = self._client.session

    def begin_round(self, folder: bytes) -> None:
        self._folder = folder + b"/" + self._name
        self._client.create(self._folder)
        self._value_before = self._client.data(self.counter)
        self.sent = self.acknowledged = 0

    def write_until_killed(self, acknowledged: threading.Semaphore) -> None:
        """Returns when the connection breaks; releases `acknowledged` for every reply."""
        try:
            while True:
                while self.sent - self.acknowledged < IN_FLIGHT:
                    self._client.send(*self._request(self.sent))
                    self.sent += 1
                reply = self._client.receive()
                assert reply.error == 0, reply
                self.acknowledged += 1
                acknowledged.release()
        except OSError:
            self._client.close()
            self.session = self._client.session

    def check(self, client: RawClient) -> None:
        """Compare what the server has with what it acknowledged in this round."""
        found = (client.children(self._folder), client.data(self.counter))
        possible = [self._state_after(requests) for requests in range(self.acknowledged, self.sent + 1)]
        assert found in possible, (
            f"{self._folder!r}: {self.acknowledged} of {self.sent} requests acknowledged, but the server has "
            f"{len(found[0])} nodes (expected {len(possible[0][0])} to {len(possible[-1][0])}) and counter {found[1]!r}"
        )
        assert client.owner(self.ephemeral) == self.session.id, "the ephemeral node of a living session is gone"

    def _request(self, number: int) -> tuple[int, bytes]:
        if number % 4 == 0:
            return SET_DATA, set_data_body(self.counter, self._value(number))
        if number % 4 == 1:
            return MULTI, multi_body(*(self._folder + b"/" + name for name in pair(number)))
        return CREATE, create_body(self._folder + b"/%d" % number, b"x" * 100)

    def _value(self, number: int) -> bytes:
        return self._folder + b" %d" % number

    def _state_after(self, requests: int) -> tuple[set[bytes], bytes]:
        """The children of the folder and the counter after so many requests of this round."""
        names: set[bytes] = set()
        value = self._value_before
        for number in range(requests):
            if number % 4 == 0:
                value = self._value(number)
            elif number % 4 == 1:
                names.update(pair(number))
            else:
                names.add(b"%d" % number)
        return names, value


def pair(number: int) -> list[bytes]:
    return [b"%d-a" % number, b"%d-b" % number]


def kill_once(server: ServerProcess, writers: list[Writer], folder: bytes, acknowledged_least: int) -> int:
    """One round: load, kill, restart, compare. Returns how many writes had been acknowledged."""
    client = RawClient(server.port, LOST_TIMEOUT_MS)
    client.create(folder)
    client.create(folder + b"/lost", EPHEMERAL)
    acknowledged = threading.Semaphore(0)
    for writer in writers:
        writer.connect(server.port)
        writer.begin_round(folder)
    threads = [threading.Thread(target=writer.write_until_killed, args=(acknowledged,)) for writer in writers]
    for thread in threads:
        thread.start()
    for _ in range(acknowledged_least):
        assert acknowledged.acquire(timeout=PATIENCE_S), "the writers got no reply"
    server.kill()
    for thread in threads:
        thread.join()
    client.close()
    server.start()
    check(server.port, writers, folder)
    return sum(writer.acknowledged for writer in writers)


def check(port: int, writers: list[Writer], folder: bytes) -> None:
    client = RawClient(
        port, WRITER_TIMEOUT_MS, Session(0, bytes(16), max(writer.session.last_zxid for writer in writers))
    )
    assert client.id, "the server is behind what its clients have seen"
    for writer in writers:
        writer.check(client)
    # Nobody comes back to the session that was lost in the kill: the watch set by `owner` tells when it has expired.
    if client.owner(folder + b"/lost") is not None:
        client.receive()
        assert client.owner(folder + b"/lost") is None, "the ephemeral node of a lost session is still there"
    client.close()


def run(directory: Path, rounds: int, seed: int) -> int:
    """All rounds on one data directory. Returns how many writes were acknowledged; an error says what was lost."""
    chance = random.Random(seed)
    writers = [Writer(number) for number in range(WRITERS)]
    total = 0
    with ServerProcess(directory, TOML) as server:
        for number in range(rounds):
            try:
                total += kill_once(server, writers, b"/round-%d" % number, chance.randint(1, ACKNOWLEDGED_MOST))
            except BaseException as error:
                error.add_note(f"round {number} of {rounds}, seed {seed}, server log {server.log_path}")
                raise
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a server under load and look for acknowledged writes.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        total = run(Path(directory), arguments.rounds, arguments.seed)
    print(f"{arguments.rounds} kills, seed {arguments.seed}: {total} acknowledged writes, all there")


if __name__ == "__main__":
    main()
