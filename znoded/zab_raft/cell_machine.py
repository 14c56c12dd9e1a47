"""What a member of a cell drives: a state machine that knows who the members are, and who leads."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.replica import StateMachine


class Refusal(Enum):
    """Why the leader does not make a change of the members that it was asked for."""

    PENDING = "the last change of the members is not finished"
    NO_QUORUM = "too few of the voters that there would be are connected and up to date"
    IMPOSSIBLE = "the members cannot be changed so"


class CellMachine(StateMachine, Protocol):
    """The calls that a member of a cell makes beside those of a lone one, all in the reactor's thread.

    `load` may come at any time: a snapshot from the leader took the place of the state, and of what had changed in it
    since the last checkpoint. A change of the members that a client asked for reaches `apply_batch` as its command.
    The table of the members is a part of the state, and so of `take_changes`.
    """

    def found(self, roster: bytes) -> Configuration:
        """Become the state of a new cell with this table of members; the configuration it begins with."""

    def lead(self, term: int) -> list[bytes]:
        """This member leads now, and everything of earlier terms is applied: the commands to propose first."""

    def leader_changed(self, leader: int, term: int) -> None:
        """The member with this number leads; 0: none is known."""

    def told(self, member: int, payload: bytes) -> None:
        """At the leader: a member told this with `tell_leader`."""

    def plan_change(self, command: bytes) -> ConfChange | None:
        """The change that this command asks for, which has the command as its context; None if it has to be refused.

        In that case the command itself is proposed, and applying it makes the error. A command may come twice: a change
        that was made already has to be refused.
        """

    def refused_change(self, command: bytes, refusal: Refusal) -> bytes:
        """The command to propose in the place of a change that is refused; equal for equal arguments."""

    def addresses(self) -> Mapping[int, tuple[int, str]]:
        """Raft id -> (member number, "host:port" of its peers) of all members, as of the last applied command.

        Those that were removed may be among them, and should be until the change is finished.
        """
