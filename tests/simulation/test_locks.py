"""Fenced locks in simulated cells: no token behind a greater one (F1), and no holder while another may hold on (F2)."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext

import pytest

from tests.fencing.resources import Violation as ResourceViolation
from tests.simulation import locks
from tests.zab_raft.core.history import Violation
from znoded.fencing import InProcessGuard
from znoded.recipes.tenure import Tenure

#: Seeds that found something once.
FAILED_SEEDS = (1796185770, 1796187311, 1796205961, 8000236, 1796423431321)
SEEDS = int(os.environ.get("ZNODED_LOCK_SEEDS", "12"))


def test_the_guard_accepts_no_token_out_of_order_and_plain_locks_lose_writes() -> None:
    reached = locks.run_seeds(0, SEEDS)
    assert reached["lost by plain locks"] > 0, "the test would not see what fencing prevents"
    assert reached["rejected"] > 0
    assert reached["accepted"] > reached["rejected"]


@pytest.mark.parametrize("seed", FAILED_SEEDS)
def test_seeds_that_failed_once(seed: int) -> None:
    locks.run(seed)


def test_fresh_seeds() -> None:
    locks.run_seeds(time.time_ns() // 1_000_000, 3)


def test_a_guard_that_lets_everybody_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InProcessGuard, "holding", lambda guard, name, token: nullcontext())
    with pytest.raises(Violation, match=ResourceViolation.__name__):
        locks.run_seeds(0, SEEDS)


def test_a_lock_that_lets_everybody_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "predecessor", lambda *_: None)
    with pytest.raises(Violation, match="F1|F2"):
        locks.run_seeds(0, SEEDS)


def test_a_holder_that_trusts_its_lease_for_too_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "Tenure", lambda heard_s, timeout_s, grace_s: Tenure(heard_s, 1.5 * timeout_s, grace_s))
    with pytest.raises(Violation, match="F2"):
        locks.run_seeds(0, SEEDS)
