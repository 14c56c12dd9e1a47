"""The core is a pure machine: it imports nothing that touches the world, and it does what its calls say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parents[3] / "znoded" / "zab_raft" / "core"
SOURCES = sorted(CORE.glob("*.py"))
ALLOWED = {"__future__", "collections", "dataclasses", "enum", "functools", "typing", "znoded"}


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_s14_the_core_imports_no_thread_clock_or_random_source(path: Path) -> None:
    imports = imports_of(path)
    assert {name.split(".")[0] for name in imports} <= ALLOWED
    ours = {name for name in imports if name.startswith("znoded")}
    assert all(f"{name}.".startswith(("znoded.zab_raft.core.", "znoded.jute.")) for name in ours)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_checks_survive_optimisation(path: Path) -> None:
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(path.read_text())))
