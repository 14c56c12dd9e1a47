"""The connections between the members of a test's cell: in order, with a delay, and cut when the test says so."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import lmdb
from twisted.internet.defer import Deferred, succeed

from znoded.zab_raft.checkpoint import DATA_FILE, CheckpointSource
from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.peers.founding import Answer, Blank, Decision, Denied, Found, Join, Table, decide
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler
from znoded.zab_raft.peers.snapshot_send import SnapshotSource
from znoded.zab_raft.peers.wire import FrameKind, FrameRecord, decode_frame, encode_frame

if TYPE_CHECKING:
    from tests.zab_raft.pump import PumpReactor

DELAY_S = 0.001
LENGTH_BYTES = 4


class Network:
    """Who can reach whom. `cuts` are ordered pairs of member numbers."""

    def __init__(self, reactor: PumpReactor, directory: Path) -> None:
        self.reactor = reactor
        self.cuts: set[tuple[int, int]] = set()
        self.ends: dict[int, SimulatedPeers] = {}
        self.sent: list[tuple[int, int, FrameKind, FrameRecord]] = []
        self.snapshots_work = True
        self.snapshot_delay_s = DELAY_S
        self._directory = directory
        self._numbers = itertools.count(1)

    def end_of(self, raft_id: int) -> SimulatedPeers | None:
        return next((end for end in self.ends.values() if end.identity.raft_id == raft_id), None)

    def reaches(self, sender: SimulatedPeers, receiver: SimulatedPeers) -> bool:
        numbers = sender.identity.number, receiver.identity.number
        return sender.is_open and receiver.is_open and numbers not in self.cuts

    def cut(self, *numbers: int) -> None:
        """Part these members from all others, without a word."""
        for number in numbers:
            for other in self.ends.keys() - set(numbers):
                self.cuts |= {(number, other), (other, number)}

    def heal(self) -> None:
        """All can talk again, over new connections."""
        self.cuts.clear()
        for end in self.ends.values():
            end.reconnect()

    def die(self, number: int) -> None:
        """The member's process ends: the others see its connections closed."""
        end = self.ends.pop(number)
        end.is_open = False
        for other in self.ends.values():
            if (number, other.identity.number) not in self.cuts:
                self.reactor.callLater(DELAY_S, other.closed, end.identity.raft_id)

    def copy(self, source: SnapshotSource) -> str:
        """Write all that a source has to a new directory, as the receiver of a stream does."""
        path = self._directory / f"incoming-{next(self._numbers)}"
        path.mkdir()
        with lmdb.open(str(path), max_dbs=64) as environment:
            for table in source.tables():
                handle = environment.open_db(table)
                after = b""
                while items := source.items(table, after, 3):
                    with environment.begin(write=True) as transaction:
                        for key, value in items:
                            transaction.put(key, value, db=handle)
                    after = items[-1][0]
        assert (path / DATA_FILE).exists()
        return str(path)

    def forget(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)


class SimulatedPeers:
    """The `Peers` of one member."""

    def __init__(self, network: Network, identity: Identity, handler: PeerHandler) -> None:
        self.network = network
        self.identity = identity
        self.handler = handler
        self.members: Mapping[int, tuple[int, str]] = {}
        self.is_open = False
        self._generation = 0

    def start(self) -> Deferred[None]:
        self.is_open = True
        self.network.ends[self.identity.number] = self
        self.reconnect()
        return succeed(None)

    def stop(self) -> Deferred[None]:
        if self.is_open:
            self.network.die(self.identity.number)
        return succeed(None)

    def adopt(self, identity: Identity) -> None:
        self.identity = identity

    def set_members(self, members: Mapping[int, tuple[int, str]], highest_id: int) -> None:
        new = members.keys() - self.members.keys()
        self.members = dict(members)
        for raft_id in new:
            self.network.reactor.callLater(DELAY_S, self._tell_opened, raft_id)

    def reconnect(self) -> None:
        self._generation += 1
        for raft_id in self.members:
            self.network.reactor.callLater(DELAY_S, self._tell_opened, raft_id)
        for other in self.network.ends.values():
            self.network.reactor.callLater(DELAY_S, other._tell_opened, self.identity.raft_id)

    def closed(self, raft_id: int) -> None:
        if self.is_open:
            self.handler.closed(raft_id)

    def _tell_opened(self, raft_id: int) -> None:
        if self.is_open and self.connected(raft_id):
            self.handler.opened(raft_id)

    def connected(self, raft_id: int) -> bool:
        other = self.network.end_of(raft_id)
        return raft_id in self.members and other is not None and self.network.reaches(self, other)

    def send(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> bool:
        if not self.connected(raft_id):
            return False
        frame = encode_frame(kind, record)
        self.network.sent.append((self.identity.raft_id, raft_id, kind, record))
        self.network.reactor.callLater(DELAY_S, self._deliver, raft_id, frame[LENGTH_BYTES:])
        return True

    def _deliver(self, raft_id: int, payload: bytes) -> None:
        other = self.network.end_of(raft_id)
        if other is not None and self.network.reaches(self, other) and self.identity.raft_id in other.members:
            other.handler.received(self.identity.raft_id, *decode_frame(payload))

    def send_snapshot(self, message: InstallSnapshot, source: SnapshotSource) -> None:
        assert (message.snapshot.index, message.snapshot.term) == (source.index, source.term)
        other = self.network.end_of(message.to)
        path = self.network.copy(source)
        cast(CheckpointSource, source).close()
        arrives = other is not None and self.network.snapshots_work and other.handler.wants_snapshot(message)
        self.network.reactor.callLater(self.network.snapshot_delay_s, self._arrive, message, path, arrives)

    def end_snapshots(self) -> None:
        """A stream takes no time here: there is none to end."""

    def _arrive(self, message: InstallSnapshot, path: str, arrives: bool) -> None:
        other = self.network.end_of(message.to)
        arrives = arrives and other is not None and self.network.reaches(self, other)
        if arrives and other is not None:
            other.handler.snapshot_arrived(message, path)
        if self.is_open:
            self.handler.snapshot_finished(message.to, arrives)

    def enter_cell(self, table: Table) -> Deferred[Decision]:
        decided: Deferred[Decision] = Deferred()
        self._ask(table, decided)
        return decided

    def _ask(self, table: Table, decided: Deferred[Decision]) -> None:
        answers = {
            number: end.answer(self.identity.number, table)
            for number, end in self.network.ends.items()
            if end is not self and self.network.reaches(self, end)
        }
        decision = decide(self.identity.number, table, answers)
        if isinstance(decision, Found | Join):
            decided.callback(decision)
        elif self.is_open:
            self.network.reactor.callLater(0.1, self._ask, table, decided)

    def answer(self, number: int, table: Table) -> Answer:
        if self.identity.blank:
            return Blank(table.digest)
        return self.handler.welcome(number) or Denied(0, f"there is no member {number}")
