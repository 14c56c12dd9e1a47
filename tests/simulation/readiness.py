"""Whether all members come to say that they are ready, once the trouble is over."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

ASKS_AGAIN_S = 0.1


class Probes:
    """Asks each member as a probe does, until it is ready."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        #: What a member lacks that was asked; None: it has yet to say.
        self._told: dict[int, str | None] = {}

    def all_ready(self) -> bool:
        """Each member that runs has said so."""
        running = [machine for machine in self._simulation.machines.values() if machine.runs]
        for machine in running:
            if machine.number not in self._told:
                self._told[machine.number] = None
                assert machine.process is not None
                machine.process.run(partial(self._look, machine))
        return all(self._told[machine.number] == "" for machine in running)

    def _look(self, machine: Machine) -> None:
        machine.member.look_at_readiness().addCallback(partial(self._answered, machine))

    def _answered(self, machine: Machine, missing: str) -> None:
        self._told[machine.number] = missing
        if missing:
            world = self._simulation.world
            world.note(f"{machine.number} is not ready: {missing}")
            world.at(ASKS_AGAIN_S, "asks again", partial(self._told.pop, machine.number))
