"""Ends the process with a failure that its supervisor can see."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from threading import Timer
from typing import NoReturn

from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IReactorCore
from twisted.logger import Logger

EXIT_STATUS = 1
#: How long the rest of the process may take to wind up; what failed may be what it waits for.
GRACE_S = 5.0

log = Logger()


def exit_in_failure(reactor: IReactorCore, reason: str) -> None:
    """Say why, stop the reactor in good order, and let the process end with a status that is not 0.

    Twisted has no way to give a reactor's process an exit status, so it is given last, when Python itself winds up.
    """
    log.critical("znoded ends: {reason}", reason=reason)
    atexit.register(_exit)
    deadline = Timer(GRACE_S, _exit)
    deadline.daemon = True
    deadline.start()
    with suppress(ReactorNotRunning):  # it is being stopped already
        reactor.stop()


def _exit() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_STATUS)
