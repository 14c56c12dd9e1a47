"""Curator's recipes and features on one member."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.java_programs import VARIANTS, class_path, compile_java
from tests.interop.member import SUPER_PASSWORD, member
from tests.interop.programs import Conversation, Report, check_names, run_checks

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=VARIANTS)
def java(request: pytest.FixtureRequest, parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a class of our Curator programs, with each variant of the libraries."""
    libraries = class_path(parts, request.param, curator=True)
    return compile_java(parts, libraries, HERE, tmp_path_factory.mktemp("curator-classes"))


@pytest.fixture(scope="module")
def report(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What our Curator program says of its checks."""
    directory = tmp_path_factory.mktemp("curator")
    with member(directory) as server:
        return run_checks([*java, "CuratorProgram", server.address, SUPER_PASSWORD], directory)


@pytest.mark.parametrize("name", check_names(HERE, "*Checks.java", r'checks\.add\("(\w+)"'))
def test_curator(report: Report, name: str) -> None:
    report.expect_ok(name)


@pytest.mark.parametrize("how", ["terminated", "killed"])
def test_curator_keeps_its_session_over_a_restart(java: list[str], tmp_path: Path, how: str) -> None:
    with member(tmp_path) as server, Conversation([*java, "RestartProgram", server.address]) as program:
        program.wait_for("^ready$")
        if how == "killed":
            server.process.kill()
        else:
            server.process.stop()
        server.process.start()
        program.wait_for("^ok$")
