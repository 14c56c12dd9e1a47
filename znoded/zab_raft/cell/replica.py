"""The replica of a cell's member: what is asked of it, what the other members say, its beginning and its end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from znoded.zab_raft.backup import copy_checkpoint
from znoded.zab_raft.cell.directory import CellDirectory
from znoded.zab_raft.cell.driver import Arrival, CellDriver
from znoded.zab_raft.cell.membership import MemberStatus, statuses
from znoded.zab_raft.cell.own_proposals import ChangeRequest
from znoded.zab_raft.cell.start import enter
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.core.messages import NOBODY, InstallSnapshot
from znoded.zab_raft.core.raft import Role
from znoded.zab_raft.errors import CellAbandoned, CheckpointFailed
from znoded.zab_raft.peers.founding import Welcome
from znoded.zab_raft.peers.wire import Change, Forward, FrameKind, FrameRecord

#: How long a member that stops waits for its proposals, and then for another leader.
STOP_PATIENCE_S = 2.0


class CellReplica(CellDriver):
    """One member's replicated log and state machine, in a cell of one or more.

    `writable` is false before it has started, while the disk is full, and from `stop` or a fatal error on; without a
    leader, what is proposed waits. `on_fatal(error)` is called when the member must not go on: the process has to exit.
    """

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
    def reaches_leader(self) -> bool:
        """There is a leader, and what is meant for it has a way there."""
        return self._node is not None and self.has_leader and self._is_connected(self._node.leader)

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
            self.roster, self.configuration, node.progress, node.committed_index, node.leader, self._is_connected
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
            self._store = Checkpoint(self.directory.state_path, self._files, self._machine.loose_tables)
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
            self._failed = True
            yield self._checkpointer.idle
            yield self._checkpointer.begin()
            self._checkpointer.stop()
        self._reads.fail_all()
        self._store.close()
        self.directory.close()

    def read_stored(self, table: bytes, key: bytes, part: slice) -> bytes | None:
        """A part of a value in the checkpoint, which may be newer than the last one that is known to be stored.

        None too if it cannot be read now, as while a snapshot takes its place.
        """
        return None if self._is_replaced else self._store.get(table, key, part)

    @inlineCallbacks
    def backup(self, path: str) -> Generator[Deferred[Any], Any, None]:
        """Make a new data directory `path` with all that is applied now; fires when it is there.

        A member that is alone can be started on it. Fails with `CheckpointFailed` or `OSError`.
        """
        if self._node is None:
            raise CheckpointFailed("the member has not entered its cell yet: there is nothing to back up")
        index = self.applied_index
        while self._store.index < index:
            if self._arrival:
                raise CheckpointFailed(
                    f"there is no backup in {path}: a snapshot of the leader is put in place just now"
                )
            yield self._checkpointer.begin()
            if self._checkpointer.is_stuck or not self._is_sound:
                raise CheckpointFailed(f"there is no backup in {path}: the checkpoint cannot be stored")
        yield self._checkpointer.in_thread(copy_checkpoint, self.directory, self._store, path)

    @inlineCallbacks
    def _wait_until(self, condition: Callable[[], bool]) -> Generator[Deferred[Any], Any, None]:
        """Fires when the condition holds, or after `STOP_PATIENCE_S`."""
        waits = int(STOP_PATIENCE_S * 1000 / self._options.heartbeat_ms)
        while not condition() and waits and not self._failed:
            waits -= 1
            passed: Deferred[None] = Deferred()
            self._reactor.callLater(self._options.heartbeat_ms / 1000, passed.callback, None)
            yield passed

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

    def propose_ahead_of_reads(self, commands: list[bytes]) -> bool:
        """As `propose`, by a leader at once: whoever asks for a read from here on is answered with what they did.

        False, and none of them proposed, if it does not lead or its log takes nothing for now.
        """
        if not self.writable or not self._proposals.propose_ahead_of_reads(self._running, commands):
            return False
        self._wake()
        return True

    def propose_attach(self, command: bytes) -> bool:
        """As any other: the leader has to have room for it, and this member too, before it knows of it."""
        return self.propose([command])

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
            self._machine.leader_reached()
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
        if not self._write_queue.holds_snapshot:
            self._arrival = None

    def snapshot_progressed(self, raft_id: int) -> None:
        """The member took a part of the snapshot that is streamed to it."""
        if self._node and not self._failed:
            self._node.snapshot_progressed(raft_id)

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        """The stream of a snapshot to the member ended."""
        self._snapshot_finished(raft_id, delivered)

    def abandoned(self, reason: str) -> None:
        """The cell was given up: what this member acknowledges from now on would be known to no one."""
        self._fail(CellAbandoned(reason))
