"""Debian's Go client on one member, compiled here without the network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.member import member
from tests.interop.programs import Report, build, check_names, run_checks

SOURCES = Path(__file__).parent / "go"
GO_LIBRARIES = "/usr/share/gocode"


@pytest.fixture(scope="module")
def report(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What our program over the Go client says of its checks."""
    compiler = parts.program("go", "golang-go")
    parts.file(f"{GO_LIBRARIES}/src/github.com/samuel/go-zookeeper/zk/conn.go", "golang-github-samuel-go-zookeeper-dev")
    directory = tmp_path_factory.mktemp("go-client")
    environment = {
        **os.environ,
        "GO111MODULE": "off",
        "GOPATH": GO_LIBRARIES,
        "GOCACHE": str(directory / "cache"),
        "GOFLAGS": "",
    }
    build([compiler, "build", "-o", "client", str(SOURCES / "client.go")], directory, environment)
    with member(directory) as server:
        return run_checks([str(directory / "client"), server.address], directory)


@pytest.mark.parametrize("name", check_names(SOURCES, "*.go", r'\{"(\w+)", \w+\},'))
def test_go_client(report: Report, name: str) -> None:
    report.expect_ok(name)
