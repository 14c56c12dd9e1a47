"""`znoded members`: the table an operator gets, and the exit status a script gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from znoded.command import main

MEMBER = {
    "number": 1, "raft_id": 1, "role": "voter", "phase": "voter", "peer": "a:2888", "client": "a:2181", "leads": True,
    "connected": True, "match_index": 9, "lag_entries": 0, "blocks": "",
}  # fmt: skip
LAGS = {**MEMBER, "number": 12, "leads": False, "connected": False, "lag_entries": None, "blocks": "not connected"}

Ask = Callable[..., int]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Runs `znoded members` against a listener that gives this answer, or (status, answer); gives the exit status."""
    said: list[Any] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/members"
            (answer,) = said
            status, answer = answer if isinstance(answer, tuple) else (200, answer)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    def run(answer: Any, scheme: str = "http://") -> int:
        said[:] = [answer]
        return main(["members", "--admin", f"{scheme}127.0.0.1:{server.server_port}/"])

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield run
        server.shutdown()
        thread.join()


def test_all_is_well(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask({"member": 2, "leader": 1, "term": 7, "members": [MEMBER]}) == 0
    assert capsys.readouterr().out == (
        "member 2 answers; member 1 leads, in term 7\n"
        "\n"
        "number  role   phase  connected  lag  peer    client  blocks\n"
        "1 *     voter  voter  yes        0    a:2888  a:2181\n"
    )


def test_what_is_missing_is_said_and_is_a_failure(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask({"member": 1, "leader": 1, "term": 7, "members": [MEMBER, LAGS]}) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "12      voter  voter  no         ?    a:2888  a:2181  not connected"
    )


def test_a_cell_without_a_leader_is_a_failure(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask({"member": 1, "leader": 0, "term": 7, "members": [{**MEMBER, "leads": False}]}) == 1
    assert capsys.readouterr().out.startswith("member 1 answers; no leader is known, in term 7\n")


def test_a_member_that_has_nothing_to_tell_says_why(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask((503, {"error": "it waits"})) == 1
    assert capsys.readouterr().err.endswith("/members answers 503: it waits\n")


def test_an_address_needs_no_scheme(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask((503, {"error": "it waits"}), scheme="") == 1
    assert capsys.readouterr().err.startswith("http://127.0.0.1:")


def test_who_reads_no_further_gets_no_traceback(tmp_path: Path) -> None:
    config = tmp_path / "member.toml"
    config.write_text("")
    command = [sys.executable, "-c", "import sys; from znoded.command import main; sys.exit(main())", "check-config"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*command, str(config)], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    "answer", [(404, b""), (500, b"<html>"), b"<html>", {"members": []}, [], {"leader": 0, "members": [3]}]
)
def test_anything_else_that_answers_is_a_failure(ask: Ask, capsys: pytest.CaptureFixture[str], answer: Any) -> None:
    assert ask(answer) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err


@pytest.mark.parametrize("admin", ["http://127.0.0.1:1", "127.0.0.1:8080", "", "http://["])
def test_nobody_that_answers_is_a_failure(capsys: pytest.CaptureFixture[str], admin: str) -> None:
    assert main(["members", "--admin", admin]) == 1
    assert "--admin names the URL" in capsys.readouterr().err
