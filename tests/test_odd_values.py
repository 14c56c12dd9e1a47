"""Values that nobody means: each is told to be wrong, whatever its length and depth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_config import problems
from znoded.config import ConfigError, load_toml, load_zoo_cfg
from znoded.zab_raft.cell.server_lines import BadServers, parse_joining


@pytest.mark.parametrize("host", ["zoo_1", "a..b", "-a", "a-", ".a", "a" * 64, "a." * 128 + "a"])
def test_a_host_that_no_resolver_is_asked_for_is_refused(host: str) -> None:
    table = {"cell": {"members": {"1": {"peer": f"{host}:2888", "client": ""}}}}
    assert "letters, digits and hyphens" in problems(table)["cell.members.1.peer"]
    with pytest.raises(BadServers):
        parse_joining(f"server.4={host}:2888:3888;2181")


@pytest.mark.parametrize("host", ["zoo-1", "1.2.3.4", "a.b-c.example.", "a" * 63, "[::1]"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    table = {"tick_ms": 0, "cell": {"members": {"1": {"peer": f"{host}:2888"}}}}
    assert set(problems(table)) == {"tick_ms"}
    assert parse_joining(f"server.4={host}:2888:3888;2181")


@pytest.mark.parametrize("text", ["tick_ms = " + "9" * 5_000, "a = " + "[" * 5_000, "tick_ms = 0x" + "f" * 5_000])
def test_a_file_of_any_depth_and_length_is_told_to_be_wrong(tmp_path: Path, text: str) -> None:
    path = tmp_path / "member.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_toml(str(path))


@pytest.mark.parametrize("line", ["tickTime=" + "9" * 5_000, "dynamicConfigFile=a\0b", "dataDir=a\0b\nserver.1=a:1:2"])
def test_a_zoo_cfg_of_any_kind_is_told_to_be_wrong(tmp_path: Path, line: str) -> None:
    path = tmp_path / "zoo.cfg"
    path.write_text(f"dataDir={tmp_path}\nclientPort=2181\n{line}\n")
    with pytest.raises(ConfigError):
        load_zoo_cfg(str(path))
