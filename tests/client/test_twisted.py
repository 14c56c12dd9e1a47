"""The same client under Twisted."""

from __future__ import annotations

import subprocess
import sys

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from tests.server_process import ROOT
from znoded.client import twisted_io


def test_a_twisted_program_uses_everything(address: tuple[str, int]) -> None:
    arguments = [sys.executable, "-m", "tests.client.twisted_program", str(address[1])]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@implementer(IStreamClientEndpoint)
class SilentEndpoint:
    """As Twisted's own: nobody answers, and who gives up is told so in words of its own."""

    def __init__(self, *_: object) -> None: ...

    def connect(self, _factory: object) -> Deferred[None]:
        return Deferred(lambda deferred: deferred.errback(ConnectingCancelledError(None)))


def test_who_gives_up_while_it_connects_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twisted_io, "HostnameEndpoint", SilentEndpoint)
    connecting = Deferred.fromCoroutine(twisted_io.TwistedIo(None).connect("host", 1, None))
    connecting.cancel()
    failures: list[object] = []
    connecting.addErrback(lambda failure: failures.append(failure.type))
    assert failures == [CancelledError]
