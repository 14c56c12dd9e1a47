"""Whom this member accepts: the judgement over an identity that was proven in a handshake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from znoded.zab_raft.peers.handshake import Hello, Purpose
from znoded.zab_raft.peers.identity import Identity

#: How the reason ends why a blank member, which asks for its cell itself, is refused where a member belongs.
NOT_IN_A_CELL_YET = "is not in a cell yet"


class KnownIncarnations(Protocol):
    def is_known(self, raft_id: int, incarnation: bytes) -> bool:
        """Whether this is the first incarnation of the id that was ever seen; it is remembered, durably, if it is."""

    def has(self, raft_id: int, incarnation: bytes) -> bool:
        """Whether this incarnation of the id was seen before."""


class Gate:
    """What judgement rests on: who this member is, and who is in the cell.

    `members` is raft id -> (member number, "host:port"), `highest_id` the greatest raft id there ever was.
    `on_abandoned(reason)` is called when a member of this cell turns out to have gone on without it.
    """

    def __init__(self, identity: Identity, address: str, secret: bytes, incarnations: KnownIncarnations) -> None:
        self.identity = identity
        self.address = address
        self.secret = secret
        self.members: Mapping[int, tuple[int, str]] = {}
        self.highest_id = 0
        self.on_abandoned: Callable[[str], None] = lambda reason: None
        self._incarnations = incarnations

    def why_not_dialler(self, hello: Hello) -> str:
        """Why a dialler is not accepted; empty if it is."""
        own, other = self.identity, hello.identity
        if hello.to_number != own.number:
            return f"it looks for member {hello.to_number}, this is member {own.number}: check the peer addresses"
        if hello.purpose is Purpose.ENTER:
            return ""  # what a blank member may do is in the answer that it gets
        return self._why_not_member(other)

    def why_not_acceptor(self, other: Identity, raft_id: int, number: int) -> str:
        """Why the acceptor is not taken for the member that was dialled; empty if it is."""
        if why := self.why_not_number(other, number):
            return why
        if not other.blank and other.cell == self.identity.cell and other.raft_id != raft_id:
            return f"{_name(other)} is not the one that was dialled, with raft id {raft_id}"
        return self._why_not_member(other)

    def why_not_number(self, other: Identity, number: int) -> str:
        """Why the acceptor is not the one with this number; empty if it is."""
        if other.number == number:
            return ""
        return f"it is member {other.number}, not member {number}: check the peer addresses"

    def why_not_incarnation(self, other: Identity, raft_id: int) -> str:
        """Why a member that has, or wants, a raft id is not the one it belongs to; empty if it is."""
        try:
            if self._incarnations.is_known(raft_id, other.incarnation):
                return ""
        except OSError as error:
            return f"member {self.identity.number} cannot write down that it knows {_name(other)}: {error}"
        return (
            f"the data directory of member {other.number} (raft id {raft_id}) is not the one that this cell knows: "
            "it was lost or replaced; remove the member and add it again with reconfig"
        )

    def _why_not_member(self, other: Identity) -> str:
        own = self.identity
        if own.blank:
            return f"member {own.number} {NOT_IN_A_CELL_YET}"
        if other.blank:
            return f"member {other.number} {NOT_IN_A_CELL_YET}"
        if other.cell != own.cell:
            return self._why_not_of_another_cell(other)
        if other.raft_id == own.raft_id:
            return f"{_name(other)} has the raft id of member {own.number}"
        if other.raft_id in self.members:
            number, _ = self.members[other.raft_id]
            if other.number != number:
                return f"raft id {other.raft_id} belongs to member {number}, not to member {other.number}"
        elif other.raft_id <= self.highest_id:
            return f"{_name(other)} was removed from the cell; add it again with reconfig, under a new data directory"
        return self.why_not_incarnation(other, other.raft_id)

    def _why_not_of_another_cell(self, other: Identity) -> str:
        """A directory that was of this cell, and is of another one, was made to go on alone (`survivor`).

        The new cell knows no incarnations of the old one, so that only one side finds out: the one to end.
        """
        cells = f"member {other.number} is of cell {other.cell.hex()}, member {self.identity.number} of cell "
        cells += self.identity.cell.hex()
        if other.raft_id in self.members and self._incarnations.has(other.raft_id, other.incarnation):
            self.on_abandoned(
                f"{cells}, which was given up: `znoded recover` had member {other.number} go on without it. Empty the "
                "data directory of this member, and add it to the new cell with reconfig"
            )
        return cells


def _name(other: Identity) -> str:
    return f"member {other.number} (raft id {other.raft_id})"
