"""Simulated cells of whole members: no invariant breaks, the cell always comes back, and a seed says it all."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.simulation import run

SEEDS = int(os.environ.get("ZNODED_SEEDS", "24"))
FRESH_SEEDS = int(os.environ.get("ZNODED_FRESH_SEEDS", "40"))
#: Seeds that ever found something; they are run for ever.
FAILED_ONCE = [int(line) for line in (Path(__file__).parent / "failed_seeds.txt").read_text().split()]


@pytest.mark.parametrize("seed", [*FAILED_ONCE, *range(SEEDS)])
def test_a_simulated_cell_keeps_every_invariant_and_comes_back(seed: int) -> None:
    run(seed)


def test_no_fresh_seed_finds_anything() -> None:
    """The violation names the seed; put it into `failed_seeds.txt` once it is understood."""
    first = time.time_ns() // 1_000_000
    for seed in range(first, first + FRESH_SEEDS):
        run(seed)


def test_the_seeds_try_what_they_are_meant_to_try() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS, 3 * SEEDS):
        reached += run(seed).reached
    wanted = {
        "kill", "power cut", "stop", "pause", "suspend", "full disk", "failing disk", "checkpoint", "reconfig",
        "attach", "read", "expired", "session ended", "snapshot", "Forward", "Change", "TimeoutNow", "ReadRequest",
        "refused write",
    }  # fmt: skip
    assert wanted <= reached.keys()


@pytest.mark.parametrize("seed", [3, 16])
def test_the_same_seed_is_the_same_run_to_the_byte(seed: int) -> None:
    digests = {run(seed).world.digest.digest() for _ in range(2)}
    assert len(digests) == 1
