"""The guard of a resource that one process owns."""

from __future__ import annotations

import threading

import pytest

from znoded.fencing import InProcessGuard, StaleToken


def test_a_lower_token_is_rejected_and_the_same_is_not() -> None:
    guard = InProcessGuard()
    assert guard.highest("a") is None
    for token in (5, 5, 7):
        with guard.holding("a", token):
            pass
    with pytest.raises(StaleToken, match="token 6 for 'a' is stale: token 7 has been here") as raised:
        guard.holding("a", 6).__enter__()
    assert (raised.value.object_name, raised.value.token, raised.value.highest) == ("a", 6, 7)
    assert guard.highest("a") == 7
    with guard.holding("b", 1):
        pass


def test_nobody_is_let_in_beside_another() -> None:
    guard = InProcessGuard()
    entered: list[int] = []

    def work() -> None:
        with guard.holding("a", 2):
            entered.append(2)

    with guard.holding("a", 1):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.05)
        assert entered == []
    thread.join()
    assert entered == [2]


def test_who_fails_inside_lets_the_next_one_in() -> None:
    guard = InProcessGuard()
    with pytest.raises(RuntimeError), guard.holding("a", 1):
        raise RuntimeError
    with guard.holding("a", 1):
        pass


def test_who_is_inside_of_one_object_keeps_nobody_out_of_another() -> None:
    guard = InProcessGuard()
    entered: list[str] = []

    def work() -> None:
        with guard.holding("a", 1), guard.holding("b", 1):
            entered.append("both")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5.0)
    assert entered == ["both"]


def test_a_block_in_a_block_of_the_same_object_does_not_wait_for_itself() -> None:
    guard = InProcessGuard()
    with guard.holding("a", 1):
        with pytest.raises(RuntimeError, match="this thread is in a block of a already"), guard.holding("a", 2):
            pass
        assert guard.highest("a") == 1
    with guard.holding("a", 2):
        pass
