"""Curator's recipes and features on one member."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.java_programs import VARIANTS, class_path, compile_java
from tests.interop.member import SUPER_PASSWORD, member
from tests.interop.programs import Report, check_names, run_checks

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=VARIANTS)
def report(request: pytest.FixtureRequest, parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """What our Curator program says of its checks, with each variant of the libraries."""
    directory = tmp_path_factory.mktemp("curator")
    java = compile_java(parts, class_path(parts, request.param, curator=True), HERE, directory)
    with member(directory) as server:
        yield run_checks([*java, "CuratorProgram", server.address, SUPER_PASSWORD], directory)


@pytest.mark.parametrize("name", check_names(HERE, "*Checks.java", r'checks\.add\("(\w+)"'))
def test_curator(report: Report, name: str) -> None:
    report.expect_ok(name)
