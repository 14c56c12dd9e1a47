"""The cells that are measured: what their members are told, and that the whole benchmark runs on them."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path

import pytest

from bench.cell import znoded_cell, zookeeper_cell
from bench.run import main
from bench.workloads import CELL_WORKLOADS, WORKLOADS
from znoded.config import load_toml

FIRST_PORT = 25_900


def test_members_of_a_znoded_cell_know_each_other(tmp_path: Path) -> None:
    cell = znoded_cell(tmp_path, count(FIRST_PORT))
    configs = []
    for member in cell._members:
        member.directory.mkdir()
        configs.append(load_toml(member.prepare()[-1]))
    assert [config.member for config in configs] == [1, 2, 3]
    assert {len(config.cell.members) for config in configs} == {3}
    for config, port in zip(configs, cell.ports, strict=True):
        assert config.cell == configs[0].cell
        assert config.client.listen == (f"tcp:{port}:interface=127.0.0.1",)
        assert config.cell.members[config.member].client == f"127.0.0.1:{port}"
        assert config.limits.connections_per_address == 0
    peers = [member.peer for member in configs[0].cell.members.values()]
    assert len({*peers, *(config.admin.listen for config in configs), *cell.ports}) == 9


def test_servers_of_an_ensemble_know_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.zookeeper.class_path", lambda _jars: "")
    monkeypatch.setattr("bench.zookeeper.java", lambda: "java")
    cell = zookeeper_cell(tmp_path, tmp_path, count(FIRST_PORT))
    lines = set()
    for number, member in enumerate(cell._members, 1):
        member.directory.mkdir()
        text = Path(member.prepare()[-1]).read_text()
        assert f"clientPort={cell.ports[number - 1]}\n" in text
        assert (member.directory / "data" / "myid").read_text() == f"{number}\n"
        lines.add(tuple(line for line in text.splitlines() if line.startswith("server.")))
    assert len(lines.pop()) == 3
    assert not lines
    assert not cell.knows_serializable


def test_workloads_of_one_server_and_of_cells_have_names_of_their_own() -> None:
    names = [workload.name for workload in (*WORKLOADS, *CELL_WORKLOADS)]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
def test_a_cell_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.find_jars", lambda _given: None)
    results = tmp_path / "results.json"
    timing = ["--rounds", "1", "--seconds", "0.2", "--warm-up", "0"]
    files = ["--directory", str(tmp_path / "data"), "--json", str(results)]
    only = ["--only", "cell-serializable-1", "--only", "cell-writes-1"]
    assert main(["--cell", "--port", str(FIRST_PORT + 50), *timing, *files, *only]) == 0
    measured = json.loads(results.read_text())["speed"]
    assert [each["workload"] for each in measured] == ["cell-serializable-1", "cell-writes-1"]
    assert all(each["runs"]["znoded"][0]["requests"] > 0 for each in measured)
    assert "| serializable reads, one at a time |" in capsys.readouterr().out
