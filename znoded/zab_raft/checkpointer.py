"""Keeps the checkpoint behind a member's state, in a thread: in turn, when enough has changed, or on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.core.messages import Snapshot
from znoded.zab_raft.errors import CheckpointFailed
from znoded.zab_raft.increment import Changes
from znoded.zab_raft.log_thread import Reactor
from znoded.zab_raft.malloc_trim import malloc_trim
from znoded.zab_raft.state_machine import StateMachine
from znoded.zab_raft.storage_options import StorageOptions

T = TypeVar("T")

_log = Logger()

#: So many changes, in one increment or in several, leave gaps in memory that the next ones will not all fill.
TRIMMED_ITEMS = 50_000


def checkpoint_pool() -> ThreadPool:
    """The one thread that stores and reads checkpoints, when there is something to do."""
    return ThreadPool(0, 1, "checkpoint")


class Increment(NamedTuple):
    """What leads from the last checkpoint to the state that `snapshot` names; `cell` goes with it."""

    snapshot: Snapshot
    cell: Changes


class Checkpointer:
    """`next_increment` says what a checkpoint would be called now, None if there is nothing to store.

    `on_stored(snapshot)` is called when a checkpoint is durable, `on_fatal(error)` when one met a fault of the program.
    """

    def __init__(
        self,
        reactor: Reactor,
        options: StorageOptions,
        store: Checkpoint,
        machine: StateMachine,
        next_increment: Callable[[], Increment | None],
        on_stored: Callable[[Snapshot], None],
        on_fatal: Callable[[BaseException], None],
        pool: ThreadPool,
    ) -> None:
        self.is_stuck = False
        self._reactor = reactor
        self._options = options
        self._store = store
        self._machine = machine
        self._next_increment = next_increment
        self._on_stored = on_stored
        self._on_fatal = on_fatal
        self._pool = pool
        self._busy: Deferred[None] = succeed(None)
        self._untrimmed_items = 0  # stored since the last malloc_trim

    def start(self) -> None:
        """Begin to store what changes."""
        self._pool.start()
        self._schedule()

    def stop(self) -> None:
        """Store nothing more; `idle` must have fired."""
        if self._timer.active():
            self._timer.cancel()
        self._pool.stop()

    @property
    def idle(self) -> Deferred[None]:
        """Fires when the checkpoint that is being stored now is stored, or has failed."""
        idle: Deferred[None] = Deferred()
        self._busy.addCallback(lambda _none: idle.callback(None))
        return idle

    def in_thread(self, call: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Run the call in the thread that stores, behind what it is doing."""
        return deferToThreadPool(cast(Any, self._reactor), self._pool, call, *arguments)

    def grown(self) -> None:
        """More was applied."""
        if self._is_due and not self.is_stuck:
            self.begin()

    @property
    def _is_due(self) -> bool:
        return self._machine.dirty_bytes >= self._options.checkpoint_bytes

    def begin(self) -> Deferred[None]:
        """Begin a checkpoint, unless one is under way or there is nothing to store; fires when the last one ended."""
        if self._busy.called and (increment := self._next_increment()):
            snapshot = increment.snapshot
            try:
                changes = self._machine.take_changes()
            except Exception as error:
                self._on_fatal(error)  # what changed is not known any more; the log still has it
                return self.idle
            self._busy = self.in_thread(
                self._store.write, {**changes, **increment.cell}, snapshot.index, snapshot.term
            ).addCallbacks(lambda _none: self._stored(snapshot), lambda failure: self._failed(failure, changes))
            self._untrimmed_items += sum(map(len, changes.values()))
            if self._untrimmed_items >= TRIMMED_ITEMS:
                self._untrimmed_items = 0
                self._busy.addCallback(lambda _none: self.in_thread(malloc_trim))
        return self.idle

    def _stored(self, snapshot: Snapshot) -> None:
        self.is_stuck = False
        self._on_stored(snapshot)
        if self._is_due and self._timer.active():
            self._timer.reset(0)  # so much was applied meanwhile, and maybe nothing will be soon

    def _failed(self, failure: Failure, changes: Changes) -> None:
        self._machine.restore_changes(changes)
        self.is_stuck = True
        if failure.check(CheckpointFailed):
            _log.error("{error}; it is tried again", error=failure.getErrorMessage())
        else:
            self._on_fatal(cast(BaseException, failure.value))

    def _in_turn(self) -> None:
        self._schedule()
        self.is_stuck = False
        self.begin()

    def _schedule(self) -> None:
        self._timer = self._reactor.callLater(self._options.checkpoint_interval_ms / 1000, self._in_turn)
