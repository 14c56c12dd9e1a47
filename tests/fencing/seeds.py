"""Many runs of the model."""

from __future__ import annotations

from collections import Counter

from tests.fencing.model import Model
from tests.fencing.resources import Violation


def run_seeds(first: int, how_many: int) -> Counter[str]:
    """What happened in all of them. Raises Violation with the seed."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + how_many):
        model = Model(seed)
        try:
            model.run()
        except Exception as error:
            raise Violation(
                f"{type(error).__name__} {error}\nseed {seed}: python -m tests.fencing --seeds {seed} 1"
            ) from error
        counts["held"] += len(model.tokens)
        counts["accepted"] += len(model.guarded.accepted)
        counts["rejected"] += model.rejected
        counts["written under plain locks"] += model.plain.writes
        counts["lost by plain locks"] += model.plain.lost
        counts["runs in which plain locks lost"] += model.plain.lost > 0
    return counts
