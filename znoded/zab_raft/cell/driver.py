"""Drives the Raft core of a cell's member with the disk, the other members, the clock and the state machine.

    propose -> own proposals -> leader -> core -> Ready -> log thread, other members -> committed -> state machine

All that comes in during one turn of the reactor is stepped first, then the core is asked once what is to be done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from znoded.zab_raft.cell.candidacy import Candidacy
from znoded.zab_raft.cell.directory import CellDirectory
from znoded.zab_raft.cell.log import Readies, Restart
from znoded.zab_raft.cell.machine import CellMachine
from znoded.zab_raft.cell.membership import promotion, synced
from znoded.zab_raft.cell.options import CellOptions
from znoded.zab_raft.cell.proposals import Proposals
from znoded.zab_raft.cell.read_barrier import ReadBarrier
from znoded.zab_raft.cell.retention import Retention
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.start import Recovered, recover
from znoded.zab_raft.cell.state import Addresses, CellState, read_cell
from znoded.zab_raft.cell.write_queue import WriteQueue
from znoded.zab_raft.checkpoint import Checkpoint, CheckpointSource
from znoded.zab_raft.checkpointer import Checkpointer, Increment, checkpoint_pool
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import Reason, Refused
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    Entry,
    EntryKind,
    InstallSnapshot,
    Message,
    Snapshot,
)
from znoded.zab_raft.core.node import Node, Ready
from znoded.zab_raft.core.raft import Role
from znoded.zab_raft.errors import CheckpointFailed, LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.log import Batch
from znoded.zab_raft.log_thread import LogThread, Reactor, tell_room
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler, Peers
from znoded.zab_raft.peers.wire import FrameKind

_log = Logger()

READIES_IN_TURN = 4
#: What is more, or comes later, is done in the next turn, so that others have theirs: a member that applies a long log
#: still answers heartbeats and probes.
TURN_S = 0.02
#: A leader whose disk is full hands over again after so many election timeouts: the first time may have failed, or it
#: became leader only later. Not sooner: another one's disk may be full, too. One whose disk has been at the same write
#: for so long hands over as well.
BAD_DISK_ELECTIONS = 5

#: Make the connections of a member, given who it is, its data directory and whom to tell.
MakePeers = Callable[[Identity, str, PeerHandler], Peers]
MakeLogThread = Callable[..., LogThread]


class Arrival(NamedTuple):
    """A snapshot that came from the leader, and the directory with its checkpoint."""

    snapshot: Snapshot
    path: str


class CellDriver:
    """The inner part of a `CellReplica`: what happens by itself, once `_run` was called."""

    _peers: Peers
    _store: Checkpoint
    directory: CellDirectory

    def __init__(
        self,
        reactor: Reactor,
        options: CellOptions,
        machine: CellMachine,
        on_fatal: Callable[[BaseException], None],
        make_peers: MakePeers,
        files: Files | None = None,
        make_log_thread: MakeLogThread = LogThread,
        make_pool: Callable[[], ThreadPool] = checkpoint_pool,
        random_below: Callable[[int], int] = random.SystemRandom().randrange,
    ) -> None:
        self.writable = False
        self._reactor = reactor
        self._options = options
        self._machine = machine
        self._on_fatal = on_fatal
        self._make_peers = make_peers
        self._files = files or Files()
        self._make_log_thread = make_log_thread
        self._make_pool = make_pool
        self._random_below = random_below
        self._node: Node | None = None
        self._cell: CellState
        self._closed = False
        self._failed = False
        self._is_sound = True
        self._has_room = True
        self._ticks_without_disk = 0
        self._oldest_write: Readies | None = None
        self._turn_is_due = False
        self._tick_timer: Any = None
        self._candidacy = Candidacy(reactor, self._stand)
        self._retention = Retention(options.log_tail_bytes)
        self._proposals = Proposals(machine, self._synced)
        self._reads = ReadBarrier()
        self._told_leader = (NOBODY, 0)
        self._arrival: Arrival | None = None
        self._is_replaced = False  # the checkpoint, by one that the machine does not have yet

    @property
    def leads(self) -> bool:
        """This member leads, and everything of earlier terms is applied here."""
        return self._node is not None and self._proposals.leads(self._node)

    @property
    def roster(self) -> Roster:
        """The members, as of the last applied entry."""
        return self._machine.roster

    @property
    def configuration(self) -> Configuration:
        """The configuration of the core, as of the last applied entry."""
        return self._cell.configuration

    @property
    def _running(self) -> Node:
        if self._node is None:
            raise Refused(Reason.NO_LEADER, "the member has not entered its cell yet")
        return self._node

    # ---- starting

    def _recover(self) -> Recovered:
        recovered = recover(
            self.directory,
            self._store,
            self._machine,
            self._options.storage.segment_bytes,
            self._options.log_tail_bytes,
            self._options.core,
            self._random_below,
        )
        self._cell = recovered.cell
        return recovered

    def _run(self, recovered: Recovered) -> None:
        self._node = recovered.node
        for write in recovered.writes:
            self._retention.written(*write)
        self._log_thread = self._make_log_thread(
            recovered.log, self._reactor, self._written, self._room_changed, self._fail
        )
        self._write_queue = WriteQueue(self._log_thread.append, self._install)
        self._checkpointer = Checkpointer(
            self._reactor,
            self._options.storage,
            self._store,
            self._machine,
            self._next_increment,
            self._checkpoint_stored,
            self._fail,
            self._make_pool(),
        )
        self._log_thread.start()
        self._checkpointer.start()
        self._members_changed()
        self._schedule_tick()
        self.writable = not self._closed
        if self._running.configuration.voters == {self._running.id}:
            self._running.campaign()  # nobody else could
        self._turn()

    # ---- turns and ticks

    def _wake(self) -> None:
        """Have a turn soon, together with all else that comes in meanwhile."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._reactor.callLater(0, self._woken)

    def _woken(self) -> None:
        self._turn_is_due = False
        self._turn()

    def _turn(self) -> None:
        """A turn at once leaves the one that is due: else both had another one follow, and they would add up."""
        if self._node and not self._failed:
            self._guarded(self._do_turn, self._node)

    def _do_turn(self, node: Node) -> None:
        self._look_at_leader(node)
        self._proposals.hand_over(node, self._peers.send)
        self._proposals.propose(node)
        self._reads.ask(node)
        self._take_readies(node)
        if self._proposals.may_go_on(node):
            self._wake()
        self._look_at_leader(node)

    def _take_readies(self, node: Node) -> None:
        end_s = self._reactor.seconds() + TURN_S
        for _ in range(READIES_IN_TURN):
            if self._failed or not (ready := node.ready()):
                return
            self._take(node, ready)
            if self._reactor.seconds() >= end_s:
                break
        self._wake()

    def _guarded(self, call: Callable[..., object], *arguments: object) -> None:
        """Whatever goes wrong in the core or the machine, this member's state cannot be trusted any more."""
        try:
            call(*arguments)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = self._closed = True
        self.writable = self._is_sound = False
        self._candidacy.withdraw()
        self._on_fatal(error)

    def _schedule_tick(self) -> None:
        # From now, not from when the last one was due: ticks that were missed are not made up for.
        self._tick_timer = self._reactor.callLater(self._options.heartbeat_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._schedule_tick()
        if self._failed:
            return
        node = self._running
        self._guarded(node.tick)
        self._reads.tick()
        if node.checkpoint_wanted and not self._checkpointer.is_stuck:
            self._checkpointer.begin()
        self._promote(node)
        self._look_at_disk()
        self._turn()

    def _stand(self) -> None:
        node = self._running
        if not self._failed and node.leader == NOBODY and node.role in (Role.FOLLOWER, Role.PRE_CANDIDATE):
            self._guarded(node.campaign)
            self._turn()

    # ---- a Ready

    def _take(self, node: Node, ready: Ready) -> None:
        for message in ready.messages:
            self._send(message)
        if ready.must_store:
            self._write_queue.add(ready)
        if ready.committed:
            self._apply(node, ready.committed)
        self._reads.confirmed(ready.reads)
        self._reads.failed(ready.failed_reads)

    def _send(self, message: Message) -> None:
        if isinstance(message, InstallSnapshot):
            self._send_snapshot(message)
        elif not self._peers.send(message.to, FrameKind.RAFT, message) and isinstance(message, AppendRequest):
            self._running.unreachable(message.to)

    def _written(self, batch: Batch) -> None:
        """A write is durable."""
        if self._failed:
            return
        if isinstance(batch, Restart):
            self._guarded(self._restarted, batch)
        elif isinstance(batch, Readies):
            self._retention.written(batch.last_index, len(batch.payload))
            self._guarded(self._write_queue.written, batch)  # first, so that the disk works meanwhile
            for ready in batch.readies:
                self._guarded(self._stored, ready)
        self._turn()

    def _stored(self, ready: Ready) -> None:
        for message in self._running.after_sync(ready):
            self._send(message)
        self._running.stored(ready)

    def _apply(self, node: Node, entries: Sequence[Entry]) -> None:
        """Apply commands in runs: an entry that is none ends one."""
        first, run = entries[0].index, []
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                run.append(entry.data)
                continue
            self._apply_commands(node, first, run)
            first, run = entry.index + 1, []
            if entry.kind is EntryKind.CONFIGURATION:
                self._apply_change(node, entry)
            else:
                self._apply_term_start(node, entry)
        self._apply_commands(node, first, run)
        self._checkpointer.grown()

    def _apply_commands(self, node: Node, first_index: int, commands: list[bytes]) -> None:
        if commands:
            self._machine.apply_batch(first_index, commands)
            node.applied(first_index + len(commands) - 1)
            self._proposals.own.applied(commands)

    def _apply_change(self, node: Node, entry: Entry) -> None:
        command = ConfChange.decode(entry.data).context
        if command:
            self._apply_commands(node, entry.index, [command])
        else:
            node.applied(entry.index)
        self._members_changed()

    def _apply_term_start(self, node: Node, entry: Entry) -> None:
        node.applied(entry.index)
        self._proposals.term_started(node, entry.term)
        self._wake()

    def _members_changed(self) -> None:
        node = self._running
        self._cell = self._cell._replace(configuration=node.configuration)
        addresses = self._addresses
        self._peers.set_members(addresses, max(node.configuration.highest_id, node.id, *addresses))

    @property
    def _addresses(self) -> Addresses:
        """Where the members are, those too that are about to leave."""
        members = self.configuration.members
        if not members:
            return self._cell.addresses  # this one joins, and has no snapshot yet
        return {raft_id: address for raft_id, address in self.roster.addresses.items() if raft_id in members}

    def _is_connected(self, raft_id: int) -> bool:
        return raft_id == self._running.id or self._peers.connected(raft_id)

    def _synced(self) -> frozenset[int]:
        """The members that are there and up to date, as this leader knows."""
        node = self._running
        return synced(node.progress, node.committed_index, self._is_connected)

    def _look_at_leader(self, node: Node) -> None:
        if (node.leader, node.term) == self._told_leader:
            return
        self._told_leader = (node.leader, node.term)
        self._proposals.leader_changed(node)
        if node.role is not Role.LEADER:
            self._peers.end_snapshots()
        if node.leader != NOBODY:
            self._candidacy.withdraw()
            self._wake()
        self._machine.leader_changed(self._number(node.leader), node.term)

    def _promote(self, node: Node) -> None:
        """Let a member vote that is to, once it has caught up."""
        if not self.leads:
            return
        change = promotion(self.roster, self.configuration, self._synced())
        if change:
            try:
                node.propose_change(change)
            except Refused:
                return  # the next tick tries again

    # ---- checkpoints and snapshots

    def _next_increment(self) -> Increment | None:
        snapshot = self._running.snapshot() if self._is_sound else None
        if snapshot is None or snapshot.index <= self._store.index:
            return None
        return Increment(snapshot, self._cell.changes())

    def _checkpoint_stored(self, snapshot: Snapshot) -> None:
        needed = self._needed_indexes()
        keep_from = self._retention.keep_from(snapshot.index, min(needed.values(), default=snapshot.index + 1))
        for raft_id, index in needed.items():
            if index < keep_from:
                _log.warn(
                    "Member {member} is too far behind for the log: it gets a snapshot", member=self._number(raft_id)
                )
        self._guarded(self._running.compact, snapshot, keep_from)
        self._log_thread.forget(keep_from - 1)
        self._wake()  # a member may have waited for it

    def _needed_indexes(self) -> dict[int, int]:
        """What is still to be sent to members that are there, by raft id, as far as it is in the log.

        None at a disk that is full.
        """
        node = self._running
        first_index = node.first_index if self._has_room else node.last_index + 1
        return {
            raft_id: progress.needed_index
            for raft_id, progress in node.progress.items()
            if raft_id != node.id and progress.needed_index >= first_index and self._peers.connected(raft_id)
        }

    @inlineCallbacks
    def _send_snapshot(self, message: InstallSnapshot) -> Generator[Deferred[Any], Any, None]:
        """Stream the checkpoint as it is now, which may be newer than the one the core thought of."""
        try:
            source, cell = yield self._checkpointer.in_thread(self._open_source)
        except CheckpointFailed as error:
            _log.error("{error}; member {member} has to wait for it", error=error, member=self._number(message.to))
            self._snapshot_finished(message.to, False)
            return
        node = self._running
        if self._failed or (node.role, node.term) != (Role.LEADER, message.term):
            source.close()
            return
        snapshot = Snapshot(source.index, source.term, cell.configuration)
        self._peers.send_snapshot(message._replace(snapshot=snapshot), source)

    def _open_source(self) -> tuple[CheckpointSource, CellState]:
        source = self._store.source()
        cell = CellState.read(source.read)
        if cell is None:
            raise CheckpointFailed(f"the checkpoint of index {source.index} knows no cell")
        return source, cell

    def _snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        if self._node and not self._failed:
            self._node.snapshot_finished(raft_id, delivered)
            self._wake()

    def _install(self, ready: Ready) -> None:
        """Put the snapshot's checkpoint in place, then begin the log anew behind it; a crash in between is no harm."""
        arrival = self._arrival
        if arrival is None or arrival.snapshot != ready.snapshot:
            raise LogDamaged(f"the state of snapshot {ready.snapshot} is not here")
        self._is_replaced = True
        self._checkpointer.idle.addCallback(
            lambda _none: self._checkpointer.in_thread(self._store.install, arrival.path)
        ).addCallback(lambda _none: self._installed(ready)).addErrback(self._install_failed)

    @inlineCallbacks
    def _installed(self, ready: Ready) -> Generator[Deferred[Any], Any, None]:
        """A large state takes seconds to read: nothing is applied or stored meanwhile, but the leader is answered."""
        with self._store.reading() as stored:
            read_table = yield self._checkpointer.in_thread(self._machine.read_ahead, stored)
            if self._failed:
                return
            self._cell = read_cell(read_table)
            self._machine.found(self._cell.founding_roster)
            self._machine.load(read_table)
        self._is_replaced = False
        self._log_thread.append(Restart.behind(ready))

    def _install_failed(self, failure: Failure) -> None:
        self._fail(failure.value or RuntimeError("a snapshot could not be put in place"))

    def _restarted(self, restart: Restart) -> None:
        """The log begins behind the snapshot: the member goes on from there."""
        self._arrival = None
        self._stored(restart.ready)
        self._members_changed()
        self._proposals.own.give_again()  # some of it may have been applied unseen
        _log.info("A snapshot of index {index} is in place", index=self._store.index)
        self._write_queue.installed()

    # ---- the disk

    def _look_at_disk(self) -> None:
        """A disk that hangs is as good as a full one: others commit without it, and only its member waits for it."""
        write, self._oldest_write = self._oldest_write, self._write_queue.oldest
        if self._has_room and (write is None or write is not self._oldest_write):
            self._ticks_without_disk = 0
            return
        self._ticks_without_disk += 1
        if self._ticks_without_disk % (BAD_DISK_ELECTIONS * self._options.core.election_ticks) == 0:
            self._hand_leadership_over()

    def _room_changed(self, has_room: bool) -> None:
        self._has_room = has_room
        self._ticks_without_disk = 0
        self.writable = has_room and not self._closed
        tell_room(has_room, self.directory.log_path)
        if not has_room:
            self._hand_leadership_over()

    # ---- handing over

    def _hand_leadership_over(self) -> None:
        """Let one of the voters lead that are farthest, if this member leads and there is one."""
        node = self._running
        others = [
            (progress.match_index, self._random_below(1 << 30), raft_id)
            for raft_id, progress in node.progress.items()
            if raft_id != node.id and raft_id in node.configuration.voters and self._peers.connected(raft_id)
        ]
        if others and not self._failed:
            self._guarded(node.transfer_leader, max(others)[-1])
            self._wake()

    @property
    def _is_handing_over(self) -> bool:
        leadership = self._running.raft.leadership
        return leadership is not None and leadership.transferee != NOBODY

    def _number(self, raft_id: int) -> int:
        number, _address = self._addresses.get(raft_id, (0, ""))
        return number
