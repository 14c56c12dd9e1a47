"""How long one read after another takes at a member, measured by a process of its own, which nothing else delays."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import NamedTuple, Self

from tests.cell_drill.wire import path_body
from tests.crash.raw_client import GET_DATA, RawClient

INTERVAL_S = 0.005
TIMEOUT_MS = 10_000
_SPAWN = multiprocessing.get_context("spawn")


class Reads(NamedTuple):
    """What a probe saw."""

    port: int
    number: int
    longest_s: float


class Probe:
    """Reads `path` at the member of `port`, linearizable, until `end`."""

    def __init__(self, port: int, path: bytes) -> None:
        self._ours, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_read_until_told, args=(port, path, theirs), daemon=True)

    def start(self) -> Self:
        """Return once it reads."""
        self._process.start()
        self._ours.recv()
        return self

    def end(self) -> Reads:
        self._ours.send(None)
        reads: Reads = self._ours.recv()
        self._process.join()
        return reads


def _read_until_told(port: int, path: bytes, pipe: Connection) -> None:
    client = RawClient(port, TIMEOUT_MS)
    number, longest_s = 0, 0.0
    pipe.send(None)
    while not pipe.poll(INTERVAL_S):
        began_s = time.monotonic()
        reply = client.call(GET_DATA, path_body(path))
        assert reply.error == 0, reply
        longest_s = max(longest_s, time.monotonic() - began_s)
        number += 1
    client.close()
    pipe.send(Reads(port, number, longest_s))
