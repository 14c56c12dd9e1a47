"""The same client under Twisted."""

from __future__ import annotations

import subprocess
import sys

from tests.server_process import ROOT


def test_a_twisted_program_uses_everything(address: tuple[str, int]) -> None:
    arguments = [sys.executable, "-m", "tests.client.twisted_program", str(address[1])]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
