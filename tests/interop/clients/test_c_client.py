"""Debian's C client on one member: a program over the library, and the tools that come with it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import Parts
from tests.interop.member import Member, member
from tests.interop.programs import Conversation, Report, build, check_names, run_checks

SOURCES = Path(__file__).parent / "c"
TOOL_FOLDER = "/usr/lib/zookeeper/bin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with member(tmp_path_factory.mktemp("c-client")) as serving:
        yield serving


@pytest.fixture(scope="module")
def report(parts: Parts, server: Member, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What our program over the C client says of its checks."""
    compiler = parts.program("gcc", "gcc")
    parts.file("/usr/include/zookeeper/zookeeper.h", "libzookeeper-mt-dev")
    directory = tmp_path_factory.mktemp("c-program")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-DTHREADED"]
    source = str(SOURCES / "c_client.c")
    build([compiler, *flags, "-o", "c_client", source, "-lzookeeper_mt", "-lpthread"], directory)
    return run_checks([str(directory / "c_client"), server.address], directory)


@pytest.mark.parametrize("name", check_names(SOURCES, "*.c", r'^    \{"(\w+)", \w+\},$'))
def test_c_client(report: Report, name: str) -> None:
    report.expect_ok(name)


def test_cli_mt(parts: Parts, server: Member) -> None:
    """The command line tool of the C client creates, writes, reads, watches and deletes."""
    tool = parts.program("cli_mt", "zookeeper-bin", also_in=[TOOL_FOLDER])
    with Conversation([tool, server.address]) as talk:
        talk.wait_for("CONNECTED_STATE")
        talk.say("create /cli", "name = /cli")
        talk.say("set /cli hello", r"version=1\b")
        talk.say("get /cli", "hello")
        talk.say("create +e /cli/e", "name = /cli/e")
        talk.say("create +t=60000 /cli/t", "name = /cli/t")
        talk.say("ls2 /cli", "numChildren = 2|\te")
        talk.say("wexists /cli/watched", "Error -101")
        talk.say("create /cli/watched", "CREATED_EVENT")
        talk.say("sync /cli", r"\[/cli\]: rc = 0")
        talk.say("config", "/zookeeper/config: rc = 0")
        talk.say("delete /cli", "/cli: rc = -111")
        talk.say("delete /cli/watched", "/cli/watched: rc = 0")
        talk.say("get /cli/watched", "/cli/watched: rc = -101")


def test_load_gen(parts: Parts, server: Member) -> None:
    """The C client's load generator goes through its rounds of creates, writes, reads and deletes."""
    tool = parts.program("load_gen", "zookeeper-bin", also_in=[TOOL_FOLDER])
    with Conversation([tool, server.address, "/load", "200"]) as talk:
        for _ in range(3):
            for cycle in ("Creating children", "write cycle", "read cycle", "delete cycle"):
                talk.wait_for(cycle)
    errors = [line for line in talk.heard if re.search("ZOO_ERROR|ZOO_WARN", line)]
    assert errors == []
    done = subprocess.run([tool, server.address, "/load", "clean"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
