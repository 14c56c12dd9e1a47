"""The one history that all members have to have: at each index a command, its result, its events, the state after it.

The first member that applies an index sets it down, all others have to agree. The state is kept as of every index, so
that any read can be compared with the state that it says it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.zab_raft.core.history import require
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.server.connection import ClientConnection
from znoded.tree.commands import ATTACH, EXPIRY_SEQUENCE, HEAD, HEAD_BYTES
from znoded.tree.tables import ReadTable
from znoded.tree.tree import Applied, Event, Tree

NOT_ADMITTED = (int(ErrorCode.SESSION_EXPIRED), int(ErrorCode.SESSION_MOVED))


class SessionState(NamedTuple):
    """A session as it is replicated."""

    timeout_ms: int
    password: bytes
    attach: int
    sequence: int
    ephemerals: frozenset[bytes]


class State(NamedTuple):
    """What is replicated, after one command."""

    nodes: dict[bytes, bytes]
    created: dict[bytes, int]
    sessions: dict[int, SessionState]
    term: int
    secret: bytes
    roster: bytes
    config_version: int
    session_numbers: dict[int, int]

    @classmethod
    def of(cls, tree: Tree) -> State:
        sessions = {
            each.id: SessionState(
                each.timeout_ms, each.password, each.attach, each.sequence, frozenset(each.ephemerals or ())
            )
            for each in tree.sessions.values()
        }
        return cls(
            dict(tree.nodes),
            dict(tree.created),
            sessions,
            tree.term,
            tree.cell_secret,
            tree.roster,
            tree.config_version,
            dict(tree.session_numbers),
        )


class Step(NamedTuple):
    """One command that was applied."""

    command: bytes
    result: Applied
    events: list[Event]
    state: State

    @property
    def op(self) -> int:
        op: int = HEAD.unpack_from(self.command)[4]
        return op

    @property
    def record(self) -> bytes:
        identities_bytes: int = HEAD.unpack_from(self.command)[5]
        return self.command[HEAD_BYTES + identities_bytes :]


class ObservedTree(Tree):
    """A tree that tells what becomes of it. `observe` and `loaded` are set by whoever makes the member."""

    observe: Callable[[ObservedTree, int, bytes, Applied], None] | None = None
    loaded: Callable[[Tree], None] | None = None

    def apply(self, zxid: int, command: bytes) -> Applied:
        result = super().apply(zxid, command)
        if self.observe is not None:
            self.observe(self, zxid, command, result)
        return result

    def load(self, read_table: ReadTable) -> None:
        super().load(read_table)
        if self.loaded is not None:
            self.loaded(self)


class NumberedConnection(ClientConnection):
    """A connection whose place among others does not depend on where in memory it lies."""

    __slots__ = ("number",)

    def __init__(self, member: Any, number: int) -> None:
        super().__init__(member)
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class Reference:
    """What was applied anywhere."""

    def __init__(self, admitted: Callable[[int, Step], None], ended: Callable[[int, Step], None]) -> None:
        """`admitted` is told of each command of a client that was taken, `ended` of each session's end."""
        self.steps: dict[int, Step] = {}
        self.last = 0
        #: Path -> the zxid and event type of each event, in order.
        self.changes_of: dict[bytes, list[tuple[int, int]]] = {}
        self.changes: list[tuple[int, int, bytes]] = []
        self.ended: set[int] = set()
        self._admitted = admitted
        self._ended = ended

    def applied(self, tree: Tree, index: int, command: bytes, result: Applied) -> None:
        """A member applied a command."""
        known = self.steps.get(index)
        if known is None:
            require(index > self.last, "S5", f"index {index} is applied first behind {self.last}")
            self._put_down(tree, index, command, result)
            return
        require(known.command == command, "S5", f"two commands at index {index}")
        require(known.result == result, "X4", f"two results at index {index}: {known.result} and {result}")
        require(known.events == tree.events, "X4", f"other events at index {index}")
        self.same_state(tree, index)

    def loaded(self, tree: Tree) -> None:
        """A member begins with a stored state."""
        if tree.zxid in self.steps:
            self.same_state(tree, tree.zxid)
        else:
            require(tree.zxid == 0, "S5", f"a state of index {tree.zxid}, which nobody applied")

    def same_state(self, tree: Tree, index: int) -> None:
        known, state = self.steps[index].state, State.of(tree)
        if known != state:
            differing = [name for name in State._fields if getattr(known, name) != getattr(state, name)]
            require(False, "S5", f"other {differing} at index {index}")

    def state(self, zxid: int) -> State:
        """The state that a reply of this zxid was made from."""
        step = self.steps.get(zxid)
        require(step is not None, "X5", f"no command has the zxid {zxid}")
        assert step is not None
        return step.state

    def changes_between(self, path: bytes, after: int, until: int) -> Iterable[tuple[int, int]]:
        """The events of a path with zxids above `after`, up to `until`."""
        found = []
        for zxid, event_type in reversed(self.changes_of.get(path, ())):
            if zxid <= after:
                break
            if zxid <= until:
                found.append((zxid, event_type))
        found.reverse()
        return found

    def _put_down(self, tree: Tree, index: int, command: bytes, result: Applied) -> None:
        step = self.steps[index] = Step(command, result, list(tree.events), State.of(tree))
        self.last = index
        for event_type, path, _acl in tree.events:
            self.changes_of.setdefault(path, []).append((index, event_type))
            self.changes.append((index, event_type, path))
        session_id, _, sequence, error, _ = result
        if len(command) < HEAD_BYTES:
            return
        op = step.op
        if op in (Op.CREATE_SESSION, ATTACH):
            return
        if op == Op.CLOSE_SESSION and not error:
            self.ended.add(session_id)
            self._ended(index, step)
        if sequence > 0 and error not in NOT_ADMITTED and sequence != EXPIRY_SEQUENCE:
            self._admitted(index, step)
