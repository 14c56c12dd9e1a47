"""The checker of histories finds what must not be, and nothing else."""

from __future__ import annotations

import random

import pytest

from tests.simulation.linearizability import NEVER, Operation, Register, is_linearizable
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op

OK = ErrorCode.OK


def write(began: int, ended: int, data: bytes, error: int | None = OK, seen: int | None = None) -> Operation:
    return Operation(Op.SET_DATA, data, -1, began, ended, error, None, seen)


def made(began: int, ended: int, data: bytes) -> Operation:
    return Operation(Op.CREATE, data, -1, began, ended, OK, None, None)


def seen(began: int, ended: int, data: bytes, version: int | None = None) -> Operation:
    return Operation(Op.GET_DATA, b"", -1, began, ended, OK, data, version)


def lost(began: int, data: bytes) -> Operation:
    return write(began, NEVER, data, None)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], True),
        ([made(1, 2, b"a"), seen(3, 4, b"a")], True),
        ([made(1, 2, b"a"), write(3, 4, b"b"), seen(5, 6, b"a")], False),
        ([made(1, 2, b"a"), write(3, 6, b"b"), seen(4, 5, b"a"), seen(7, 8, b"b")], True),
        ([made(1, 2, b"a"), write(3, 8, b"b"), seen(4, 5, b"b"), seen(6, 7, b"a")], False),
        ([made(1, 2, b"a"), lost(3, b"b"), seen(4, 5, b"a"), seen(6, 7, b"b")], True),
        ([made(1, 2, b"a"), lost(3, b"b"), seen(4, 5, b"b"), seen(6, 7, b"a")], False),
        ([made(1, 2, b"a"), lost(3, b"b")], True),
        ([made(1, 2, b"a"), write(3, 4, b"b", seen=1), write(5, 6, b"c", seen=1)], False),
        ([made(1, 2, b"a"), write(3, 4, b"b", ErrorCode.NO_NODE)], False),
        ([made(1, 2, b"a"), made(3, 4, b"b")], False),
        ([made(1, 2, b"a"), seen(3, 4, b"a", 1)], False),
    ],
)
def test_verdict(history: list[Operation], expected: bool) -> None:
    assert is_linearizable(history) is expected


@pytest.mark.parametrize("seed", range(20))
def test_what_one_copy_answered_is_linearizable_and_a_swapped_read_is_not(seed: int) -> None:
    chance = random.Random(seed)
    state: Register | None = Register(b"0", 0)
    history = [made(0, 1, b"0")]
    clock = 2
    for number in range(1, 40):
        began, ended = clock - chance.randrange(3), clock + chance.randrange(3)
        if chance.random() < 0.5:
            assert state is not None
            state = Register(b"%d" % number, state.version + 1)
            history.append(write(began, ended, state.data, seen=state.version))
        else:
            assert state is not None
            history.append(seen(began, ended, state.data))
        clock += 4
    assert is_linearizable(history)
    history += [seen(clock, clock + 1, b"0")]
    assert not is_linearizable(history)
