"""A cell in one hand, for units and scenarios: every message, sync and tick happens when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import NOBODY, Entry, EntryKind, HardState, Message, Snapshot
from znoded.zab_raft.core.node import Node, Ready, Role
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.stored import StoredLog

Filter = Callable[[Message], bool]


def everything(_message: Message) -> bool:
    return True


class Member:
    """A node, its durable state, and what came out of it.

    While `syncs` all writes are durable at once, otherwise when `sync` is called; likewise `applies` and `apply`. The
    random number of its timeouts is `random_number`.
    """

    def __init__(self, cell: Cell, member: int, stored: StoredLog, hard_state: HardState, options: Options) -> None:
        self.id = member
        self.syncs = True
        self.applies = True
        self.random_number = 0
        self.applied: list[Entry] = []
        self.reads: list[int] = []
        self.failed_reads: list[int] = []
        self.writes: deque[Ready] = deque()
        self.to_apply: deque[Entry] = deque()
        self._cell = cell
        self._options = options
        self.snapshot = stored.snapshot
        self.entries = stored.slice(stored.first_index, stored.last_index + 1)
        self.hard_state = hard_state
        self.node = self._new_node()

    @property
    def commands(self) -> list[bytes]:
        """The commands applied, in order."""
        return [entry.data for entry in self.applied if entry.kind is EntryKind.COMMAND]

    def _new_node(self) -> Node:
        stored = StoredLog(self.snapshot, self.entries)
        return Node(self.id, stored, self.hard_state, lambda below: min(self.random_number, below - 1), self._options)

    def pump(self) -> None:
        """Do what the node wants done."""
        while (ready := self.node.ready()) is not None:
            self._cell.note_state(self)
            self._cell.sent(ready.messages)
            if ready.must_store:
                self.writes.append(ready)
            self.to_apply += ready.committed
            self._note_reads(ready)
            if self.syncs:
                self.sync()
            if self.applies:
                self.apply()
        self._cell.note_state(self)

    def sync(self, count: int | None = None) -> None:
        """The first writes, or all, become durable."""
        for _ in range(len(self.writes) if count is None else count):
            ready = self.writes.popleft()
            self._write(ready)
            self._cell.sent(self.node.after_sync(ready))
            self.node.stored(ready)

    def apply(self) -> None:
        while self.to_apply:
            entry = self.to_apply.popleft()
            self.applied.append(entry)
            self._cell.note(f"{self.id} applies {describe_entry(entry)}")
            self.node.applied(entry.index)

    def restart(self, writes_kept: int = 0) -> None:
        """The process ends, and begins again with what is durable."""
        for _ in range(writes_kept):
            self._write(self.writes.popleft())
        self.writes.clear()
        self.to_apply.clear()
        del self.applied[:]
        self.node = self._new_node()
        self.pump()

    def compact(self, keep_from: int | None = None) -> None:
        """A checkpoint of what is applied."""
        snapshot = self.node.snapshot()
        assert snapshot is not None
        self.node.compact(snapshot, snapshot.index + 1 if keep_from is None else keep_from)
        self.entries = [entry for entry in self.entries if entry.index > snapshot.index]
        self.snapshot = snapshot

    def log(self) -> list[tuple[int, int, bytes]]:
        """Index, term and data of what is in the log."""
        log = self.node.raft.log
        entries = log.slice(log.first_index, log.last_index + 1, 1 << 40)
        return [(entry.index, entry.term, entry.data) for entry in entries]

    def _write(self, ready: Ready) -> None:
        if ready.snapshot:
            self.snapshot, self.entries = ready.snapshot, []
            self._cell.note(f"{self.id} installs the snapshot of {ready.snapshot.index}")
        if ready.entries:
            keep = ready.entries[0].index - self.snapshot.index - 1
            self.entries = [*self.entries[:keep], *ready.entries]
        self.hard_state = ready.hard_state

    def _note_reads(self, ready: Ready) -> None:
        self.reads += ready.reads
        self.failed_reads += ready.failed_reads
        for context in ready.reads:
            self._cell.note(f"{self.id} serves read {context} at {self.node.applied_index}")
        for context in ready.failed_reads:
            self._cell.note(f"{self.id} fails read {context}")


class Cell:
    """Members, and the messages between them that were not delivered yet, oldest first."""

    def __init__(
        self, voters: Iterable[int] = (1, 2, 3), learners: Iterable[int] = (), options: Options | None = None
    ) -> None:
        self.transit: list[Message] = []
        self.notes: list[str] = []
        self.members: dict[int, Member] = {}
        self._options = options or Options()
        self._states: dict[int, tuple[object, ...]] = {}
        configuration = Configuration.of(voters, learners)
        for member in sorted(configuration.members):
            self.add(member, configuration)

    def __getitem__(self, member: int) -> Node:
        return self.members[member].node

    def add(
        self,
        member: int,
        configuration: Configuration | None = None,
        entries: Iterable[Entry] = (),
        hard_state: HardState | None = None,
        snapshot: Snapshot | None = None,
    ) -> Member:
        """A member starts; without a configuration it is one that is to join."""
        first = snapshot or Snapshot(0, 0, configuration or Configuration())
        stored = StoredLog(first, list(entries))
        self.members[member] = new = Member(self, member, stored, hard_state or HardState(), self._options)
        self._states[member] = self._state(new)
        return new

    @property
    def leader(self) -> Member | None:
        """The leader of the greatest term."""
        leaders = [member for member in self.members.values() if member.node.role is Role.LEADER]
        return max(leaders, key=lambda member: member.node.term, default=None)

    def elect(self, member: int) -> Node:
        """Have a member win an election at peace."""
        for other in self.members.values():
            other.node.forget_leader()
        self.do(member, lambda node: node.campaign())
        self.settle()
        assert self[member].role is Role.LEADER
        return self[member]

    def do(self, member: int, action: Callable[[Node], object]) -> None:
        """Call a node, and do what it then wants done."""
        action(self[member])
        self.members[member].pump()

    def propose(self, member: int, *commands: bytes) -> None:
        self.do(member, lambda node: node.propose(commands))

    def step(self, message: Message) -> None:
        """A message arrives that nobody sent."""
        self.do(message.to, lambda node: node.step(message))

    def tick(self, member: int, count: int = 1) -> None:
        for _ in range(count):
            self.do(member, lambda node: node.tick())

    def take(self, which: Filter = everything) -> list[Message]:
        """Take messages out of the network."""
        taken = [message for message in self.transit if which(message)]
        self.transit = [message for message in self.transit if not which(message)]
        return taken

    def deliver(self, which: Filter = everything, more: bool = False) -> None:
        """Deliver the messages there are; `more`: and those that they lead to."""
        while messages := self.take(lambda message: which(message) and message.to in self.members):
            for message in messages:
                self.do(message.to, lambda node, message=message: node.step(message))  # type: ignore[misc]
            if not more:
                return

    def settle(self, which: Filter = everything) -> None:
        """Deliver until nothing is under way."""
        self.deliver(which, more=True)

    # Notes, for scenarios

    def note(self, text: str) -> None:
        self.notes.append(text)

    def sent(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.transit.append(message)
            self.note(describe(message))

    def note_state(self, member: Member) -> None:
        """Note what changed."""
        before, after = self._states[member.id], self._state(member)
        if before == after:
            return
        self._states[member.id] = after
        role, term, leader, commit, configuration = after
        if before[:3] != after[:3]:
            follows = f" of {leader}" if leader not in (NOBODY, member.id) else ""
            self.note(f"{member.id} is {role}{follows} in term {term}")
        if before[3] != commit:
            self.note(f"{member.id} commits {commit}")
        if before[4] != configuration:
            self.note(f"{member.id} has {configuration}")

    @staticmethod
    def _state(member: Member) -> tuple[object, ...]:
        node = member.node
        return (node.role.value, node.term, node.leader, node.committed_index, str(node.configuration))


def describe_entry(entry: Entry) -> str:
    name = entry.data.decode() if entry.kind is EntryKind.COMMAND else entry.kind.name.lower()
    return f"{entry.index}/{entry.term} {name}"


def describe(message: Message) -> str:
    """One line: who to whom, what, and what is not zero or false."""
    fields = message._asdict()
    parts = [f"{fields.pop('sender')}->{fields.pop('to')} {type(message).__name__}"]
    for name, value in fields.items():
        if name == "entries":
            value = "[" + ", ".join(describe_entry(entry) for entry in value) + "]" if value else ""
        elif name == "snapshot":
            value = f"({value.index}/{value.term} {value.configuration})"
        if value is True:
            parts.append(name)
        elif value:
            parts.append(f"{name}={value}")
    return " ".join(parts)
