"""A pytest plugin for running Kazoo's own tests: it puts our cluster where Kazoo's harness looks, and takes out by name
what one member cannot be asked.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.interop.kazoo_suite import cluster

FIRST_PORT = 21700
PORTS_PER_WORKER = 5

# Tests that are not for one member, each with its reason. What is not named here has to pass.
NOT_FOR_ONE_MEMBER = {
    "test_client.py::TestClient::test_update_host_list": "stops one server and goes on with the two others",
    "test_connection.py::TestReadOnlyMode::test_read_only": "stops two of three servers to get a read-only one",
    "test_client.py::TestReconfig::test_add_remove_observer": "adds a member to the cell",
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_connect_gssapi_auth": "needs a Kerberos realm; znoded offers DIGEST-MD5",
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_invalid_gssapi_auth": "needs a Kerberos realm; znoded offers DIGEST-MD5",
}

sys.modules["kazoo.testing.common"] = cluster


def pytest_configure() -> None:
    """Give each parallel worker ports of its own, and tell the tests which ZooKeeper to expect."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.environ["ZOOKEEPER_PORT_OFFSET"] = str(FIRST_PORT + worker * PORTS_PER_WORKER)
    os.environ["ZOOKEEPER_VERSION"] = "3.9.5"
    os.environ["CI"] = "true"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if listed_name(item) in NOT_FOR_ONE_MEMBER]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if listed_name(item) not in NOT_FOR_ONE_MEMBER]


def listed_name(item: pytest.Item) -> str:
    """`test_file.py::Class::test`, without the folder that Kazoo is installed in."""
    return item.nodeid.rpartition("/")[2]
