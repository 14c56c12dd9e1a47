"""Every example of docs/api.md runs, in its order, against one member."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.server_process import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MARK = "-- end of a block --"


def shape(content: Any) -> Any:
    """What an answer is like, without its values."""
    if isinstance(content, dict):
        return {name: shape(value) for name, value in content.items()}
    if isinstance(content, list):
        return [shape(value) for value in content]
    return type(content).__name__


def test_every_block_is_of_a_kind_that_runs() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "json", "toml", "python"}


def test_the_shell_examples_answer_as_they_say(address: tuple[str, int], tmp_path: Path) -> None:
    script = f"set -eu\nAPI=http://{address[0]}:{address[1]}\n"
    for kind, text in BLOCKS:
        if kind == "sh":
            script += f"{text}\necho; echo '{MARK}'\n"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    outputs = iter(done.stdout.split(MARK))
    output = ""
    for kind, text in BLOCKS:
        if kind == "sh":
            output = next(outputs)
            if '"error"' in output:
                assert '"code": "no_auth"' in output, output
        elif kind == "json":
            last = [line for line in output.splitlines() if line.strip()][-1]
            assert shape(json.loads(last)) == shape(json.loads(text))


def test_the_python_example_runs(address: tuple[str, int]) -> None:
    (text,) = [text for kind, text in BLOCKS if kind == "python"]
    names: dict[str, Any] = {}
    exec(text, names)
    asyncio.run(asyncio.wait_for(names["main"]([address]), 30))


def test_every_error_is_on_the_page() -> None:
    document = json.loads((ROOT / "znoded" / "admin" / "api" / "openapi.json").read_text())
    codes = document["components"]["schemas"]["ErrorBody"]["properties"]["code"]["enum"]
    missing = [code for code in codes if f"`{code}`" not in PAGE]
    assert not missing


def test_every_operation_is_on_the_page() -> None:
    document = json.loads((ROOT / "znoded" / "admin" / "api" / "openapi.json").read_text())
    missing = [path for path in document["paths"] if path.removeprefix("/v1/") not in PAGE]
    assert not missing
