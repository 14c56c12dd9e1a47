"""The way of proposals to the core: from here to the leader, and at the leader in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from znoded.zab_raft.cell.machine import CellMachine, Refusal
from znoded.zab_raft.cell.own_proposals import ChangeRequest, OwnProposals, Proposal
from znoded.zab_raft.core.conf_change import ConfChange, changed
from znoded.zab_raft.core.errors import Reason, Refused
from znoded.zab_raft.core.messages import NOBODY
from znoded.zab_raft.core.node import Node
from znoded.zab_raft.core.quorum import VoteResult, vote
from znoded.zab_raft.core.raft import Role
from znoded.zab_raft.peers.wire import Change, Forward, FrameKind, FrameRecord
from znoded.zab_raft.replica import BATCH_BYTES_LIMIT

Send = Callable[[int, FrameKind, FrameRecord], bool]


class Proposals:
    """`own` is what was proposed here; what waits for the core is only there while this member leads.

    `synced()` tells the members that are connected and up to date, as far as this leader knows.
    """

    def __init__(self, machine: CellMachine, synced: Callable[[], frozenset[int]]) -> None:
        self.own = OwnProposals(machine.original)
        self._machine = machine
        self._synced = synced
        self._waiting: deque[Proposal] = deque()
        self._leads_in_term = 0
        self._change_waits = False

    def leads(self, node: Node) -> bool:
        """This member leads, and everything of earlier terms is applied here."""
        return node.role is Role.LEADER and self._leads_in_term == node.term

    def term_started(self, node: Node, term: int) -> None:
        """The first entry of a leader was applied. If it is this one, it takes proposals from now on."""
        if node.role is Role.LEADER and term == node.term:
            self._leads_in_term = term
            self._waiting.extendleft(reversed(self._machine.lead(term)))

    def leader_changed(self, node: Node) -> None:
        """What was given to the leader of before is given to the next one again."""
        if node.role is not Role.LEADER:
            self._waiting.clear()
            self._change_waits = False
        self.own.give_again()

    def may_go_on(self, node: Node) -> bool:
        """A change waited for what was before it, and need not wait any more."""
        return self._change_waits and self.leads(node) and node.applied_index == node.last_index

    def take_forwarded(self, node: Node, term: int, proposals: Iterable[Proposal]) -> None:
        """Only what is meant for this leadership: the member gives all of it to the next leader again, in order."""
        if node.role is Role.LEADER and term == node.term:
            self._waiting.extend(proposals)

    def hand_over(self, node: Node, send: Send) -> None:
        """Give the leader what was proposed here; this member itself, once it takes proposals.

        What does not go through is given again when there is a connection.
        """
        if self.leads(node):
            self._waiting.extend(self.own.take())
        elif node.role is not Role.LEADER and node.leader != NOBODY:
            for kind, record in _frames(node.term, self.own.take()):
                if not send(node.leader, kind, record):
                    return

    def propose(self, node: Node) -> None:
        """Propose in order; what the core does not take now, it may take the next time."""
        try:
            while self._waiting and self.leads(node):
                first = self._waiting[0]
                if isinstance(first, ChangeRequest):
                    self._change_waits = node.applied_index < node.last_index
                    if self._change_waits:
                        return  # it is planned in the state that all before it makes
                    self._propose_change(node, first.command)
                else:
                    self._propose_commands(node)
        except Refused:
            return

    def propose_ahead_of_reads(self, node: Node, commands: list[bytes]) -> bool:
        """Propose own ones now, behind all that waits, and before any read is confirmed that is asked from here on.

        False, and none of them proposed, if this member does not lead or the core takes nothing for now.
        """
        if not self.leads(node):
            return False
        self._waiting.extend(self.own.take())
        self.propose(node)
        if self._waiting or not self.own.all_given:
            return False
        try:
            first_index = node.propose(commands)
        except Refused:
            return False
        node.read_behind(first_index + len(commands) - 1)
        self.own.add_given(commands)
        return True

    def _propose_commands(self, node: Node) -> None:
        commands = _first_commands(self._waiting)
        node.propose(commands)
        for _ in commands:
            self._waiting.popleft()

    def _propose_change(self, node: Node, command: bytes) -> None:
        planned = self._machine.plan_change(command)
        if isinstance(planned, bytes):
            node.propose([planned])
        elif refusal := self._refusal(node, planned):
            node.propose([self._machine.refused_change(command, refusal)])
        self._waiting.popleft()

    def _refusal(self, node: Node, change: ConfChange) -> Refusal | None:
        """Propose the change, or say why not. Raises Refused if it can be proposed later."""
        try:
            after = changed(node.configuration, change)
            if vote(after.voters, dict.fromkeys(self._synced(), True)) is not VoteResult.WON:
                return Refusal.NO_QUORUM
            node.propose_change(change)
        except Refused as refused:
            if refused.reason is Reason.CHANGE_PENDING:
                return Refusal.PENDING
            if refused.reason is Reason.BAD_CHANGE:
                return Refusal.IMPOSSIBLE
            raise
        return None


def _first_commands(proposals: deque[Proposal]) -> list[bytes]:
    """The commands, at least one, in front of the first change, about as many as make a batch."""
    commands: list[bytes] = []
    size_bytes = 0
    for proposal in proposals:
        if isinstance(proposal, ChangeRequest) or size_bytes >= BATCH_BYTES_LIMIT:
            break
        commands.append(proposal)
        size_bytes += len(proposal)
    return commands


def _frames(term: int, proposals: Iterable[Proposal]) -> Iterator[tuple[FrameKind, FrameRecord]]:
    """The frames that give these to the leader, in order."""
    rest = deque(proposals)
    while rest:
        first = rest[0]
        if isinstance(first, ChangeRequest):
            yield FrameKind.CHANGE, Change(term, first.command)
            rest.popleft()
        else:
            commands = _first_commands(rest)
            yield FrameKind.FORWARD, Forward(term, commands)
            for _ in commands:
                rest.popleft()
