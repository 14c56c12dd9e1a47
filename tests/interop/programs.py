"""Client programs that are run once and report each of their checks by name, as `ok NAME` or `FAIL NAME: why`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM_TIMEOUT_S = 400
BUILD_TIMEOUT_S = 300
OUTPUT_TAIL_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Report:
    """What a program said of its checks: why each failed, `None` for one that passed."""

    outcomes: dict[str, str | None]
    output: str

    def expect_ok(self, name: str) -> None:
        """Fail the running test unless the check `name` passed."""
        if name not in self.outcomes:
            pytest.fail(f"the program did not report {name}; its output ends:\n{self.output}", pytrace=False)
        why = self.outcomes[name]
        if why is not None:
            pytest.fail(f"{why}\nThe program's output ends:\n{self.output}", pytrace=False)


def check_names(folder: Path, pattern: str, registration: str) -> list[str]:
    """The checks that a program has, in order, read from its sources, so that each can be a test of its own.

    `registration` is the regular expression whose first group is a check's name.
    """
    return [name for source in sorted(folder.glob(pattern)) for name in re.findall(registration, source.read_text())]


def build(command: Sequence[str], directory: Path, environment: dict[str, str] | None = None) -> None:
    """Run a compiler; fail the running test with what it printed when it does not succeed."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]} failed:\n{done.stdout}{done.stderr}", pytrace=False)


def run_checks(command: Sequence[str], directory: Path, environment: dict[str, str] | None = None) -> Report:
    """Run a program to its end and read its report."""
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S
    )
    outcomes: dict[str, str | None] = {}
    for line in done.stdout.splitlines():
        if passed := re.fullmatch(r"ok (\w+)", line):
            outcomes[passed[1]] = None
        elif failed := re.fullmatch(r"FAIL (\w+): (.*)", line):
            outcomes[failed[1]] = failed[2]
    return Report(outcomes, (done.stdout + done.stderr)[-OUTPUT_TAIL_CHARACTERS:])
