"""A server killed under load, for as many rounds as a run of the tests has time for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.kill_under_load import run

#: `make crash KILLS=N` kills as often as is wanted.
ROUNDS = 20


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_by_kills_under_load(tmp_path: Path) -> None:
    assert run(tmp_path, rounds=ROUNDS, seed=random.randrange(10**6)) > 0
