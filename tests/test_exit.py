"""How a process ends that cannot go on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.server_process import ROOT

PROGRAM = """
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from znoded import exit
{preparation}
reactor.callWhenRunning(exit.exit_in_failure, reactor, "the disk is gone")
reactor.run()
print("wound up")
"""


def run(preparation: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(preparation=preparation)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_process_winds_up_and_its_status_tells_of_the_failure() -> None:
    ended = run("")
    assert ended.returncode == 1
    assert ended.stdout == "wound up\n"


@pytest.mark.parametrize("waits_for", ["before", "during", "after"])
def test_a_part_that_never_winds_up_does_not_keep_the_process(waits_for: str) -> None:
    ended = run(f'exit.GRACE_S = 0.1; reactor.addSystemEventTrigger("{waits_for}", "shutdown", Deferred)')
    assert ended.returncode == 1


def test_a_failure_while_the_reactor_stops_still_tells() -> None:
    ended = run("reactor.callWhenRunning(reactor.stop)")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
