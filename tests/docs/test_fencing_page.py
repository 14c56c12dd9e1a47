"""Every block of Python in docs/fencing.md runs, one after another, as a reader would."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server_process import ROOT, ServerProcess

PAGE = ROOT / "docs" / "fencing.md"
ADDRESS = "127.0.0.1:2181"


def test_the_blocks_run_and_do_what_the_page_says(
    znoded_server: Callable[..., ServerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = znoded_server()
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    names: dict[str, Any] = {}
    try:
        for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            source = "\n" * text[: block.start(1)].count("\n") + block[1].replace(ADDRESS, server.address)
            exec(compile(source, str(PAGE), "exec"), names)
        token = names["lease"].token
        client, database = names["client"], names["database"]
        assert client.get("/config/leader")[0] == b"worker-7"
        assert database.execute("SELECT balance FROM account").fetchone() == (10,)
        assert (tmp_path / "report.csv").exists()
        assert not client.get_children("/locks/accounts/1")
        printed = capsys.readouterr().out
        assert re.search(r"^accounts/1 \d+ \d+$", printed, re.MULTILINE)
        assert re.search(r"^led in epoch \d+$", printed, re.MULTILINE)
        assert "somebody else" not in printed
        assert "begin a request" in printed
        assert token > int(printed.split()[0])
    finally:
        if "database" in names:
            names["database"].close()
        if "client" in names:
            names["client"].stop()
            names["client"].close()


def test_every_block_of_code_is_of_a_kind_that_a_test_runs() -> None:
    kinds = re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)
    assert set(kinds) == {"python", "java"}
    assert kinds.count("java") == 1, "tests/interop/curator runs that one"
