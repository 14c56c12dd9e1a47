"""A reactor of its own for each test, which runs until what the test waits for is so; and members that record."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor

from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.peers.founding import Table, Welcome
from znoded.zab_raft.peers.identity import NO_CELL, NO_RAFT_ID, Identity
from znoded.zab_raft.peers.peers import Peers
from znoded.zab_raft.peers.wire import FrameKind, FrameRecord

T = TypeVar("T")

PATIENCE_S = 10.0
CELL = bytes(range(16))


def incarnation_of(seed: object) -> bytes:
    return hashlib.sha256(str(seed).encode()).digest()[:16]


class Loop:
    """Runs a reactor until a condition holds; it must within `PATIENCE_S`."""

    def __init__(self) -> None:
        self.reactor: Any = EPollReactor()

    def run_until(self, condition: Callable[[], object]) -> None:
        give_up_s = monotonic() + PATIENCE_S
        while not condition():
            assert monotonic() < give_up_s, "it did not come to pass"
            self.reactor.iterate(0.02)

    def result_of(self, deferred: Deferred[T]) -> T:
        results: list[T] = []
        failures: list[BaseException] = []
        deferred.addCallbacks(results.append, lambda failure: failures.append(failure.value))
        self.run_until(lambda: results or failures)
        if failures:
            raise failures[0]
        return results[0]

    def settle(self) -> None:
        """Let everything happen that needs no waiting."""
        for _ in range(20):
            self.reactor.iterate(0)


class Handler:
    """Records what the connections tell."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, FrameKind, FrameRecord]] = []
        self.events: list[tuple[Any, ...]] = []
        self.arrived: list[tuple[InstallSnapshot, str]] = []
        self.roster: dict[int, Welcome] = {}
        self.wants = True

    def received(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> None:
        self.frames.append((raft_id, kind, record))

    def opened(self, raft_id: int) -> None:
        self.events.append(("opened", raft_id))

    def closed(self, raft_id: int) -> None:
        self.events.append(("closed", raft_id))

    def unreachable(self, raft_id: int) -> None:
        self.events.append(("unreachable", raft_id))

    def welcome(self, number: int) -> Welcome | None:
        return self.roster.get(number)

    def wants_snapshot(self, message: InstallSnapshot) -> bool:
        return self.wants

    def snapshot_arrived(self, message: InstallSnapshot, path: str) -> None:
        self.arrived.append((message, path))

    def snapshot_progressed(self, raft_id: int) -> None:
        self.events.append(("progressed", raft_id))

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        self.events.append(("finished", raft_id, delivered))

    def abandoned(self, reason: str) -> None:
        self.events.append(("abandoned", reason))


class Member:
    """A member that has connections and nothing else. Its raft id is its number unless it is given."""

    def __init__(
        self,
        loop: Loop,
        path: Path,
        number: int,
        *,
        raft_id: int | None = None,
        cell: bytes = CELL,
        secret: bytes = b"open sesame",
        incarnation: bytes | None = None,
        port: int = 0,
        **options: Any,
    ) -> None:
        path.mkdir(exist_ok=True)
        blank = cell == NO_CELL
        identity = Identity(
            cell,
            number,
            NO_RAFT_ID if blank else number if raft_id is None else raft_id,
            incarnation or incarnation_of(path),
        )
        self.number = number
        self.handler = Handler()
        self.loop = loop
        self._stopped = False
        self.peers = Peers(
            loop.reactor,
            f"tcp:{port}:interface=127.0.0.1",
            "",
            identity,
            str(path),
            self.handler,
            secret,
            lambda: 0.5,
            **options,
        )
        loop.result_of(self.peers.start())
        listening: Any = self.peers._port
        self.port = listening.getHost().port
        self.address = f"127.0.0.1:{self.port}"
        self.peers._gate.address = self.address

    @property
    def raft_id(self) -> int:
        return self.peers.identity.raft_id

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.loop.result_of(self.peers.stop())


def introduce(*members: Member) -> None:
    """Let them know each other, as a cell."""
    table = {member.raft_id: (member.number, member.address) for member in members}
    for member in members:
        member.peers.set_members(table, max(table))


def connect(loop: Loop, *members: Member) -> None:
    introduce(*members)
    loop.run_until(lambda: all(a.peers.connected(b.raft_id) for a in members for b in members if a is not b))


def table_of(*members: Member, voters: set[int] | None = None, digest: bytes = b"digest") -> Table:
    addresses = {member.number: member.address for member in members}
    return Table(digest, frozenset(voters or addresses), addresses)


def random_path(path: Path) -> Path:
    return path / os.urandom(4).hex()
