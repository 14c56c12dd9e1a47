"""zkCli, the shell that comes with ZooKeeper, on one member: one script, each of its commands a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.java_programs import JARS_VARIABLE, VARIANTS, class_path
from tests.interop.member import SUPER_PASSWORD, member

SCRIPT_TIMEOUT_S = 120
DEBIAN_SCRIPT_FOLDER = "/usr/share/zookeeper/bin"
MAIN_CLASS = "org.apache.zookeeper.ZooKeeperMain"

# Each step's name, its command, and a regular expression for something that only this command can have printed.
STEPS = [
    ("create", "create /cli one", r"Created /cli$"),
    ("create_sequential", "create -s /cli/s- x", r"Created /cli/s-0000000000$"),
    ("create_ephemeral", "create -e /cli/e x", r"Created /cli/e$"),
    ("create_container", "create -c /cli/c x", r"Created /cli/c$"),
    ("create_ttl", "create -t 60000 /cli/t x", r"Created /cli/t$"),
    ("ls", "ls /cli", r"\[c, e, s-0000000000, t\]$"),
    ("ls_recursive", "ls -R /cli", r"^/cli/s-0000000000$"),
    ("get", "get -s /cli", r"\bone$"),
    ("set", "set -s -v 0 /cli fourteen-bytes", r"^dataLength = 14$"),
    ("set_with_a_stale_version", "set -v 0 /cli three", r"version No is not valid : /cli$"),
    ("stat", "stat /cli/e", r"^ephemeralOwner = 0x[1-9a-f]"),
    ("get_all_children_number", "getAllChildrenNumber /cli", r"(^|\] )4$"),
    ("get_ephemerals", "getEphemerals /cli", r"\[/cli/e\]$"),
    ("addauth_and_whoami", "addauth digest owner:secret\nwhoami", r"^digest: owner$"),
    ("acl_of_the_creator", "create /cli/acl x auth::cdrwa", r"Created /cli/acl$"),
    ("get_acl", "getAcl /cli/acl", r"'digest,'owner:Vj\+\+wdU3sMAbt\+g9TyKj1BT\+usI=$"),
    ("set_acl", "setAcl /cli/acl world:anyone:ra\ngetAcl /cli/acl", r"^: ra$"),
    ("set_quota", "setquota -n 77 /cli/c\nlistquota /cli/c", r"Output quota for /cli/c count=77,bytes=-1"),
    ("quota_statistics", "listquota /cli/c", r"Output stat for /cli/c count=1,bytes=1"),
    ("delete_quota", "delquota /cli/c\nlistquota /cli/c", r"quota for /cli/c does not exist"),
    ("add_watch", "addWatch -m PERSISTENT /cli/c\ncreate /cli/c/child x", r"type:NodeChildrenChanged path:/cli/c\b"),
    ("remove_watches", "removewatches /cli/c", r"type:PersistentWatchRemoved path:/cli/c\b"),
    ("sync", "sync /cli", r"Sync is OK$"),
    ("version", "version", r"ZooKeeper CLI version: 3\."),
    ("reconfig_is_disabled", "reconfig -remove 3", r"Reconfig is disabled"),
    ("delete_of_a_parent", "delete /cli", r"Node not empty: /cli$"),
    ("superuser", f"addauth digest super:{SUPER_PASSWORD}\nset -s /zookeeper/config some-config", r"^dataLength = 11$"),
    ("config", "config", r"\bsome-config$"),
    ("delete_all", "deleteall /cli\nls /cli", r"Node does not exist: /cli$"),
    ("missing_node", "get /missing", r"Node does not exist: /missing$"),
    ("bad_path", "create no-slash x", r"Path must start with / character"),
]


def shell_command(parts: Parts, variant: str) -> list[str]:
    """Debian's zkCli.sh, or the same program out of the newer jars."""
    if variant == "debian":
        return [parts.program("zkCli.sh", "zookeeper", also_in=[DEBIAN_SCRIPT_FOLDER])]
    jars = class_path(parts, variant)
    parts.file(f"{jars[:-2]}/jline-*.jar", f"jline into the folder of {JARS_VARIABLE}")
    return [parts.program("java", "default-jre-headless"), "-cp", jars, MAIN_CLASS]


@pytest.fixture(scope="module", params=VARIANTS)
def output(request: pytest.FixtureRequest, parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that the shell prints when it is given every step's command, one after another."""
    directory: Path = tmp_path_factory.mktemp("zkcli")
    command = shell_command(parts, request.param)
    script = "".join(f"{lines}\n" for _, lines, _ in STEPS) + "quit\n"
    with member(directory) as server:
        done = subprocess.run(
            [*command, "-server", server.address],
            input=script,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SCRIPT_TIMEOUT_S,
        )
    return done.stdout


@pytest.mark.parametrize(("name", "printed"), [(name, printed) for name, _, printed in STEPS])
def test_zkcli(output: str, name: str, printed: str) -> None:
    assert re.search(printed, output, re.MULTILINE), f"{name}: nothing printed matches {printed!r} in:\n{output}"
