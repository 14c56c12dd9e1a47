"""Simulated cells: no invariant breaks, the cell always comes back, and a seed says it all."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.zab_raft.core.simulation import Simulation

SEEDS = int(os.environ.get("ZNODED_SEEDS", "24"))
FAILED_ONCE: tuple[int, ...] = ()
"""Seeds that ever found something; they are run for ever."""


@pytest.mark.parametrize("seed", [*FAILED_ONCE, *range(SEEDS)])
def test_a_simulated_cell_keeps_every_invariant_and_comes_back(seed: int) -> None:
    Simulation(seed).run()


def test_the_seeds_try_what_they_are_meant_to_try() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS, 2 * SEEDS):
        run = Simulation(seed)
        run.run()
        reached += run.reached
    wanted = {
        "crash", "lost write", "read", "failed read", "cut of the log", "snapshot", "change", "joint change",
        "removed leader", "TimeoutNow", "ReadRequest", "TRANSFERRING", "TAIL_FULL", "CHANGE_PENDING", "BAD_CHANGE",
    }  # fmt: skip
    assert wanted <= reached.keys()


@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    runs = [Simulation(seed) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].trace_hash.digest() == runs[1].trace_hash.digest()
