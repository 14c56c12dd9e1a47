"""The replica: it takes commands, makes them durable, applies what is committed, and keeps the checkpoint behind it.

    propose -> collected -> one batch -> log thread (durable) -> committed -> state machine -> checkpoint, now and then

A cell of one voter: what is durable here is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from znoded.zab_raft.backup import copy_checkpoint
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.checkpointer import Checkpointer, Increment, checkpoint_pool
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import HardState, Snapshot
from znoded.zab_raft.directory import DataDirectory
from znoded.zab_raft.errors import CheckpointFailed, LogDamaged
from znoded.zab_raft.files import Files
from znoded.zab_raft.log import Batch, Log
from znoded.zab_raft.log_thread import LogThread, Reactor, tell_room
from znoded.zab_raft.recovery import Recovery
from znoded.zab_raft.state_machine import StateMachine
from znoded.zab_raft.storage_options import StorageOptions

#: A batch is closed when its commands have this many bytes: it is applied in one go, and everybody waits for that.
BATCH_BYTES_LIMIT = 1 << 20

#: So many commands may wait while the disk is full.
ATTACHES_LIMIT = 1_000

#: From so many on, a batch that finds the disk idle is halved: one half is applied while the other becomes durable.
HALVED_COMMANDS = 16


class Replica:
    """One member's replicated log and state machine.

    `writable` is false before `start`, while the disk is full, and from `stop` or a fatal error on. `on_fatal(error)`
    is called when the log can no longer be trusted: the process has to exit.
    """

    mode = "standalone"

    def __init__(
        self,
        reactor: Reactor,
        options: StorageOptions,
        machine: StateMachine,
        on_fatal: Callable[[BaseException], None],
        files: Files | None = None,
    ) -> None:
        self.writable = False
        self.term = 0
        self.last_index = 0
        self.applied_index = 0
        self._reactor = reactor
        self._options = options
        self._machine = machine
        self._on_fatal = on_fatal
        self._files = files or Files()
        self._collected: list[bytes] = []
        self._is_syncing = False
        self._applied_term = 0
        self.outstanding_bytes = 0
        self._drained: deque[tuple[int, Deferred[None]]] = deque()
        self._closed = False
        self._is_sound = True

    @property
    def outstanding(self) -> int:
        """How many of the commands that were proposed are not applied yet."""
        return self.last_index + len(self._collected) - self.applied_index

    def drained(self) -> Deferred[None]:
        """Fires when all that was proposed so far is applied."""
        drained: Deferred[None] = Deferred()
        self._drained.append((self.applied_index + self.outstanding, drained))
        self._tell_drained()
        return drained

    def start(self) -> None:
        """Open the directory, bring the state machine to the end of the log, and begin a new term, durably.

        Returns when commands can be proposed. Raises `StorageError` or `OSError` with a message for the operator.
        """
        options = self._options
        with ExitStack() as on_error:
            self.directory = DataDirectory(options.data_dir, options.member, self._files)
            on_error.callback(self.directory.close)
            self._store = Checkpoint(self.directory.state_path, self._files, self._machine.loose_tables)
            on_error.callback(self._store.close)
            self._recover(self.directory, self._store)
            on_error.pop_all()
        self._checkpointer = Checkpointer(
            self._reactor,
            options,
            self._store,
            self._machine,
            self._next_increment,
            self._checkpoint_stored,
            self._log_failed,
            checkpoint_pool(),
        )
        self._log_thread.start()
        self._checkpointer.start()
        self.writable = True

    def propose(self, commands: list[bytes]) -> bool:
        """Have commands committed and applied, in the order of the calls; False, and nothing done, if not `writable`.

        What comes while a batch is made durable makes the next batch.
        """
        if not self.writable:
            return False
        self._collect(commands)
        return True

    def propose_attach(self, command: bytes) -> bool:
        """Have a command committed without which a client cannot even read: while the disk is full, too.

        Most often it finds room in the segment that is being filled. False, and nothing done, if too many found none.
        """
        if self._closed or (not self.writable and self.outstanding >= ATTACHES_LIMIT):
            return False
        self._collect([command])
        return True

    def _collect(self, commands: list[bytes]) -> None:
        self._collected += commands
        self.outstanding_bytes += sum(map(len, commands))
        if not self._is_syncing:
            count = len(self._collected)
            self._submit(count if count < HALVED_COMMANDS else count // 2)

    def propose_change(self, command: bytes) -> bool:
        """A change of the members is a command like any other, which refuses it: there is only one."""
        return self.propose([command])

    def read_stored(self, table: bytes, key: bytes, part: slice) -> bytes | None:
        """A part of a value in the checkpoint, which may be newer than the last one that is known to be stored.

        None too if it cannot be read now.
        """
        return self._store.get(table, key, part)

    @inlineCallbacks
    def backup(self, path: str) -> Generator[Deferred[Any], Any, None]:
        """Make a new data directory `path` with all that is applied now; fires when it is there.

        To restore it, start a member on it. Fails with `CheckpointFailed` or `OSError`.
        """
        index = self.applied_index
        while self._store.index < index:
            yield self._checkpointer.begin()
            if self._checkpointer.is_stuck or not self._is_sound:
                raise CheckpointFailed(f"there is no backup in {path}: the checkpoint cannot be stored")
        yield self._checkpointer.in_thread(copy_checkpoint, self.directory, self._store, path)

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """Take no more commands; finish those taken, store a last checkpoint, close everything."""
        self._closed = True
        self.writable = False
        while self._collected:
            self._submit(len(self._collected))
        yield self._log_thread.stop()
        yield self._checkpointer.idle
        yield self._checkpointer.begin()
        self._checkpointer.stop()
        self._store.close()
        self.directory.close()

    def _recover(self, directory: DataDirectory, store: Checkpoint) -> None:
        recovery = Recovery(directory.log_path, store.index, store.term)
        if recovery.empty and directory.meta.initialised:
            raise LogDamaged(f"{directory.log_path} has no segment; restore the data directory from a backup")
        if store.index:
            with store.reading() as read_table:
                self._machine.load(read_table)
        for first_index, commands in recovery.records():
            self._machine.apply_batch(first_index, commands)
        self.term = recovery.hard_state.term + 1
        self.last_index = self.applied_index = recovery.last_index
        self._applied_term = recovery.last_term
        log = Log(directory.log_path, self._options.segment_bytes, self._files)
        log.begin(
            recovery.sequence + 1,
            self._hard_state(),
            recovery.first_index,
            recovery.last_index,
            recovery.payloads,
            recovery.segments,
        )
        directory.set_initialised()
        self._log_thread = LogThread(log, self._reactor, self._synced, self._room_changed, self._log_failed)

    def _hard_state(self) -> HardState:
        return HardState(self.term, self._options.member, self.applied_index)

    def _submit(self, count: int) -> None:
        """Have the first `count` collected commands made durable, or those of them that are not too large together."""
        commands, rest = self._collected[:count], self._collected[count:]
        if sum(map(len, commands)) > BATCH_BYTES_LIMIT:
            commands, others = _split(commands)
            rest = others + rest
        self._collected = rest
        batch = Batch.of(self.last_index + 1, self._hard_state(), commands)
        self.last_index = batch.last_index
        self._is_syncing = True
        self._log_thread.append(batch)

    def _synced(self, batch: Batch) -> None:
        self._is_syncing = False
        if self._collected:
            self._submit(len(self._collected))  # first, so that the disk works while the batch is applied
        try:
            self._machine.apply_batch(batch.first_index, batch.commands)
        except Exception as error:
            self._log_failed(error)  # its state is not what the log says any more
            return
        self.applied_index = batch.last_index
        self.outstanding_bytes -= sum(map(len, batch.commands))
        self._applied_term = batch.hard_state.term
        self._checkpointer.grown()
        self._tell_drained()

    def _tell_drained(self) -> None:
        while self._drained and self._drained[0][0] <= self.applied_index:
            self._drained.popleft()[1].callback(None)

    def _room_changed(self, has_room: bool) -> None:
        self.writable = has_room and not self._closed
        tell_room(has_room, self.directory.log_path)

    def _log_failed(self, error: BaseException) -> None:
        self._closed = True
        self.writable = self._is_sound = False
        self._on_fatal(error)

    def _next_increment(self) -> Increment | None:
        if not self._is_sound or self.applied_index <= self._store.index:
            return None
        return Increment(Snapshot(self.applied_index, self._applied_term, Configuration()), {})

    def _checkpoint_stored(self, snapshot: Snapshot) -> None:
        self._log_thread.forget(snapshot.index)


def _split(commands: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The first commands, at least one, up to the limit of a batch, and the others."""
    size_bytes = count = 0
    for command in commands:
        size_bytes += len(command)
        if size_bytes > BATCH_BYTES_LIMIT:
            break
        count += 1
    count = max(count, 1)
    return commands[:count], commands[count:]
