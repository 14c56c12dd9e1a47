"""Who the members of a cell are: for each raft id the member's number, its addresses and its role.

A number, from 1 to 254, is what operators and clients know a member by, and may be used again. A raft id is used once:
those of the founding members are their numbers, each later one is above all that ever were. So a member that was
removed, or lost its disk, and joins again is another one to the Raft core.

The roster is replicated state. It changes with the changes of the configuration that carry a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from znoded.jute.primitives import (
    JuteError,
    Reader,
    encode_buffer,
    encode_int,
    encode_long,
    encode_ustring,
    encode_vector,
)
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.server_lines import BadServers, Member, Role

NUMBER_MOST = 254
_LEAST_ENTRY_BYTES = 28


@dataclass(frozen=True, slots=True)
class Roster:
    """Raft id -> member. No two have one number or one address."""

    members: Mapping[int, Member] = field(default_factory=dict)

    @classmethod
    def founding(cls, members: Iterable[Member]) -> Roster:
        """The roster that a cell begins with. Raises BadServers."""
        return cls().after(members, highest_id=0)

    def after(self, members: Iterable[Member], highest_id: int, anew: Collection[int] = ()) -> Roster:
        """The roster of these members. Those whose number is here keep its raft id, unless it is in `anew`.

        `highest_id` is the greatest raft id there ever was. Raises BadServers.
        """
        ordered = sorted(members, key=lambda member: member.number)
        _check_apart(ordered)
        known = {member.number: raft_id for raft_id, member in self.members.items() if member.number not in anew}
        after: dict[int, Member] = {}
        for member in ordered:
            raft_id = known.get(member.number)
            if raft_id is None:
                # A cell begins with its members' numbers; they are known before there is a leader to hand out others.
                raft_id = highest_id + 1 if self.members else member.number
            highest_id = max(highest_id, raft_id)
            after[raft_id] = member
        return Roster(after)

    def joined_by(self, joining: Iterable[Member], leaving: Iterable[int], highest_id: int) -> Roster:
        """The roster after some left, and then some joined or changed. Raises BadServers."""
        members = {member.number: member for member in self.members.values()}
        gone = set(leaving)
        members = {number: member for number, member in members.items() if number not in gone}
        members |= {member.number: member for member in joining}
        return self.after(members.values(), highest_id, anew=gone)

    def raft_id(self, number: int) -> int | None:
        """The raft id of the member with this number."""
        return next((raft_id for raft_id, member in self.members.items() if member.number == number), None)

    def number(self, raft_id: int) -> int:
        """The number of a member; 0 of one that is not here, as of nobody."""
        member = self.members.get(raft_id)
        return member.number if member else 0

    @property
    def configuration(self) -> Configuration:
        """The configuration that a cell with this founding roster begins with."""
        voters = [raft_id for raft_id, member in self.members.items() if member.role is Role.VOTER]
        return Configuration.of(voters, self.members.keys() - voters)

    @property
    def voters(self) -> frozenset[int]:
        """The raft ids of those that vote, or will when they have caught up."""
        return frozenset(raft_id for raft_id, member in self.members.items() if member.role is Role.VOTER)

    @property
    def text(self) -> str:
        """ZooKeeper's configuration text, sorted by number, without the line that tells its version."""
        members = sorted(self.members.values(), key=lambda member: member.number)
        return "".join(f"{member.line}\n" for member in members)

    def encode(self) -> bytes:
        """The bytes that the checkpoint, snapshots and changes hold."""
        return encode_vector(sorted(self.members.items()), _encode_entry)

    @classmethod
    def decode(cls, data: bytes) -> Roster:
        """Raises JuteError for bytes that are no roster."""
        reader = Reader(data)
        roster = cls.read(reader)
        if reader.remaining:
            raise JuteError(f"{reader.remaining} bytes behind a roster")
        return roster

    @classmethod
    def read(cls, reader: Reader) -> Roster:
        """Take a roster from the front of what is read. Raises JuteError."""
        return cls(dict(reader.vector(_read_entry, _LEAST_ENTRY_BYTES) or ()))


class RosterChange(NamedTuple):
    """The context of a change of the configuration: the roster from then on, and the machine's command for it."""

    roster: Roster
    command: bytes

    def encode(self) -> bytes:
        return self.roster.encode() + encode_buffer(self.command)

    @classmethod
    def decode(cls, context: bytes) -> RosterChange:
        """Raises JuteError for bytes that are no such context."""
        reader = Reader(context)
        roster, command = Roster.read(reader), reader.buffer()
        if command is None or reader.remaining:
            raise JuteError("not the context of a change of the configuration")
        return cls(roster, command)


def _check_apart(members: list[Member]) -> None:
    """Raise BadServers if two members have one number, or two listeners one address."""
    for before, member in pairwise(members):
        if before.number == member.number:
            raise BadServers(f"server.{member.number} is there twice")
    taken: dict[tuple[str, int], int] = {}
    for member in members:
        for host, port in member.listeners:
            if (host, port) in taken:
                both = f"of server.{taken[host, port]} and of server.{member.number}"
                raise BadServers(f"{host}:{port} is an address {both}")
            taken[host, port] = member.number


def _encode_entry(entry: tuple[int, Member]) -> bytes:
    raft_id, member = entry
    return b"".join(
        (
            encode_long(raft_id),
            encode_int(member.number),
            encode_ustring(member.peer.encode()),
            encode_ustring(member.client.encode()),
            encode_int(member.role),
            encode_int(member.election_port),
        )
    )


def _read_entry(reader: Reader) -> tuple[int, Member]:
    raft_id, number = reader.long(), reader.int()
    try:
        peer, client = (reader.ustring() or b"").decode(), (reader.ustring() or b"").decode()
        member = Member(number, peer, client, Role(reader.int()), reader.int())
    except JuteError:
        raise
    except ValueError as error:
        raise JuteError(f"not a member: {error}") from None
    return raft_id, member
