"""Client programs that are run once and report each of their checks by name, as `ok NAME` or `FAIL NAME: why`."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

PROGRAM_TIMEOUT_S = 400
BUILD_TIMEOUT_S = 300
ANSWER_TIMEOUT_S = 30
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
    texts = [source.read_text() for source in sorted(folder.glob(pattern))]
    return [name for text in texts for name in re.findall(registration, text, re.MULTILINE)]


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


class Conversation:
    """A running command-line tool: say something, wait for its answer. The tool ends with the block.

    `heard` is every line it printed that was waited for or passed over.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.heard: list[str] = []
        self._command = command
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """End the tool without a chance to say goodbye to anybody."""
        self._process.kill()

    def say(self, line: str, answer: str) -> None:
        """Send a line and wait for one that the regular expression `answer` is found in."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self.wait_for(answer)

    def wait_for(self, answer: str) -> None:
        """Pass over lines up to the first that `answer` is found in; fail the test when none comes."""
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                tail = "\n".join(self.heard)[-OUTPUT_TAIL_CHARACTERS:]
                pytest.fail(f"{self._command[0]} did not print {answer!r}; it printed:\n{tail}", pytrace=False)
            self.heard.append(line)
            if re.search(answer, line):
                return

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
