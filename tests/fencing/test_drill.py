"""The fencing safety test on real processes; `python -m tests.fencing --rounds COUNT` runs more of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fencing.drill import run_drill

ROUNDS = 3
BASE_PORT = 27400


def test_the_guard_accepts_no_token_out_of_order_and_plain_locks_lose_writes(tmp_path: Path) -> None:
    counts = asyncio.run(run_drill(tmp_path, BASE_PORT, ROUNDS, print))
    assert counts["lost"] > 0, "the test would not see what fencing prevents"
    assert counts["rejected"] > 0
