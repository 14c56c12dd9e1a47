"""The drill's checker of histories finds what is wrong and leaves alone what is right."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cell_drill.linearizability import NotLinearizable, Operation, check_register, check_values

INITIAL = b"initial"


def write(value: bytes, invoked_s: float, responded_s: float = math.inf) -> Operation:
    return Operation(True, value, invoked_s, responded_s)


def read(value: bytes, invoked_s: float, responded_s: float) -> Operation:
    return Operation(False, value, invoked_s, responded_s)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="nothing"),
        pytest.param([read(INITIAL, 1, 2), write(b"a", 3, 4), read(b"a", 5, 6)], id="one after another"),
        pytest.param([write(b"a", 1, 9), read(INITIAL, 2, 3), read(b"a", 4, 5)], id="reads during a write"),
        pytest.param([write(b"a", 1), read(INITIAL, 5, 6), read(b"a", 7, 8)], id="an unknown write takes effect late"),
        pytest.param([write(b"a", 1), read(INITIAL, 5, 6)], id="an unknown write has no effect"),
        pytest.param([write(b"a", 1, 5), write(b"b", 1, 5), read(b"b", 6, 7)], id="two writes at once"),
    ],
)
def test_what_a_register_can_do_is_linearizable(history: list[Operation]) -> None:
    check_register(INITIAL, history)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([write(b"a", 1, 2), read(INITIAL, 3, 4)], id="a stale read"),
        pytest.param([write(b"a", 1, 9), read(b"a", 2, 3), read(INITIAL, 4, 5)], id="back to the old value"),
        pytest.param([write(b"a", 1), read(b"a", 2, 3), read(INITIAL, 4, 5)], id="back behind an unknown write"),
        pytest.param([read(b"a", 1, 2), write(b"a", 3, 4)], id="read before it was written"),
        pytest.param([read(b"b", 1, 2)], id="read and never written"),
        pytest.param([write(b"a", 1, 2), write(b"b", 3, 4), read(b"a", 5, 6)], id="an acknowledged write is lost"),
        pytest.param(
            [write(b"a", 1, 9), write(b"b", 1, 9), read(b"a", 2, 3), read(b"b", 4, 5), read(b"a", 6, 7)],
            id="a value comes back",
        ),
    ],
)
def test_what_no_register_can_do_is_found(history: list[Operation]) -> None:
    with pytest.raises(NotLinearizable):
        check_register(INITIAL, history)


def test_a_version_that_two_values_had_is_found() -> None:
    first, second = write(b"a", 1, 2), write(b"b", 3, 4)
    first.version = second.version = 1
    with pytest.raises(NotLinearizable, match="version 1"):
        check_register(INITIAL, [first, second])


def test_a_write_that_took_effect_twice_is_found() -> None:
    first, again = read(b"a", 3, 4), read(b"a", 5, 6)
    first.version, again.version = 1, 2
    with pytest.raises(NotLinearizable, match="twice"):
        check_register(INITIAL, [write(b"a", 1, 2), first, again])


def test_versions_against_the_order_of_time_are_found() -> None:
    first, second = write(b"a", 1, 2), write(b"b", 3, 4)
    first.version, second.version = 2, 1
    with pytest.raises(NotLinearizable, match="after version 2"):
        check_register(INITIAL, [first, second])


OPERATIONS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 12), st.integers(1, 6), st.booleans()), max_size=7
)


@given(OPERATIONS)
def test_the_verdict_is_that_of_a_search_through_all_orders(
    drawn: list[tuple[bool, int, int, int, bool]],
) -> None:
    # Times are made distinct, since two events of a real history never fall together.
    order = random.Random(len(drawn))
    history, written = [], {INITIAL}
    for number, (is_write, value, invoked, length, is_unknown) in enumerate(drawn):
        name = b"%d" % value
        invoked_s = invoked + number / 100 + order.random() / 1000
        responded_s = invoked_s + length
        if is_write and name not in written:
            written.add(name)
            history.append(write(name, invoked_s, math.inf if is_unknown else responded_s))
        elif not is_write:
            history.append(read(name if value else INITIAL, invoked_s, responded_s))
    try:
        check_values(INITIAL, history)
        verdict = True
    except NotLinearizable:
        verdict = False
    assert verdict == is_linearizable(INITIAL, history)


def is_linearizable(value: bytes, rest: list[Operation]) -> bool:
    """The definition: some operation that nothing precedes goes first, and what is left is linearizable behind it."""
    if all(operation.responded_s == math.inf for operation in rest):
        return True
    first_response_s = min(operation.responded_s for operation in rest)
    return any(
        is_linearizable(operation.value, rest[:number] + rest[number + 1 :])
        for number, operation in enumerate(rest)
        if operation.invoked_s <= first_response_s and (operation.is_write or operation.value == value)
    )
