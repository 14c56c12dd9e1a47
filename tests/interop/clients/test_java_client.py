"""ZooKeeper's own Java client on one member: nodes, watches, sessions, SASL and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.java_programs import VARIANTS, class_path, compile_java
from tests.interop.member import member
from tests.interop.programs import Report, check_names, run_checks

SOURCES = Path(__file__).parent / "java"


@pytest.fixture(scope="module", params=VARIANTS)
def report(request: pytest.FixtureRequest, parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """What our program over the Java client says of its checks, with each variant of the libraries."""
    directory = tmp_path_factory.mktemp("java-client")
    java = compile_java(parts, class_path(parts, request.param), SOURCES, directory)
    with member(directory) as server:
        arguments = [server.address, server.secure_address, str(server.certificates), str(SOURCES / "jaas.conf")]
        yield run_checks([*java, "JavaClientProgram", *arguments], directory)


@pytest.mark.parametrize("name", check_names(SOURCES, "*Checks.java", r'checks\.add\("(\w+)"'))
def test_java_client(report: Report, name: str) -> None:
    report.expect_ok(name)
