"""Cells of whole replicas under random trouble. More seeds: see `trouble`."""

from __future__ import annotations

import pytest

from tests.zab_raft.cell import trouble


@pytest.mark.parametrize("seed", [126, *range(20)])
def test_cell_agrees_after_trouble_and_kept_its_word(seed: int) -> None:
    trouble.run(seed)
