"""Kazoo's own tests, as they come in its wheel, pass on one znoded member and on a cell of three."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.kazoo_suite.plugin import SIZE_VARIABLE, left_out
from tests.server_process import ROOT

KAZOO_VERSION = "2.11.0"
TESTS_IN_THE_WHEEL = 493
# The tests mostly wait for timeouts, so there can be more of them at a time than cores.
WORKERS_PER_SIZE = {1: 6, 3: 3}  # each starts members of its own
RUN_TIMEOUT_S = 1_200
NOT_PASSED = ("failure", "error", "skipped")


@pytest.mark.parametrize("size", [1, 3])
def test_kazoos_own_tests_pass(parts: Parts, tmp_path: Path, size: int) -> None:
    for module, package in [
        ("kazoo", f"kazoo=={KAZOO_VERSION}"),
        ("puresasl", "pure-sasl"),
        ("gevent", "gevent"),
        ("eventlet", "eventlet"),
        ("objgraph", "objgraph"),
        ("xdist", "pytest-xdist"),
        ("pytest_rerunfailures", "pytest-rerunfailures"),
    ]:
        parts.module(module, package)
    report = tmp_path / "report.xml"
    # Of the plugins there are, schemathesis loads a class of a name whose objects Kazoo's tests count.
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={tmp_path}",
        "-pno:cacheprovider", "-pno:twisted", "-pno:schemathesis", "-ptests.interop.kazoo_suite.plugin",
        f"-n{WORKERS_PER_SIZE[size]}", "--dist=loadscope", f"--basetemp={tmp_path / 'temp'}", f"--junitxml={report}",
        str(kazoo_tests()),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), SIZE_VARIABLE: str(size)}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    output = f"{run.stdout[-20_000:]}\n{run.stderr[-5_000:]}"
    assert report.exists(), output
    outcomes = read_outcomes(report)
    assert not_passed(outcomes) == {}, output
    assert len(outcomes) == TESTS_IN_THE_WHEEL - len(left_out(size)), output


def kazoo_tests() -> Path:
    """The folder of Kazoo's tests, found without importing it: the plugin has to come first."""
    spec = importlib.util.find_spec("kazoo")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "tests"


def read_outcomes(report: Path) -> dict[str, str]:
    """Each test of a JUnit report with what came of it: "passed", or how it ended and its first line of reason."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        endings = [f"{child.tag}: {child.get('message')}" for child in case if child.tag in NOT_PASSED]
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = endings[0] if endings else "passed"
    return outcomes


def not_passed(outcomes: dict[str, str]) -> dict[str, str]:
    return {name: outcome for name, outcome in outcomes.items() if outcome != "passed"}
