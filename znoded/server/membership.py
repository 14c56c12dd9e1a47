"""Who the members of the cell are: in the configuration, in the tree, and after what a client asks for.

A change is planned on the state in which it will be applied: all that was proposed before it has to be applied.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from typing import Protocol

from twisted.logger import Logger

from znoded.config import Config
from znoded.jute.errors import ErrorCode
from znoded.jute.primitives import JuteError
from znoded.tree.proposals import made_reconfig, new_roster, refused_reconfig
from znoded.tree.reconfig import Asked, check_request, check_rights
from znoded.tree.refusal import Refused
from znoded.tree.tree import Tree
from znoded.zab_raft.cell.machine import Refusal
from znoded.zab_raft.cell.membership import MemberStatus, change
from znoded.zab_raft.cell.roster import NUMBER_MOST, Roster
from znoded.zab_raft.cell.server_lines import (
    BadServers,
    Member,
    NoNumber,
    Role,
    parse_joining,
    parse_leaving,
    parse_members,
    split_address,
)
from znoded.zab_raft.core import errors as core_errors
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.peers.founding import Table

log = Logger()

_CODES = {
    Refusal.PENDING: ErrorCode.RECONFIG_IN_PROGRESS,
    Refusal.NO_QUORUM: ErrorCode.NEW_CONFIG_NO_QUORUM,
    Refusal.IMPOSSIBLE: ErrorCode.BAD_ARGUMENTS,
}


def configured_roster(config: Config) -> Roster:
    """The roster that a new cell of this configuration begins with. Raises BadServers."""
    roles = {"voter": Role.VOTER, "learner": Role.LEARNER}
    members = config.cell.members.items()
    return Roster.founding(Member(number, each.peer, each.client, roles[each.role]) for number, each in members)


def founding_table(roster: Roster) -> Table:
    """What blank members compare before they found a cell."""
    return Table(
        digest=sha256(roster.encode()).digest(),
        voters=frozenset(roster.members[raft_id].number for raft_id in roster.voters),
        addresses={member.number: member.peer for member in roster.members.values()},
    )


class CellRoster:
    """The roster that a tree holds, decoded once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._encoded = b""
        self._roster = Roster()

    def found(self, roster: Roster) -> None:
        """The cell was founded with these members; a state that is loaded behind that may tell of others."""
        self._tree.roster = roster.encode()

    @property
    def current(self) -> Roster:
        """The members as of the last applied command. Raises JuteError."""
        if self._tree.roster is not self._encoded:
            self._roster = Roster.decode(self._tree.roster)
            self._encoded = self._tree.roster
        return self._roster


def plan_change(tree: Tree, configuration: Configuration, command: bytes) -> ConfChange | bytes:
    """The change that a reconfig asks for, or the ordinary command to propose in its place, which refuses it.

    The context of the change is a command too: the client's, decided. That a quorum stays is the replica's to check,
    which knows who is connected. Raises JuteError for bytes that are no command.
    """
    try:
        wanted = check_request(tree, command, is_pending=configuration.joint or not tree.roster)
        roster = _wanted_roster(tree, wanted, configuration.highest_id)
        check_rights(tree, wanted.identities)
        _check_numbers(roster)
    except Refused as refused:
        return refused_reconfig(command, refused.err)
    except (NoNumber, JuteError):
        return refused_reconfig(command, ErrorCode.MARSHALLING_ERROR)
    except BadServers:
        return refused_reconfig(command, ErrorCode.BAD_ARGUMENTS)
    return change(roster, configuration, made_reconfig(command, roster.encode(), roster.text.encode()))


def refused_change(command: bytes, refusal: Refusal) -> bytes:
    """The ordinary command that refuses a reconfig which was planned and cannot be made."""
    return refused_reconfig(command, _CODES[refusal])


def roster_command(tree: Tree, time_ms: int) -> bytes:
    """The command by which a new leader has /zookeeper/config show the roster that the tree has."""
    return new_roster(time_ms, tree.roster, Roster.decode(tree.roster).text.encode())


class CellView(Protocol):
    """What a member of a cell tells of it; the replica is one."""

    @property
    def leader(self) -> int:
        """The number of the leader; 0: none is known."""

    @property
    def term(self) -> int: ...

    def members(self) -> list[MemberStatus]:
        """All members, as far as they are known here."""


def conf_lines(member: Member, config_text: bytes, election_ticks: int) -> str:
    """What the word `conf` tells in a cell beside what a member alone tells (protocol facts 1.7).

    `election_ticks` is how long members may hear nothing of their leader, ZooKeeper's two limits here.
    """
    _, port = split_address(member.peer)
    peer_type = 0 if member.role is Role.VOTER else 1
    return (
        f"initLimit={election_ticks}\nsyncLimit={election_ticks}\n"
        f"electionAlg=3\nelectionPort={member.shown_election_port}\nquorumPort={port}\npeerType={peer_type}\n"
        f"membership: \n{config_text.decode()}\n"
    )


def told_members(member: int, cell: CellView) -> dict[str, object]:
    """What the admin listener of this member tells of its cell."""
    try:
        members = [asdict(status) for status in cell.members()]
    except core_errors.Refused as refused:
        return {"error": f"{refused}; its log says for whom it waits"}
    return {"member": member, "leader": cell.leader, "term": cell.term, "members": members}


def _wanted_roster(tree: Tree, wanted: Asked, highest_id: int) -> Roster:
    """The roster that is asked for. Raises BadServers, after telling the operator if he is the one who asks."""
    roster = Roster.decode(tree.roster)
    request = wanted.request
    try:
        if request.new_members is None:
            leaving = parse_leaving(_text(request.leaving))
            roster = roster.joined_by(parse_joining(_text(request.joining)), leaving, highest_id)
        else:
            roster = roster.after(parse_members(_text(request.new_members)), highest_id)
        if not roster.voters:
            raise BadServers("no participant would be left")
    except BadServers as error:
        with suppress(Refused):
            check_rights(tree, wanted.identities)  # else anybody could fill the log
            log.info("A reconfig is refused: {error}", error=error)
        raise
    return roster


def _check_numbers(roster: Roster) -> None:
    """ZooKeeper knows no greatest number, and its clients expect that rights are looked at before this one is."""
    strange = [member.number for member in roster.members.values() if not 1 <= member.number <= NUMBER_MOST]
    if strange:
        log.info(
            "A reconfig is refused: server.{number} has no number from 1 to {most}", number=strange[0], most=NUMBER_MOST
        )
        raise Refused(ErrorCode.BAD_ARGUMENTS)


def _text(value: bytes | None) -> str:
    """Raises BadServers unless it is UTF-8."""
    try:
        return (value or b"").decode()
    except UnicodeDecodeError as error:
        raise BadServers(f"not UTF-8: {error}") from None
