"""A member of a cell, as its driver sees it: calls go in, one Ready at a time comes out.

The driver's part:

1. `ready()` until it is None, after every call that may have changed something.
2. Send `messages` at once.
3. If `must_store`: write snapshot, hard state and entries of the Ready as one atomic record, in the order of the
   Readies; any number of writes may be under way. The entries replace everything stored from the first of them on. A
   snapshot is the machine's state from when it is stored. Once all of this is durable, and not before: send
   what is left of `messages_after_sync`, which is `after_sync(ready)`, and call `stored(ready)`.
4. Apply `committed` in order and call `applied(index)`.
5. Serve `reads` from the applied state as it is now; tell those of `failed_reads` to try again.

A CoreFailure from any call is the end of this member: no further call is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import CoreFailure, InvariantBroken, Reason, Refused
from znoded.zab_raft.core.inflights import Inflights
from znoded.zab_raft.core.leadership import UNCOUNTED, Leadership
from znoded.zab_raft.core.messages import Entry, EntryKind, HardState, Message, Snapshot, VoteRequest, size_bytes
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.progress import Progress
from znoded.zab_raft.core.raft import Raft, Role
from znoded.zab_raft.core.stored import StoredLog

P = ParamSpec("P")
T = TypeVar("T")


class Ready(NamedTuple):
    """What is to be done now. `number` counts the Readies to store, `log_end` is where the log ends with this one.

    `hard_state` is always the present one. A change of its commit alone is no reason to store.
    """

    number: int
    hard_state: HardState
    log_end: tuple[int, int]
    must_store: bool
    snapshot: Snapshot | None
    entries: Sequence[Entry]
    committed: Sequence[Entry]
    reads: Sequence[int]
    failed_reads: Sequence[int]
    messages: Sequence[Message]
    messages_after_sync: Sequence[Message]


def _unless_failed(call: Callable[Concatenate[Node, P], T]) -> Callable[Concatenate[Node, P], T]:
    """A call that is not taken after a CoreFailure, which may have left anything half done."""

    @wraps(call)
    def checked(self: Node, /, *arguments: P.args, **named: P.kwargs) -> T:
        if self._failure:
            raise self._failure
        try:
            return call(self, *arguments, **named)
        except CoreFailure as failure:
            self._failure = failure
            raise

    return checked


class Node:
    """One member. `stored` is the log as it is durable, `hard_state` what was stored with it.

    A member of a new cell begins with a snapshot of index 0 that has the cell's first configuration, one that is to
    join with one that has the empty configuration. `random_below(n)` gives a number from 0 to before n; equal calls in
    equal order with equal random numbers give equal Readies.

    Raises InvariantBroken if what was stored cannot be so.
    """

    def __init__(
        self,
        member: int,
        stored: StoredLog,
        hard_state: HardState,
        random_below: Callable[[int], int],
        options: Options | None = None,
    ) -> None:
        self.raft = Raft(member, stored, hard_state, options or Options(), random_below)
        self._stored_vote = hard_state.term, hard_state.vote
        self._numbers_taken = 0
        self._numbers_stored = 0
        self._applying = Inflights(UNCOUNTED, self.raft.options.applying_bytes)
        self._changes: deque[Entry] = deque()
        self._reads: list[tuple[int, int]] = []
        self._failure: CoreFailure | None = None

    # What it is

    @property
    def id(self) -> int:
        return self.raft.id

    @property
    def role(self) -> Role:
        return self.raft.role

    @property
    def term(self) -> int:
        return self.raft.term

    @property
    def leader(self) -> int:
        """The leader's id, or NOBODY."""
        return self.raft.leader

    @property
    def configuration(self) -> Configuration:
        """The one in force at the applied index."""
        return self.raft.configuration

    @property
    def committed_index(self) -> int:
        return self.raft.log.committed

    @property
    def applied_index(self) -> int:
        return self.raft.log.applied

    @property
    def first_index(self) -> int:
        return self.raft.log.first_index

    @property
    def last_index(self) -> int:
        return self.raft.log.last_index

    @property
    def progress(self) -> dict[int, Progress]:
        """What this leader knows of each member, itself included; nothing if it does not lead."""
        return self.raft.leadership.progress if self.raft.leadership else {}

    @property
    def checkpoint_wanted(self) -> bool:
        """A member needs a snapshot, and the newest one is too old for it."""
        return self.raft.leadership is not None and self.raft.leadership.checkpoint_wanted

    def snapshot(self) -> Snapshot | None:
        """What a checkpoint of the machine's state as it is now is called; None while a snapshot is being installed."""
        log = self.raft.log
        term = log.term(log.applied)
        if term is None or log.unstable.snapshot:
            return None
        return Snapshot(log.applied, term, self.raft.configuration)

    # What happens to it

    @_unless_failed
    def step(self, message: Message) -> None:
        """A message came from another member."""
        self.raft.step(message)

    @_unless_failed
    def tick(self) -> None:
        """One tick of monotonic time passed. After a pause, at most one is told."""
        self.raft.tick()

    @_unless_failed
    def campaign(self) -> None:
        """Try to become leader, if the others would have it so.

        Members that learn at the same time of a leader's end are not to campaign at the same time: two that stand in
        one term take the votes from each other, and wait for an election timeout.
        """
        self.raft.campaign()

    @_unless_failed
    def forget_leader(self) -> None:
        """The leader is known to be gone, for instance because its process closed the connection."""
        self.raft.forget_leader()

    @_unless_failed
    def propose(self, commands: Sequence[bytes]) -> int:
        """Append commands to the log of this leader; the index of the first. They can be lost with its leadership.

        Raises Refused; a member that does not lead forwards nothing.
        """
        if not commands:
            raise ValueError("no commands are proposed")
        return self._leadership().propose(commands)

    @_unless_failed
    def propose_change(self, change: ConfChange) -> int:
        """Append a change of the configuration; its index. It takes effect when it is applied. Raises Refused."""
        return self._leadership().propose_change(change)

    @_unless_failed
    def read_index(self, context: int) -> None:
        """Have a read confirmed: `context` comes back in `reads` when it may be served, or in `failed_reads`.

        Raises Refused.
        """
        self.raft.read_index(context)

    @_unless_failed
    def read_behind(self, index: int) -> None:
        """Have all reads that are asked of this leader from here on see its entry `index`, committed yet or not.

        Raises Refused.
        """
        self._leadership().read_behind(index)

    @_unless_failed
    def transfer_leader(self, target: int) -> None:
        """Hand this leadership over. Until that ends, proposals are refused. Raises Refused."""
        self._leadership().transfer(target)

    @_unless_failed
    def unreachable(self, member: int) -> None:
        """What was sent to the member last may be lost."""
        if self.raft.leadership:
            self.raft.leadership.unreachable(member)

    @_unless_failed
    def snapshot_progressed(self, member: int) -> None:
        """The member took a part of the snapshot that is streamed to it."""
        if self.raft.leadership:
            self.raft.leadership.snapshot_progressed(member)

    @_unless_failed
    def snapshot_finished(self, member: int, delivered: bool) -> None:
        """The stream of a snapshot to the member ended."""
        if self.raft.leadership:
            self.raft.leadership.snapshot_finished(member, delivered)

    @_unless_failed
    def compact(self, snapshot: Snapshot, keep_from: int) -> None:
        """A checkpoint is durable, under the name that `snapshot()` gave; entries before `keep_from` are forgotten."""
        if snapshot.index < self.raft.log.stored.snapshot.index:
            return  # one from the leader overtook it
        self.raft.log.stored.compact(snapshot, keep_from)
        if self.raft.leadership:
            self.raft.leadership.checkpoint_wanted = False

    # What it wants done

    @_unless_failed
    def ready(self) -> Ready | None:
        """What is to be done next, each thing once; None if there is nothing."""
        raft = self.raft
        if raft.leadership:
            raft.leadership.tell_commit()
        snapshot = raft.log.unstable.take_snapshot()
        # A snapshot is stored by itself: the machine is replaced, and nothing else changes with it.
        entries = [] if snapshot else raft.log.unstable.take_entries()
        writes = bool(snapshot or entries or (raft.term, raft.vote) != self._stored_vote)
        messages, raft.messages = raft.messages, []
        after_sync, raft.messages_after_sync = raft.messages_after_sync, []
        if after_sync and not writes and self._numbers_taken == self._numbers_stored:
            messages, after_sync = messages + after_sync, []  # all they depend on is durable
        must_store = writes or bool(after_sync)
        committed = self._take_committed()
        reads = self._take_reads()
        failed_reads, raft.failed_reads = raft.failed_reads, []
        if not (must_store or committed or reads or failed_reads or messages):
            return None
        log_end = (snapshot.index, snapshot.term) if snapshot else (raft.log.last_index, raft.log.last_term)
        if must_store:
            self._numbers_taken += 1
            self._stored_vote = raft.term, raft.vote
        return Ready(
            self._numbers_taken if must_store else 0,
            HardState(raft.term, raft.vote, min(raft.log.committed, log_end[0])),
            log_end,
            must_store,
            snapshot,
            entries,
            committed,
            reads,
            failed_reads,
            messages,
            after_sync,
        )

    def after_sync(self, ready: Ready) -> list[Message]:
        """What may be sent now that the Ready is durable.

        Who stands no more asks nobody: a later write may be durable too, and have taken entries that the request
        promises.
        """
        raft = self.raft
        return [
            message
            for message in ready.messages_after_sync
            if not isinstance(message, VoteRequest) or (raft.role, raft.term) == (Role.CANDIDATE, message.term)
        ]

    @_unless_failed
    def stored(self, ready: Ready) -> None:
        """Everything of the Ready, and of all before it, is durable."""
        if ready.number != self._numbers_stored + 1:
            raise InvariantBroken(f"Ready {ready.number} is stored behind Ready {self._numbers_stored}")
        self._numbers_stored += 1
        if ready.snapshot:
            self._changes.clear()
            self.raft.log.snapshot_stable(ready.snapshot)
            self._applying.free_to(ready.snapshot.index)
        if ready.entries:
            self.raft.log.stored.append(ready.entries)
        self.raft.stored(ready.hard_state.term, *ready.log_end)

    @_unless_failed
    def applied(self, index: int) -> None:
        """The machine has applied everything up to `index`."""
        log = self.raft.log
        if index <= log.applied or log.unstable.snapshot:
            return  # a snapshot takes, or took, the place of what was applied
        log.applied_to(index)
        self._applying.free_to(index)
        while self._changes and self._changes[0].index <= index:
            self.raft.apply_change(self._changes.popleft())
        self.raft.applied()

    def _take_committed(self) -> list[Entry]:
        if self._applying.full:
            return []
        room_bytes = self.raft.options.applying_bytes - self._applying.bytes
        committed = self.raft.log.take_committed(room_bytes)
        if committed:
            self._applying.add(committed[-1].index, size_bytes(committed))
            self._changes += [entry for entry in committed if entry.kind is EntryKind.CONFIGURATION]
        return committed

    def _take_reads(self) -> list[int]:
        """Those confirmed whose index is applied."""
        raft = self.raft
        if raft.confirmed_reads:
            self._reads += raft.confirmed_reads
            raft.confirmed_reads = []
        if not self._reads:
            return []
        applied = raft.log.applied
        reads = [context for context, index in self._reads if index <= applied]
        self._reads = [(context, index) for context, index in self._reads if index > applied]
        return reads

    def _leadership(self) -> Leadership:
        if self.raft.leadership is None:
            raise Refused(Reason.NOT_LEADER, f"the leader is {self.raft.leader}" if self.raft.leader else "")
        return self.raft.leadership
