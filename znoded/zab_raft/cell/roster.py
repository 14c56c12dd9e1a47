"""Who the members of a cell are: for each raft id the member's number, its addresses and its role.

A number, from 1 to 254, is what operators and clients know a member by, and may be used again. A raft id is used once:
those of the founding members are their numbers, each later one is above all that ever were. So a member that was
removed, or lost its disk, and joins again is another one to the Raft core.

The roster is replicated state: the state machine keeps it, and it changes with the changes of the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise

from znoded.jute.primitives import (
    JuteError,
    Reader,
    encode_int,
    encode_long,
    encode_ustring,
    encode_vector,
)
from znoded.zab_raft.cell.server_lines import BadServers, Member, Role
from znoded.zab_raft.core.configuration import Configuration

NUMBER_MOST = 254
_LEAST_ENTRY_BYTES = 28


@dataclass(frozen=True, slots=True)
class Roster:
    """Raft id -> member. No two have one number or one address.

    `former` are those that the last change removed: they are needed until the Raft core has left them behind.
    """

    members: Mapping[int, Member] = field(default_factory=dict)
    former: Mapping[int, Member] = field(default_factory=dict)

    @classmethod
    def founding(cls, members: Iterable[Member]) -> Roster:
        """The roster that a cell begins with. Raises BadServers."""
        return cls({member.number: member for member in _apart(members)})

    def after(self, members: Iterable[Member], highest_id: int, anew: Collection[int] = ()) -> Roster:
        """The roster of these members. Those whose number is here keep its raft id, unless it is in `anew`.

        `highest_id` is the greatest raft id there ever was. Raises BadServers.
        """
        known = {member.number: raft_id for raft_id, member in self.members.items() if member.number not in anew}
        later_ids = count(highest_id + 1)
        after = {known.get(member.number) or next(later_ids): member for member in _apart(members)}
        former = {raft_id: member for raft_id, member in self.members.items() if raft_id not in after}
        return Roster(after, former)

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

    @property
    def addresses(self) -> dict[int, tuple[int, str]]:
        """Raft id -> number and peer address of all members, the former ones too."""
        return {raft_id: (member.number, member.peer) for raft_id, member in {**self.former, **self.members}.items()}

    def encode(self) -> bytes:
        """The bytes that the checkpoint, snapshots and changes hold."""
        return _encode_members(self.members) + _encode_members(self.former)

    @classmethod
    def decode(cls, data: bytes) -> Roster:
        """Raises JuteError for bytes that are no roster."""
        reader = Reader(data)
        roster = cls(_read_members(reader), _read_members(reader))
        if reader.remaining:
            raise JuteError(f"{reader.remaining} bytes behind a roster")
        return roster


def _apart(members: Iterable[Member]) -> list[Member]:
    """The members by number. Raises BadServers if two have one number, or two listeners one address."""
    ordered = sorted(members, key=lambda member: member.number)
    for before, member in pairwise(ordered):
        if before.number == member.number:
            raise BadServers(f"server.{member.number} is there twice")
    taken: dict[tuple[str, int], int] = {}
    for member in ordered:
        for host, port in member.listeners:
            if (host, port) in taken:
                both = f"of server.{taken[host, port]} and of server.{member.number}"
                raise BadServers(f"{host}:{port} is an address {both}")
            taken[host, port] = member.number
    return ordered


def _encode_members(members: Mapping[int, Member]) -> bytes:
    return encode_vector(sorted(members.items()), _encode_entry)


def _read_members(reader: Reader) -> dict[int, Member]:
    return dict(reader.vector(_read_entry, _LEAST_ENTRY_BYTES) or ())


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
