"""No session that is heard is ended: who was heard when, and which decisions to end a session were right."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.reference import Step
from tests.zab_raft.core.history import require
from znoded.server.cell_member import REPORTS_PER_TICK
from znoded.tree.commands import HEAD

if TYPE_CHECKING:
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation

TOUCHES_KEPT = 12
#: How long what is told may be on its way, and how coarse the clocks are.
ON_ITS_WAY_S = 0.4
CLOCK_S = 0.01


class SessionWitness:
    """What the members could know of each session."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._touches: dict[int, deque[tuple[float, int]]] = {}
        self._decisions: dict[bytes, str] = {}
        self.decided_sessions: set[int] = set()

    def touched(self, session_id: int, number: int) -> None:
        """A member heard a session."""
        touches = self._touches.setdefault(session_id, deque(maxlen=TOUCHES_KEPT))
        touches.append((self._simulation.world.now_s, number))

    def decided(self, machine: Machine, command: bytes) -> None:
        """A member decided to end a session that was silent."""
        _, session_id, attach, *_ = HEAD.unpack_from(command)
        self.decided_sessions.add(session_id)
        self._decisions[command] = self._fault(machine, session_id)

    def ended(self, zxid: int, step: Step) -> None:
        """A session ended. If a member decided that, it was right."""
        fault = self._decisions.get(step.command)
        require(not fault, "X6", f"session {step.result[0]:x} ended at zxid {zxid}: {fault}")

    def _fault(self, leader: Machine, session_id: int) -> str:
        now_s = self._simulation.world.now_s
        live = leader.member.sessions.get(session_id)
        if live is None:
            return "its leader did not know it"
        timeout_s = live.timeout_ms / 1000 / leader.rate - CLOCK_S
        if not leader.leads:
            return f"member {leader.number} did not lead"
        since_s = max(leader.leads_since_s, leader.resumed_s)
        if now_s - since_s < timeout_s:
            return f"member {leader.number} leads, or goes on, for {now_s - since_s:.3f} s, its timeout is {timeout_s}"
        tick_s = self._simulation.config_of(leader.number).tick_ms / 1000
        for touch_s, number in self._touches.get(session_id, ()):
            known_s = touch_s + tick_s / REPORTS_PER_TICK * 1.5 + ON_ITS_WAY_S
            if number == leader.number:
                known_s = touch_s + CLOCK_S
            if now_s - touch_s < timeout_s and known_s < now_s and self._is_sound(leader, number, touch_s):
                return f"member {number} heard it {now_s - touch_s:.3f} s ago, its timeout is {timeout_s}"
        return ""

    def _is_sound(self, leader: Machine, number: int, since_s: float) -> bool:
        """Whether what the member heard since then could be told to this leader."""
        simulation = self._simulation
        teller = simulation.machines[number]
        network = simulation.network
        if number == leader.number:
            return leader.trouble_s < since_s
        return (
            max(teller.trouble_s, leader.trouble_s, network.trouble_s) < since_s
            and teller.serves
            and teller.voter is not None
            and teller.voter.id in leader.replica.roster.members  # one that was removed can tell nobody
            and not network.is_cut(number, leader.number)
            and teller.leader_since_s < since_s
            and leader.leads_since_s < since_s
        )
