"""Ends the process with a failure that its supervisor can see."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

from twisted.internet.interfaces import IReactorCore
from twisted.logger import Logger

EXIT_STATUS = 1

log = Logger()


def exit_in_failure(reactor: IReactorCore, reason: str) -> None:
    """Say why, stop the reactor in good order, and let the process end with a status that is not 0.

    Twisted has no way to give a reactor's process an exit status, so it is given last, when Python itself winds up.
    """
    log.critical("znoded ends: {reason}", reason=reason)
    atexit.register(_exit)
    reactor.stop()


def _exit() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_STATUS)
