"""The replica of a cell's member: drives the Raft core with the disk, the other members, the clock and the machine.

    propose -> own proposals -> leader -> core -> Ready -> log thread, other members -> committed -> state machine

All that comes in during one turn of the reactor is stepped first, then the core is asked once what is to be done.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from znoded.zab_raft.candidacy import Candidacy
from znoded.zab_raft.cell_directory import CellDirectory
from znoded.zab_raft.cell_log import Readies, Restart
from znoded.zab_raft.cell_machine import CellMachine
from znoded.zab_raft.cell_start import Recovered, enter, recover
from znoded.zab_raft.cell_state import Addresses, CellState, read_cell
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
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.raft import Role
from znoded.zab_raft.errors import CheckpointFailed, LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.log import Batch
from znoded.zab_raft.log_thread import LogThread, Reactor
from znoded.zab_raft.log_writer import LogWriter
from znoded.zab_raft.membership import MemberStatus, promotion, statuses, synced
from znoded.zab_raft.own_proposals import ChangeRequest
from znoded.zab_raft.peers.founding import Table, Welcome
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler, Peers
from znoded.zab_raft.peers.wire import Change, Forward, FrameKind, FrameRecord
from znoded.zab_raft.proposals import Proposals
from znoded.zab_raft.read_barrier import ReadBarrier
from znoded.zab_raft.replica import StorageOptions
from znoded.zab_raft.retention import Retention
from znoded.zab_raft.roster import Roster

_log = Logger()

T = TypeVar("T")

READIES_IN_TURN = 4
"""More is done in the next turn, so that others have theirs."""
APPLYING_BYTES = 1 << 20
"""About how much is applied in one go: everybody waits for that."""
STOP_PATIENCE_S = 2.0
"""How long a member that stops waits for its proposals, and then for another leader."""

MakePeers = Callable[[Identity, str, PeerHandler], Peers]
"""Make the connections of a member, given who it is, its data directory and whom to tell."""
MakeLogThread = Callable[..., LogThread]


@dataclass(frozen=True, slots=True)
class CellOptions:
    """`roster` and `table` are the members in the configuration, with which a cell is founded.

    Of the log, `log_tail_bytes` before the checkpoint are kept for members that lag, in memory too.
    """

    storage: StorageOptions
    roster: Roster
    table: Table
    heartbeat_ms: int = 100
    election_ms: int = 1_000
    log_tail_bytes: int = 32 << 20

    @property
    def core(self) -> Options:
        return Options(election_ticks=max(2, self.election_ms // self.heartbeat_ms), applying_bytes=APPLYING_BYTES)


class Arrival(NamedTuple):
    """A snapshot that came from the leader, and the directory with its checkpoint."""

    snapshot: Snapshot
    path: str


class CellReplica:
    """One member's replicated log and state machine, in a cell of one or more.

    `writable` is false before it has started, while the disk is full, and from `stop` or a fatal error on; without a
    leader, what is proposed waits. `on_fatal(error)` is called when the member must not go on: the process has to exit.
    """

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
        self._turn_is_due = False
        self._tick_timer: Any = None
        self._candidacy = Candidacy(reactor, self._stand)
        self._retention = Retention(options.log_tail_bytes)
        self._proposals = Proposals(machine, self._synced)
        self._reads = ReadBarrier()
        self._told_leader = (NOBODY, 0)
        self._arrival: Arrival | None = None

    # ---- what it is

    @property
    def mode(self) -> str:
        """ZooKeeper's word for what the member is now."""
        if self._node is None:
            return "follower"
        if self._node.role is Role.LEADER:
            return "leader"
        return "observer" if self._node.id in self._node.configuration.learners else "follower"

    @property
    def term(self) -> int:
        return self._node.term if self._node else 0

    @property
    def last_index(self) -> int:
        return self._node.last_index if self._node else 0

    @property
    def applied_index(self) -> int:
        return self._node.applied_index if self._node else 0

    @property
    def leader(self) -> int:
        """The number of the member that leads, 0 if none is known."""
        return self._number(self._node.leader) if self._node else 0

    @property
    def has_leader(self) -> bool:
        return self._node is not None and self._node.leader != NOBODY

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
    def outstanding(self) -> int:
        """How many of the proposals made here are not applied yet."""
        return len(self._proposals.own)

    @property
    def outstanding_bytes(self) -> int:
        """Their size."""
        return self._proposals.own.size_bytes

    def drained(self) -> Deferred[None]:
        """Fires when they are applied, or after `STOP_PATIENCE_S`."""
        return self._wait_until(lambda: not self.outstanding)

    def members(self) -> list[MemberStatus]:
        """What this member knows of all, for the operator: at the leader, also how far each one is."""
        node = self._running
        return statuses(
            self.roster, self.configuration, node.progress, node.last_index, node.leader, self._is_connected
        )

    # ---- life

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        """Open the directory, enter the cell if it is blank, and begin to take part.

        Fires when the member is in its cell: there may be no leader yet. Fails with `StorageError` or `OSError`.
        """
        storage = self._options.storage
        with ExitStack() as on_error:
            self.directory = CellDirectory(storage.data_dir, storage.member, self._files)
            on_error.callback(self.directory.close)
            self._store = Checkpoint(self.directory.state_path, self._files)
            on_error.callback(self._store.close)
            self._peers = self._make_peers(self.directory.identity, self.directory.path, self)
            recovered = None if self.directory.identity.blank else self._recover()
            yield self._peers.start()
            on_error.pop_all()
        if recovered is None:
            decision = yield self._peers.enter_cell(self._options.table)
            enter(self.directory, self._store, decision, self._options.roster)
            recovered = self._recover()
            self._peers.adopt(self.directory.identity)
        self._run(recovered)

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """Take no more commands; have those that were taken applied, hand the leadership over, and close everything.

        Without a quorum, what was proposed stays undone.
        """
        self.writable = False
        self._closed = True
        if self._node:
            yield self._wait_until(lambda: not self.outstanding)
            self._hand_leadership_over()
            yield self._wait_until(lambda: not self._is_handing_over)
        self._candidacy.withdraw()
        if self._tick_timer and self._tick_timer.active():
            self._tick_timer.cancel()
        yield self._peers.stop()
        if self._node:
            yield self._log_thread.stop()
            is_sound, self._failed = not self._failed, True
            yield self._checkpointer.idle
            if is_sound:
                yield self._checkpointer.begin()
            self._checkpointer.stop()
        self._reads.fail_all()
        self._store.close()
        self.directory.close()

    @inlineCallbacks
    def backup(self, path: str) -> Generator[Deferred[Any], Any, None]:
        """Make a new data directory `path` with all that is applied now; fires when it is there.

        A member that is alone can be started on it. Fails with `CheckpointFailed` or `OSError`.
        """
        index = self.applied_index
        while self._store.index < index:
            yield self._checkpointer.begin()
            if self._checkpointer.is_stuck:
                raise CheckpointFailed(f"there is no backup in {path}: the checkpoint cannot be stored")
        yield self._checkpointer.in_thread(self._copy_checkpoint, path)

    # ---- what is asked of it

    def propose(self, commands: list[bytes]) -> bool:
        """Have commands committed and applied, in the order of the calls; False, and nothing done, if not `writable`.

        They are with the leader as soon as there is one, and again with the next one, until they are applied here.
        """
        if not self.writable:
            return False
        self._proposals.own.add(commands)
        self._wake()
        return True

    def propose_change(self, command: bytes) -> bool:
        """Have the members changed as this command says, in order with the others'. False if not `writable`.

        The command, or one of the machine's `refused_change`, comes to be applied.
        """
        if not self.writable:
            return False
        self._proposals.own.add([ChangeRequest(command)])
        self._wake()
        return True

    def confirm_reads(self, then: Callable[[bool], None]) -> None:
        """Call `then(True)` once all that was committed anywhere before this call is applied here.

        `then(False)` if there is no leader to confirm that.
        """
        self._reads.add(then)
        self._wake()

    def tell_leader(self, payload: bytes) -> None:
        """Give this to the leader's machine (`told`), if there is a leader and nothing goes wrong on the way."""
        node = self._running
        if node.role is Role.LEADER:
            self._machine.told(self._options.storage.member, payload)
        elif node.leader != NOBODY:
            self._peers.send(node.leader, FrameKind.TELL, payload)

    def transfer_leader(self, number: int) -> None:
        """Hand the leadership to the member with this number. Raises Refused."""
        raft_id = self.roster.raft_id(number)
        if raft_id is None:
            raise Refused(Reason.BAD_TARGET, f"there is no member {number}")
        self._running.transfer_leader(raft_id)
        self._wake()

    # ---- what the other members say (PeerHandler)

    def received(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> None:
        """A frame came."""
        node = self._node
        if node is None or self._failed:
            return
        if isinstance(record, Forward):
            self._proposals.take_forwarded(node, record.term, record.commands)
        elif isinstance(record, Change):
            self._proposals.take_forwarded(node, record.term, [ChangeRequest(record.command)])
        elif isinstance(record, bytes):
            if node.role is Role.LEADER:
                self._machine.told(self._number(raft_id), record)
        else:
            self._guarded(node.step, record)
        self._wake()

    def opened(self, raft_id: int) -> None:
        """Frames to the member have a way: what the leader was given before may be lost."""
        if self._node and raft_id == self._node.leader:
            self._proposals.own.give_again()
            self._wake()

    def closed(self, raft_id: int) -> None:
        """The member closed its connection. If it led, its process has ended, most often: somebody else has to lead."""
        node = self._node
        if node is None or self._failed or raft_id != node.leader:
            return
        node.forget_leader()
        others = sorted(node.configuration.voters - {raft_id})
        if node.id in others:
            self._candidacy.announce(others.index(node.id), len(others))
        self._wake()

    def unreachable(self, raft_id: int) -> None:
        """What was sent to the member last may be lost."""
        if self._node and not self._failed:
            self._node.unreachable(raft_id)

    def welcome(self, number: int) -> Welcome | None:
        """What a blank member of this number is told; None if it is none of the cell, as far as is known here."""
        raft_id = self.roster.raft_id(number)
        if raft_id is None:
            return None
        founding = self._cell.founding_roster
        return Welcome(
            bytes.fromhex(self.directory.meta.cell),
            raft_id,
            raft_id in founding.members,
            founding.encode(),
            self._addresses,
            self.configuration.highest_id,
        )

    def wants_snapshot(self, message: InstallSnapshot) -> bool:
        """Whether a state would be of use: not if it is old, or while another one is put in place."""
        node = self._node
        if node is None or self._failed or self._arrival:
            return False
        if message.term >= node.term and message.snapshot.index > node.committed_index:
            return True
        self._guarded(node.step, message)  # whose answer tells the leader what is here already
        self._wake()
        return False

    def snapshot_arrived(self, message: InstallSnapshot, path: str) -> None:
        """A state is there. The core decides if it takes the place of this member's."""
        if not self.wants_snapshot(message):
            return
        self._arrival = Arrival(message.snapshot, path)
        self._guarded(self._running.step, message)
        self._turn()
        if not self._writer.holds_snapshot:
            self._arrival = None

    def snapshot_progressed(self, raft_id: int) -> None:
        """The member took a part of the snapshot that is streamed to it."""
        if self._node and not self._failed:
            self._node.snapshot_progressed(raft_id)

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        """The stream of a snapshot to the member ended."""
        if self._node and not self._failed:
            self._node.snapshot_finished(raft_id, delivered)
            self._wake()

    # ---- starting

    def _recover(self) -> Recovered:
        recovered = recover(
            self.directory,
            self._store,
            self._machine,
            self._options.storage.segment_bytes,
            self._options.core,
            self._random_below,
        )
        self._cell = recovered.cell
        return recovered

    def _run(self, recovered: Recovered) -> None:
        self._node = recovered.node
        self._log_thread = self._make_log_thread(
            recovered.log, self._reactor, self._written, self._room_changed, self._fail
        )
        self._writer = LogWriter(self._log_thread.append, self._install)
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

    @property
    def _running(self) -> Node:
        if self._node is None:
            raise Refused(Reason.NO_LEADER, "the member has not entered its cell yet")
        return self._node

    # ---- turns and ticks

    def _wake(self) -> None:
        """Have a turn soon, together with all else that comes in meanwhile."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self._reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._node and not self._failed:
            self._guarded(self._do_turn, self._node)

    def _do_turn(self, node: Node) -> None:
        self._look_at_leader(node)
        self._proposals.hand_over(node, self._peers.send)
        self._proposals.propose(node)
        self._reads.ask(node)
        for _ in range(READIES_IN_TURN):
            if self._failed or not (ready := node.ready()):
                break
            self._take(node, ready)
        else:
            self._wake()
        self._look_at_leader(node)

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
        self.writable = False
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
            self._writer.add(ready)
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
            self._guarded(self._writer.written, batch)  # first, so that the disk works meanwhile
            for ready in batch.readies:
                self._guarded(self._stored, ready)
        self._turn()

    def _stored(self, ready: Ready) -> None:
        for message in ready.messages_after_sync:
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
        return synced(node.progress, node.last_index, self._is_connected)

    def _look_at_leader(self, node: Node) -> None:
        if (node.leader, node.term) == self._told_leader:
            return
        self._told_leader = (node.leader, node.term)
        self._proposals.leader_changed(node)
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
        snapshot = self._running.snapshot()
        if snapshot is None or snapshot.index <= self._store.index:
            return None
        return Increment(snapshot, self._cell.changes())

    def _checkpoint_stored(self, snapshot: Snapshot) -> None:
        keep_from = self._retention.keep_from(snapshot.index)
        self._guarded(self._running.compact, snapshot, keep_from)
        self._log_thread.forget(keep_from - 1)
        self._wake()  # a member may have waited for it

    def _copy_checkpoint(self, path: str) -> None:
        os.mkdir(path)
        self._store.backup(os.path.join(path, "state"))
        self.directory.found_copy(path)

    @inlineCallbacks
    def _send_snapshot(self, message: InstallSnapshot) -> Generator[Deferred[Any], Any, None]:
        """Stream the checkpoint as it is now, which may be newer than the one the core thought of."""
        try:
            source, cell = yield self._checkpointer.in_thread(self._open_source)
        except CheckpointFailed as error:
            _log.error("{error}; member {member} has to wait for it", error=error, member=self._number(message.to))
            self.snapshot_finished(message.to, False)
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

    def _install(self, ready: Ready) -> None:
        """Put the snapshot's checkpoint in place, then begin the log anew behind it; a crash in between is no harm."""
        arrival = self._arrival
        if arrival is None or arrival.snapshot != ready.snapshot:
            raise LogDamaged(f"the state of snapshot {ready.snapshot} is not here")
        self._checkpointer.idle.addCallback(
            lambda _none: self._checkpointer.in_thread(self._store.install, arrival.path)
        ).addCallback(lambda _none: self._installed(ready)).addErrback(self._install_failed)

    @inlineCallbacks
    def _installed(self, ready: Ready) -> Generator[Deferred[Any], Any, None]:
        """The machine takes its time, if it has a lot to load: nothing is applied or stored meanwhile."""
        with self._store.reading() as read_table:
            self._cell = read_cell(read_table)
            self._machine.found(self._cell.founding_roster)
            yield maybeDeferred(self._machine.load, read_table)
        if not self._failed:
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
        self._writer.installed()

    # ---- the disk

    def _room_changed(self, has_room: bool) -> None:
        self.writable = has_room and not self._closed
        if has_room:
            _log.info("The log has room again: writes are accepted")
        else:
            _log.error("The disk is full, {path} has no room: writes are refused", path=self.directory.log_path)
            self._hand_leadership_over()

    # ---- handing over

    def _hand_leadership_over(self) -> None:
        """Let the voter lead that is farthest, if this member leads and there is one."""
        node = self._running
        others = [
            (progress.match_index, raft_id)
            for raft_id, progress in node.progress.items()
            if raft_id != node.id and raft_id in node.configuration.voters and self._peers.connected(raft_id)
        ]
        if others and not self._failed:
            self._guarded(node.transfer_leader, max(others)[1])
            self._wake()

    @property
    def _is_handing_over(self) -> bool:
        leadership = self._running.raft.leadership
        return leadership is not None and leadership.transferee != NOBODY

    @inlineCallbacks
    def _wait_until(self, condition: Callable[[], bool]) -> Generator[Deferred[Any], Any, None]:
        """Fires when the condition holds, or after `STOP_PATIENCE_S`."""
        waits = int(STOP_PATIENCE_S * 1000 / self._options.heartbeat_ms)
        while not condition() and waits and not self._failed:
            waits -= 1
            passed: Deferred[None] = Deferred()
            self._reactor.callLater(self._options.heartbeat_ms / 1000, passed.callback, None)
            yield passed

    def _number(self, raft_id: int) -> int:
        number, _address = self._addresses.get(raft_id, (0, ""))
        return number
