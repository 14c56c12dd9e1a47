"""The laws of nature while a simulation runs: clocks, chance and sleep are the world's, as is the end of a process.

The product takes these from Python's modules, not as arguments, as nothing else needs them otherwise.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger, LogLevel

from tests.simulation.reference import ObservedTree
from znoded.server import cell_member
from znoded.server import member as members

if TYPE_CHECKING:
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation


@contextmanager
def simulated(simulation: Simulation) -> Iterator[None]:
    """For as long as this lasts, all that asks for the time or for chance asks the simulation."""
    world = simulation.world

    def emit(_logger: Logger, level: Any, format: str | None = None, **named: Any) -> None:
        if "log_failure" in named:
            # Not raised: it may be told by a destructor, or by something that goes on regardless.
            world.fault = world.fault or f"{format}: {named['log_failure'].getTraceback()}"
        if level is LogLevel.critical:
            simulation.last_words = str(named.get("reason", format))

    def exit_in_failure(reactor: Any, reason: str) -> None:
        simulation.last_words = reason
        reactor.stop()

    def make_replica(config: Any, *arguments: Any) -> Any:
        machine: Machine = simulation.machines[config.member]
        return machine.make_replica(config, *arguments)

    laws: list[tuple[Any, str, Any]] = [
        (time, "time", world.wall_s),
        (time, "time_ns", lambda: int(world.wall_s() * 1e9)),
        (time, "monotonic", world.monotonic_s),
        (time, "monotonic_ns", lambda: int(world.monotonic_s() * 1e9)),
        (time, "sleep", lambda _seconds: None),
        (os, "urandom", world.chance.randbytes),
        (secrets, "token_bytes", world.chance.randbytes),
        (Logger, "emit", emit),
        (members, "exit_in_failure", exit_in_failure),
        (members, "Tree", ObservedTree),
        (cell_member, "_make_replica", make_replica),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in laws]
    for owner, name, law in laws:
        setattr(owner, name, law)
    try:
        yield
    finally:
        for owner, name, law in before:
            setattr(owner, name, law)
