"""npm's node-zookeeper-client on one member."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.member import SUPER_PASSWORD, member
from tests.interop.programs import Report, check_names, run_checks

SOURCES = Path(__file__).parent / "node"
PACKAGE = "node_modules/node-zookeeper-client/package.json"


@pytest.fixture(scope="module")
def report(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What our program over the npm client says of its checks."""
    interpreter = parts.program("node", "nodejs")
    parts.file(f"{SOURCES}/{PACKAGE}", "it with npm ci in tests/interop/clients/node")
    directory = tmp_path_factory.mktemp("node-client")
    with member(directory) as server:
        return run_checks([interpreter, str(SOURCES / "client.js"), server.address, SUPER_PASSWORD], directory)


@pytest.mark.parametrize("name", check_names(SOURCES, "*.js", r"^    async (\w+)\(client"))
def test_node_client(report: Report, name: str) -> None:
    report.expect_ok(name)
