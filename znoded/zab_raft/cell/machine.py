"""What a member of a cell drives: a state machine that knows who leads and who the members are."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.state_machine import StateMachine


class Refusal(Enum):
    """Why the core does not make a change of the members that was planned."""

    PENDING = "the last change of the members is not finished"
    NO_QUORUM = "too few of the voters that there would be are connected and up to date"
    IMPOSSIBLE = "the members cannot be changed so"


class CellMachine(StateMachine, Protocol):
    """The calls that a member of a cell makes beside those of a lone one, all but one in the reactor's thread.

    `load` may come at any time: a snapshot from the leader took the place of the state, and of what had changed in it
    since the last checkpoint. What was proposed here and not applied may be in it, and comes to be applied once more.

    A change of the members reaches `apply_batch` as the command that is its context, alone. Places in the log that hold
    nothing for the machine reach nobody, so that indexes leave gaps.
    """

    @property
    def roster(self) -> Roster:
        """The members as of the last applied command; the founding ones if none has told of others."""

    def read_ahead(self, read_table: ReadTable) -> ReadTable:
        """Read what takes long to read of the tables that are to be loaded next, and give those that `load` gets then.

        Called while the member runs, in another thread, and while the old state is in use. Nothing is applied in the
        meantime.
        """

    def found(self, roster: Roster) -> None:
        """The cell was founded with these members. A state may be loaded behind that."""

    def lead(self, term: int) -> list[bytes]:
        """This member leads now, and everything of earlier terms is applied: the commands to propose first."""

    def leader_changed(self, leader: int, term: int) -> None:
        """The member with this number leads; 0: none is known."""

    def leader_reached(self) -> None:
        """There is a way to the leader again: what it was told last may be lost."""

    def told(self, member: int, payload: bytes) -> None:
        """At the leader: a member told this with `tell_leader`."""

    def plan_change(self, command: bytes) -> ConfChange | bytes:
        """What a client's change comes to, in the state as it is: a change with a command as its context.

        Or a command that refuses it, which is proposed instead. A command may come twice: a change that was made
        already has to be refused.
        """

    def refused_change(self, command: bytes, refusal: Refusal) -> bytes:
        """The command to propose instead of a change that was planned and cannot be made."""

    def original(self, command: bytes) -> bytes:
        """What was proposed, given what `plan_change` or `refused_change` made of it; any other command as it is."""
