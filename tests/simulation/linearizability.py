"""Whether a history of one znode is linearizable, from what the clients saw alone (Wing and Gong, with Lowe's memory).

It knows nothing of zxids, logs or members: only when each call began and ended, what was asked and what was answered.
A call without an answer may have taken effect at any time after it began, or never.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.simulation.calls import Call
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op

NEVER = sys.maxsize
#: Histories that take longer are left undecided.
STEPS_LIMIT = 200_000
ANY_VERSION = -1


class Register(NamedTuple):
    """A znode: what was written last, and how often it was set. None stands for no znode."""

    data: bytes
    version: int


class Undecided(Exception):
    """It would take too long."""


class Operation(NamedTuple):
    """A call on one znode. `error` None: nobody knows what became of it."""

    op: int
    data: bytes
    version: int
    began: int
    ended: int
    error: int | None
    seen_data: bytes | None
    seen_version: int | None

    def after(self, state: Register | None) -> Iterator[Register | None]:
        """The states that there can be if it takes effect in this one; none if its answer is not so."""
        expected, after = self._effect(state)
        if self.error is None:
            if expected == ErrorCode.OK:
                yield after
            return
        if self.error != expected:
            return
        seen = after if self.op in (Op.SET_DATA, Op.GET_DATA, Op.EXISTS) else None
        if seen is not None and not self.error:
            if self.seen_data is not None and self.seen_data != seen.data:
                return
            if self.seen_version is not None and self.seen_version != seen.version:
                return
        yield after

    def _effect(self, state: Register | None) -> tuple[int, Register | None]:
        if self.op == Op.CREATE:
            return (ErrorCode.NODE_EXISTS, state) if state else (ErrorCode.OK, Register(self.data, 0))
        if state is None:
            return ErrorCode.NO_NODE, None
        if self.op in (Op.GET_DATA, Op.EXISTS):
            return ErrorCode.OK, state
        if self.version not in (ANY_VERSION, state.version):
            return ErrorCode.BAD_VERSION, state
        if self.op == Op.DELETE:
            return ErrorCode.OK, None
        return ErrorCode.OK, Register(self.data, state.version + 1)


def operations(calls: Iterable[Call], path: bytes) -> list[Operation]:
    """The calls on this znode, those within others too."""
    found = []
    for call in calls:
        if call.ended is not None and not call.is_done:
            continue  # the member did nothing
        if call.path == path and call.op in (Op.CREATE, Op.SET_DATA, Op.DELETE, Op.GET_DATA, Op.EXISTS):
            found.append(_operation(call, call))
        for part in call.parts:
            failed = call.ended is not None and (call.error or call.body.startswith(b"\xff\xff\xff\xff"))
            if part.path == path and not failed:
                found.append(_operation(call, part))
    return found


def _operation(call: Call, part: Call) -> Operation:
    if call.ended is None:
        return Operation(part.op, part.data, part.version, call.began, NEVER, None, None, None)
    seen_data = seen_version = None
    if call is part and not call.error and call.op in (Op.SET_DATA, Op.GET_DATA, Op.EXISTS):
        seen_version = int.from_bytes(call.body[-36:-32], signed=True)
        if call.op == Op.GET_DATA:
            seen_data = call.body[4:-68]
    return Operation(part.op, part.data, part.version, call.began, call.ended, call.error, seen_data, seen_version)


def is_linearizable(history: list[Operation]) -> bool:
    """Whether there is an order that explains all answers. Raises Undecided."""
    history = sorted(history, key=lambda operation: operation.began)
    known = sum(1 << place for place, operation in enumerate(history) if operation.error is not None)
    tried: set[tuple[int, Register | None]] = set()
    steps = 0
    stack: list[tuple[int, int, Register | None]] = [((1 << len(history)) - 1, 0, None)]
    while stack:
        left, first, state = stack.pop()
        if not left & known:
            return True
        while not left >> first & 1:
            first += 1
        first_end = NEVER
        candidates = []
        for place in range(first, len(history)):
            operation = history[place]
            if operation.began > first_end:
                break
            if left >> place & 1:
                first_end = min(first_end, operation.ended)
                candidates.append(place)
        for place in reversed(candidates):
            steps += 1
            if steps > STEPS_LIMIT:
                raise Undecided
            for after in history[place].after(state):
                key = left & ~(1 << place), after
                if key not in tried:
                    tried.add(key)
                    stack.append((key[0], first, after))
    return False
