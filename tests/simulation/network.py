"""The connections between simulated members, as `Peers` makes them: one for each ordered pair, frames in order on each.

A frame is late, or lost together with its connection; those of different connections overtake each other. While a way
is cut, what is sent on it stays under way: when the cut ends it arrives late, or the connection is found broken. The
end of a process is seen by the others at once, that of a machine only when somebody speaks to it again.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import lmdb
from twisted.internet.defer import Deferred, succeed

from tests.simulation.world import Process, World
from znoded.zab_raft.checkpoint import CheckpointSource
from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.peers.founding import Answer, Blank, Decision, Denied, Found, Join, Table, decide
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler
from znoded.zab_raft.peers.snapshot_send import SnapshotSource
from znoded.zab_raft.peers.wire import FrameKind, FrameRecord, decode_frame, encode_frame

LENGTH_BYTES = 4
SNAPSHOT_GIVE_UP_S = 1.0
ASK_AGAIN_S = 0.1
SNAPSHOT_ITEMS = 1000

OnFrame = Callable[["WorldPeers", int, FrameKind, FrameRecord], None]


class Weather:
    """How bad the network is just now."""

    def __init__(self) -> None:
        self.late = 0.0
        self.no_room = 0.0
        self.repeat = 0.0
        self.snapshots_work = True


class Network:
    """Who can reach whom. `cuts` are ordered pairs of member numbers.

    `sent` and `received` are called with each frame as it leaves and when it arrives; the latter has to deliver it.
    """

    def __init__(self, world: World, directory: Path, sent: OnFrame, received: OnFrame) -> None:
        self.world = world
        self.weather = Weather()
        self.cuts: set[tuple[int, int]] = set()
        self.ends: dict[int, WorldPeers] = {}
        self.sent = sent
        self.received = received
        #: What each member keeps on its disk: the first incarnation that it saw of each raft id.
        self.incarnations: dict[int, dict[int, bytes]] = {}
        #: When a way was last cut or opened, or a connection lost.
        self.trouble_s = 0.0
        self._directory = directory
        self._snapshots = itertools.count(1)

    def end_of(self, raft_id: int) -> WorldPeers | None:
        return next((end for end in self.ends.values() if end.identity.raft_id == raft_id), None)

    def is_cut(self, one: int, other: int) -> bool:
        """Whether no connection can be made between these members."""
        return (one, other) in self.cuts or (other, one) in self.cuts

    def cut(self, *ways: tuple[int, int]) -> None:
        self.trouble_s = self.world.now_s
        self.cuts.update(ways)

    def heal(self) -> None:
        """All ways are open: what was under way arrives, or turns out to be lost."""
        self.cuts.clear()
        self.trouble_s = self.world.now_s
        for link in self.links():
            if link.held:
                if self.world.odds(0.5):
                    link.release()
                else:
                    link.break_off()

    def links(self) -> list[Link]:
        return [link for end in self.ends.values() for link in end.links.values() if link.is_open]

    def leave(self, end: WorldPeers, is_heard: bool) -> None:
        """A process ended. `is_heard`: its machine is there, and closes its connections."""
        end.is_open = False
        if self.ends.get(end.identity.number) is end:
            del self.ends[end.identity.number]
        for link in end.links.values():
            if link.is_open and is_heard:
                link.close_here()
        if is_heard:
            for link in self.links():
                if link.other is end and not self.is_cut(link.owner.number, end.number):
                    self.world.at(self.delay_s(), f"{link.name} reset", link.lose)

    def delay_s(self) -> float:
        chance = self.world.chance
        if self.weather.late and chance.random() < self.weather.late:
            return chance.uniform(0.005, 0.3)
        return chance.uniform(0.0002, 0.002)

    def copy(self, source: SnapshotSource) -> str:
        """Write all that a source has to a new directory, as the receiver of a stream does."""
        path = self._directory / f"incoming-{next(self._snapshots)}"
        path.mkdir()
        with lmdb.open(str(path), max_dbs=64, sync=False) as environment:
            for table in source.tables():
                handle = environment.open_db(table)
                with environment.begin(write=True) as transaction:
                    after = b""
                    while items := source.items(table, after, SNAPSHOT_ITEMS):
                        for key, value in items:
                            transaction.put(key, value, db=handle)
                        after = items[-1][0]
        return str(path)


class Link:
    """Frames from one member to another, in order, as long as the connection lasts."""

    def __init__(self, owner: WorldPeers, raft_id: int) -> None:
        self.owner = owner
        self.raft_id = raft_id
        self.name = f"{owner.number}->r{raft_id}"
        self.is_open = False
        self.is_dropped = False
        self.other: WorldPeers
        self.held: deque[bytes] = deque()
        self._connection = 0
        self._last_arrival_s = 0.0
        self._network = owner.network
        self._is_dialling = False

    def dial(self, delay_s: float) -> None:
        """Try to connect, again and again."""
        if not self._is_dialling and not self.is_open:
            self._is_dialling = True
            self._network.world.at(delay_s, f"{self.name} dials", self._try)

    def _try(self) -> None:
        self._is_dialling = False
        if self.is_dropped or self.is_open or not self.owner.is_open:
            return
        other = self._network.end_of(self.raft_id)
        reachable = other is not None and not self._network.is_cut(self.owner.number, other.number)
        if other is None or not reachable or other.process.is_paused or not other.lets_in(self.owner.identity):
            self.dial(self._network.world.chance.uniform(0.05, 0.5))
            return
        self.other, self.is_open = other, True
        self._connection += 1
        self.held.clear()
        other.process.run(partial(other.link_accepted, self.owner))
        self.owner.process.run(partial(self.owner.link_opened, self.raft_id))

    def send(self, frame: bytes) -> None:
        world = self._network.world
        arrival_s = max(world.now_s + self._network.delay_s(), self._last_arrival_s)
        self._last_arrival_s = arrival_s
        world.at_time(arrival_s, self.name, partial(self._arrive, self._connection, frame))

    def _arrive(self, connection: int, frame: bytes) -> None:
        if connection != self._connection or not self.is_open:
            return
        if self.held or (self.owner.number, self.other.number) in self._network.cuts:
            self.held.append(frame)
        elif self.other.is_open:
            self._deliver(frame)
        elif self.other.number in self._network.ends:
            self.lose()  # another process answers that it knows no such connection

    def _deliver(self, frame: bytes) -> None:
        raft_id = self.owner.identity.raft_id
        self.other.process.run(partial(self.other.take, raft_id, frame[LENGTH_BYTES:]))

    def release(self) -> None:
        """The cut is over, and all that was sent meanwhile arrives."""
        held, self.held = self.held, deque()
        for frame in held:
            self._arrive(self._connection, frame)

    def lose(self) -> None:
        """The connection is broken, and both sides see it."""
        if self.is_open:
            self.close_here()
            if self.owner.is_open:
                self.owner.process.run(partial(self.owner.link_lost, self.raft_id, True))
                self.dial(self._network.world.chance.uniform(0.02, 0.1))

    def break_off(self) -> None:
        """The owner's side closes it, or the network breaks it."""
        self.lose()

    def close_here(self) -> None:
        """The owner closes it, or is gone: the other one sees that, if it can."""
        self.is_open = False
        self._network.trouble_s = self._network.world.now_s
        other, owner = self.other, self.owner
        if other.is_open and not self._network.is_cut(owner.number, other.number):
            raft_id = owner.identity.raft_id
            self._network.world.at(
                self._network.delay_s(),
                f"{self.name} closed",
                lambda: other.process.run(partial(other.link_gone, raft_id)),
            )
        elif other.is_open:
            other.incoming.discard(owner.identity.raft_id)


class WorldPeers:
    """The `Peers` of one process."""

    def __init__(self, network: Network, process: Process, identity: Identity, handler: PeerHandler) -> None:
        self.network = network
        self.process = process
        self.identity = identity
        self.handler = handler
        self.members: Mapping[int, tuple[int, str]] = {}
        self.links: dict[int, Link] = {}
        self.incoming: set[int] = set()
        self.is_open = False
        self._highest_id = 0
        self._absent: set[int] = set()

    @property
    def number(self) -> int:
        return self.identity.number

    # ---- Peers

    def start(self) -> Deferred[None]:
        self.is_open = True
        self.network.ends[self.number] = self
        return succeed(None)

    def stop(self) -> Deferred[None]:
        self.network.leave(self, is_heard=True)
        return succeed(None)

    def adopt(self, identity: Identity) -> None:
        self.identity = identity

    def set_members(self, members: Mapping[int, tuple[int, str]], highest_id: int) -> None:
        self.members, self._highest_id = dict(members), highest_id
        for raft_id in members:
            self._add_link(raft_id)
        for raft_id, link in list(self.links.items()):
            if raft_id not in members and raft_id <= highest_id:
                del self.links[raft_id]
                link.is_dropped = True
                if link.is_open:
                    link.close_here()

    def connected(self, raft_id: int) -> bool:
        link = self.links.get(raft_id)
        return link is not None and link.is_open

    def send(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> bool:
        link = self.links.get(raft_id)
        if link is None or not link.is_open:
            return False
        network = self.network
        network.sent(self, raft_id, kind, record)
        if kind is not FrameKind.TELL and network.weather.no_room and network.world.odds(network.weather.no_room):
            if kind is not FrameKind.RAFT:
                network.world.at(0, f"{link.name} is full", link.break_off)
            return False
        frame = encode_frame(kind, record)
        network.world.digest.update(frame)
        link.send(frame)
        if kind is FrameKind.RAFT and network.weather.repeat and network.world.odds(network.weather.repeat):
            link.send(frame)
        return True

    def end_snapshots(self) -> None:
        """A stream that is under way ends by itself."""

    def send_snapshot(self, message: InstallSnapshot, source: SnapshotSource) -> None:
        assert (message.snapshot.index, message.snapshot.term) == (source.index, source.term)
        path = self.network.copy(source)
        cast(CheckpointSource, source).close()
        delay_s = self.network.world.chance.uniform(0.005, 0.3)
        self.network.world.at(delay_s, "snapshot", partial(self._snapshot_arrives, message, path))

    def enter_cell(self, table: Table) -> Deferred[Decision]:
        decided: Deferred[Decision] = Deferred()
        self.process.at(0.001, partial(self._ask, table, decided), "asks")
        return decided

    # ---- what the network does

    def lets_in(self, other: Identity) -> bool:
        """Whether the other member may connect to this one."""
        if self.identity.blank or other.blank or other.cell != self.identity.cell:
            return False
        if other.raft_id not in self.members and other.raft_id <= self._highest_id:
            return False
        return self._is_known(other)

    def link_accepted(self, other: WorldPeers) -> None:
        raft_id = other.identity.raft_id
        self.incoming.add(raft_id)
        self._absent.discard(raft_id)
        self._add_link(raft_id)
        self.links[raft_id].dial(0.0005)

    def link_opened(self, raft_id: int) -> None:
        self._absent.discard(raft_id)
        self.handler.opened(raft_id)

    def link_lost(self, raft_id: int, by_other: bool) -> None:
        self.handler.unreachable(raft_id)
        if by_other and raft_id not in self.incoming:
            self._report_closed(raft_id)

    def link_gone(self, raft_id: int) -> None:
        """A connection to here was closed."""
        self.incoming.discard(raft_id)
        self._report_closed(raft_id)

    def take(self, raft_id: int, payload: bytes) -> None:
        """A frame came."""
        if self.is_open and (raft_id in self.members or raft_id > self._highest_id):
            self.network.received(self, raft_id, *decode_frame(payload))

    def _report_closed(self, raft_id: int) -> None:
        if raft_id not in self._absent and self.is_open:
            self._absent.add(raft_id)
            self.handler.closed(raft_id)

    def _add_link(self, raft_id: int) -> None:
        if raft_id != self.identity.raft_id and raft_id not in self.links:
            self.links[raft_id] = link = Link(self, raft_id)
            link.dial(0.0005)

    def _is_known(self, other: Identity) -> bool:
        known = self.network.incarnations.setdefault(self.number, {})
        return known.setdefault(other.raft_id, other.incarnation) == other.incarnation

    def _snapshot_arrives(self, message: InstallSnapshot, path: str) -> None:
        other = self.network.end_of(message.to)
        world = self.network.world
        if (
            other is None
            or self.network.is_cut(self.number, other.number)
            or not self.network.weather.snapshots_work
            or not self.process.is_alive
        ):
            world.at(SNAPSHOT_GIVE_UP_S, "snapshot lost", partial(self._tell_finished, message.to, False))
            return
        receiver = other

        def offer() -> None:
            arrives = receiver.is_open and receiver.handler.wants_snapshot(message)
            if arrives:
                receiver.handler.snapshot_arrived(message, path)
            world.at(self.network.delay_s(), "snapshot done", partial(self._tell_finished, message.to, arrives))

        receiver.process.run(offer)

    def _tell_finished(self, raft_id: int, delivered: bool) -> None:
        if self.is_open:
            self.process.run(partial(self.handler.snapshot_finished, raft_id, delivered))

    # ---- founding and joining

    def _ask(self, table: Table, decided: Deferred[Decision]) -> None:
        answers = {
            number: end.answer(self.identity, table)
            for number, end in sorted(self.network.ends.items())
            if end is not self and not self.network.is_cut(self.number, number) and not end.process.is_paused
        }
        decision = decide(self.number, table, answers)
        if isinstance(decision, Found | Join):
            decided.callback(decision)
        elif self.is_open:
            self.process.at(ASK_AGAIN_S, partial(self._ask, table, decided), "asks again")

    def answer(self, other: Identity, table: Table) -> Answer:
        if self.identity.blank:
            return Blank(table.digest)
        welcome = self.handler.welcome(other.number)
        if welcome is None:
            return Denied(0, f"there is no member {other.number}")
        named = Identity(self.identity.cell, other.number, welcome.raft_id, other.incarnation)
        return welcome if self._is_known(named) else Denied(welcome.raft_id, "another incarnation")
