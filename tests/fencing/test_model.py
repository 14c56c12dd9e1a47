"""The fencing safety test, simulated: `python -m tests.fencing --seeds FIRST COUNT` runs more of it."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from tests.fencing.model import Model
from tests.fencing.resources import GuardedNumber, Violation
from tests.fencing.seeds import run_seeds
from znoded.fencing import InProcessGuard
from znoded.recipes.tenure import Tenure

SEEDS = 20


def test_the_guard_accepts_no_token_out_of_order_and_plain_locks_lose_writes() -> None:
    counts = run_seeds(0, SEEDS)
    assert counts["lost by plain locks"] > 0, "the test would not see what fencing prevents"
    assert counts["rejected"] > 0
    assert counts["accepted"] > counts["rejected"]


def test_fresh_seeds() -> None:
    run_seeds(time.time_ns() // 1_000_000, 3)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = Model(7), Model(7)
    for model in (first, second):
        model.run()
    assert first.house.log == second.house.log
    assert first.guarded.accepted == second.guarded.accepted


def test_a_guard_that_lets_everybody_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InProcessGuard, "holding", lambda guard, name, token: nullcontext())
    with pytest.raises(Violation):
        run_seeds(0, SEEDS)


def test_a_lock_that_lets_everybody_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fencing.model.predecessor", lambda *_: None)
    with pytest.raises(Violation, match="is not lost"):
        run_seeds(0, SEEDS)


def test_a_holder_that_trusts_its_lease_for_too_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fencing.model.Tenure", lambda heard_s, timeout_s, grace_s: Tenure(heard_s, 3, grace_s))
    with pytest.raises(Violation, match="is not lost"):
        run_seeds(0, SEEDS)


def test_the_check_sees_tokens_out_of_order_and_lost_writes() -> None:
    number = GuardedNumber()
    number.accepted = [3, 2]
    with pytest.raises(Violation, match="out of order"):
        number.check()
    number = GuardedNumber()
    number.write(2, number.read(1))
    number.write(3, 0)
    with pytest.raises(Violation, match="2 writes were accepted, the number is 1"):
        number.check()
