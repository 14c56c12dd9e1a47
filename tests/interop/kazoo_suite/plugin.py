"""A pytest plugin for running Kazoo's own tests: it puts our cluster where Kazoo's harness looks, and takes out by name
what one member cannot be asked.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.interop.kazoo_suite import cluster

# Tests that are not for one member, each with its reason. What is not named here has to pass.
STOPS_ONE_OF_THREE = "stops one server of three and goes on with the two others"
RECONFIG_ALONE = "reconfig of a server alone is refused as unimplemented; one ZooKeeper 3.9.5 alone fails this test too"
NO_KERBEROS = "needs a Kerberos realm; of SASL, znoded offers DIGEST-MD5"
NOT_FOR_ONE_MEMBER = {
    "test_client.py::TestClient::test_update_host_list": STOPS_ONE_OF_THREE,
    "test_gevent_handler.py::TestGeventClient::test_update_host_list": STOPS_ONE_OF_THREE,
    "test_eventlet_handler.py::TestEventletClient::test_update_host_list": STOPS_ONE_OF_THREE,
    "test_connection.py::TestReadOnlyMode::test_read_only": "stops two servers of three to make the third read-only",
    "test_client.py::TestReconfig::test_add_remove_observer": RECONFIG_ALONE,
    "test_client.py::TestReconfig::test_bad_input": RECONFIG_ALONE,
    "test_client.py::TestReconfig::test_no_super_auth": RECONFIG_ALONE,
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_connect_gssapi_auth": NO_KERBEROS,
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_invalid_gssapi_auth": NO_KERBEROS,
}

# Tests that race with themselves, each with the reason why a failure of it is tried again. The race: Kazoo's start()
# takes the client for connected before SASL is through, and does not raise AuthFailedError when the refusal overtakes
# its next step. A ZooKeeper 3.9.5 on a busy machine shows it too, a quicker server more often.
CONNECTED_BEFORE_SASL = "start() does not wait for SASL and is overtaken by its refusal"
TRIED_AGAIN = {
    "test_sasl.py::TestSASLDigestAuthentication::test_invalid_sasl_auth": CONNECTED_BEFORE_SASL,
    "test_sasl.py::TestLegacySASLDigestAuthentication::test_invalid_sasl_auth": CONNECTED_BEFORE_SASL,
}
TRIES = 5

sys.modules["kazoo.testing.common"] = cluster

# What the harness wants to know of its Java servers; under CI the tests expect this version of the server.
os.environ.update(CI="true", ZOOKEEPER_VERSION="3.9.5")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if listed_name(item) in NOT_FOR_ONE_MEMBER]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if listed_name(item) not in NOT_FOR_ONE_MEMBER]
    for item in items:
        if listed_name(item) in TRIED_AGAIN:
            item.add_marker(pytest.mark.flaky(reruns=TRIES - 1))


def listed_name(item: pytest.Item) -> str:
    """`test_file.py::Class::test`, without the folder that Kazoo is installed in."""
    return item.nodeid.rpartition("/")[2]
