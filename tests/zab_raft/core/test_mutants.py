"""Every mutant still fits the code; `python -m tests.zab_raft.core.mutants` shows that the suite kills them."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.guards import MUTANTS, Mutant
from tests.zab_raft.core.mutants import CORE, ROOT, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    path = ROOT / CORE / mutant.file
    compile(mutated(mutant, path.read_text()), str(path), "exec")


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
