"""The simulator finds planted bugs; `python -m tests.simulation.planted --seeds 100` tells how often."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTED, finds, planted

#: Those that nearly every run meets, so that the test takes no time; and one that a few do.
QUICK = [
    "reads-without-the-gate", "acknowledged-before-it-is-durable", "commands-of-an-old-attach-apply",
    "notified-behind-the-replies", "nothing-is-caught-up",
    "each-member-has-its-own-time", "no-grace-when-the-leader-changes",
]  # fmt: skip
SEEDS_MOST = 40


@pytest.mark.parametrize("name", QUICK)
def test_planted_bug_is_found(name: str) -> None:
    with planted(name):
        assert any(finds(seed) for seed in range(SEEDS_MOST))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLANTED.keys() - set(QUICK)))
def test_rarer_planted_bug_is_found(name: str) -> None:
    with planted(name):
        assert any(finds(seed) for seed in range(10 * SEEDS_MOST))
