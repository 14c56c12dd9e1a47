"""The core's guards, one by one: each is taken out of a copy of the code, and the suite has to fail.

    python -m tests.zab_raft.core.mutants                          all of them
    python -m tests.zab_raft.core.mutants NAME ..                  some
    python -m tests.zab_raft.core.mutants --simulate 300 [NAME ..] by the simulator alone, with so many seeds

A mutant that lives through the suite shows a hole in the tests. Not every one can be found by the simulator.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.zab_raft.core.guards import MUTANTS, Mutant

ROOT = Path(__file__).parents[3]
CORE = Path("znoded/zab_raft/core")
SECONDS_LIMIT = 300


def mutated(mutant: Mutant, text: str) -> str:
    """The source without the guard. Raises ValueError if the guard is not there once."""
    if text.count(mutant.guard) != 1:
        raise ValueError(f"{mutant.name}: the guard is {text.count(mutant.guard)} times in {mutant.file}")
    return text.replace(mutant.guard, mutant.without)


SUITE = ["pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/zab_raft/core"]
SUITE += ["--ignore=tests/zab_raft/core/test_mutants.py"]


def survives(mutant: Mutant, directory: Path, module: list[str]) -> bool:
    """Whether the module passes on a copy of the code without the guard."""
    for package in ("znoded", "tests"):
        shutil.copytree(
            ROOT / package,
            directory / package,
            ignore=lambda folder, names: [name for name in names if not _is_needed(Path(folder) / name)],
        )
    shutil.copy(ROOT / "pyproject.toml", directory)
    source = directory / CORE / mutant.file
    source.write_text(mutated(mutant, source.read_text()))
    command = [sys.executable, "-m", *module]
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, timeout=SECONDS_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: it says {ran.stdout.decode()[-2000:]}")
    if ran.returncode:
        failed = [line for line in ran.stdout.decode().splitlines() if line.startswith(("FAILED", "Violation"))]
        by = failed[0].split(" - ")[0].removeprefix("FAILED ") if failed else "?"
        print(f"killed    {mutant.name} by {by}", flush=True)
    return ran.returncode == 0


def _is_needed(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    if "__pycache__" in parts or ".hypothesis" in parts:
        return False
    if parts[0] == "znoded" or path.name == "__init__.py" or (len(parts) == 2 and path.suffix == ".py"):
        return True
    return parts[:2] == ("tests", "zab_raft") and (len(parts) == 2 or parts[2] == "core")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take out each guard of the core: the tests have to notice.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--simulate", metavar="SEEDS", help="by the simulator alone")
    arguments = parser.parse_args()
    simulate = ["tests.zab_raft.core.simulation", "--stop", "--seeds", "0", arguments.simulate]
    chosen = [mutant for mutant in MUTANTS if not arguments.names or mutant.name in arguments.names]
    living = 0
    for mutant in chosen:
        with tempfile.TemporaryDirectory() as directory:
            if survives(mutant, Path(directory), simulate if arguments.simulate else SUITE):
                living += 1
                print(f"LIVES     {mutant.name}", flush=True)
    print(f"{living} of {len(chosen)} live")
    sys.exit(bool(living))


if __name__ == "__main__":
    main()
