"""The members of a cell in ZooKeeper's words (protocol facts 12), as configurations and reconfig requests have them:

    server.1=host:2888:3888:participant;host:2181

A member here has one port for its peers: the first. The second, ZooKeeper's election port, is kept as text, since Java
clients take no line in which both are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from znoded.addresses import EVERY_INTERFACE, HOST, PORT_MOST

#: From the port of the peers to the one that is shown for elections, when nobody named one: ZooKeeper's 2888 and 3888.
ELECTION_PORT_DISTANCE = 1_000

_ADDRESS = re.compile(rf"({HOST}):(\+?\d{{1,9}}):?", re.ASCII)
_SERVER = re.compile(rf"({HOST}):(\+?\d{{1,9}}):(\+?\d{{1,9}})(?::([^:;|]*))?:?", re.ASCII)
_PORT = re.compile(r"\+?\d{1,9}:?", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_VERSION = re.compile(r"[+-]?[0-9A-Fa-f]{1,16}", re.ASCII)
_PROPERTY = re.compile(r"([^\s=:]+)\s*(?:[=:]\s*|\s+|$)(.*)")

SERVER_FORM = "HOST:PORT:ELECTION_PORT[:participant|:observer];[CLIENT_HOST:]CLIENT_PORT"


class BadServers(ValueError):
    """The text names no members, or some that cannot be together. The message says what would be right."""


class NoNumber(BadServers):
    """Something else stands where a number has to be."""


class Role(IntEnum):
    """What a member is to be. A voter that has not caught up yet is still a learner of the Raft core."""

    VOTER = 0
    LEARNER = 1


ROLE_TEXTS = {Role.VOTER: "participant", Role.LEARNER: "observer"}
ROLES = {"": Role.VOTER} | {text: role for role, text in ROLE_TEXTS.items()}


@dataclass(frozen=True, slots=True)
class Member:
    """A member as it is known to all: `number` is ZooKeeper's server id, `peer` and `client` are HOST:PORT texts.

    `client` may be empty: then nobody is told where clients reach it.
    """

    number: int
    peer: str
    client: str
    role: Role = Role.VOTER
    election_port: int = 0

    @property
    def line(self) -> str:
        """The member as a line of ZooKeeper's configuration."""
        host, port = split_address(self.peer)
        client = f";{self.client}" if self.client else ""
        return f"server.{self.number}={host}:{port}:{self.shown_election_port}:{ROLE_TEXTS[self.role]}{client}"

    @property
    def listeners(self) -> list[tuple[str, int]]:
        """Host and port of all that it listens on; no two members can share one."""
        host, port = split_address(self.peer)
        listeners = [(host.lower(), port)]
        if self.client:
            client_host, client_port = split_address(self.client)
            listeners.append((host.lower() if client_host in EVERY_INTERFACE else client_host.lower(), client_port))
        return listeners

    @property
    def shown_election_port(self) -> int:
        """The port that is shown for elections, another than that of the peers."""
        if self.election_port:
            return self.election_port
        _, port = split_address(self.peer)
        above = port + ELECTION_PORT_DISTANCE
        return above if above <= PORT_MOST else port - ELECTION_PORT_DISTANCE


def split_address(address: str) -> tuple[str, int]:
    """Host (an IPv6 one in brackets) and port of a HOST:PORT text that was checked before."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def parse_server(number: int, spec: str) -> Member:
    """The member that `server.number=spec` is. Raises BadServers."""
    server, _, client = spec.strip().partition(";")
    if "|" in server:
        raise BadServers(f"server.{number} has several addresses in {server!r}: a member here has one")
    match = _SERVER.fullmatch(server)
    role = ROLES.get((match[4] or "").strip().lower()) if match else None
    if match is None or role is None:
        raise BadServers(f"server.{number}={spec} is not right: it must be {SERVER_FORM}")
    peer_port, election_port = _port(match[2]), _port(match[3])
    return Member(
        number,
        f"{match[1]}:{peer_port}",
        _client_address(client, f"server.{number}={spec}"),
        role,
        0 if election_port == peer_port else election_port,
    )


def parse_joining(text: str) -> list[Member]:
    """Members from `server.N=SPEC,...`, each of which has to say where its clients connect. Raises BadServers."""
    return [_joiner(part) for part in _parts(text)]


def parse_leaving(text: str) -> list[int]:
    """Numbers of members from `N,...`. Raises NoNumber."""
    return [_number(part) for part in _parts(text)]


def parse_members(text: str) -> list[Member]:
    """Members from a whole configuration, its lines ended by newlines or commas. The last of a number counts.

    Raises BadServers.
    """
    members: dict[int, Member] = {}
    for line in _parts(text.replace("\n", ",").replace("\r", ",")):
        if line[0] in "#!":
            continue
        match = _PROPERTY.fullmatch(line)
        key, value = (match[1], match[2]) if match else (line, "")
        if key.startswith("server."):
            number = _number(key.removeprefix("server."))
            members[number] = parse_server(number, value)
        elif key != "version":
            raise BadServers(f"{key} is not right: it must be server.N (hierarchical quorums are not supported)")
        elif not _VERSION.fullmatch(value):
            raise NoNumber(f"version={value} is not right: it must be a hexadecimal number")
    return sorted(members.values(), key=lambda member: member.number)


def _joiner(text: str) -> Member:
    key, separator, spec = text.partition("=")
    if not (key.strip() and separator and spec.strip()) or "=" in spec:
        raise BadServers(f"{text!r} is not right: it must be server.N={SERVER_FORM}")
    member = parse_server(_number(key.strip().rpartition(".")[2]), spec)
    if not member.client:
        raise BadServers(f"{text!r} does not say where clients connect: it must be server.N={SERVER_FORM}")
    return member


def _client_address(text: str, spec: str) -> str:
    """The HOST:PORT of `[HOST:]PORT`, or nothing of nothing."""
    if not text:
        return ""
    address = f"{EVERY_INTERFACE[0]}:{text}" if _PORT.fullmatch(text) else text
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise BadServers(f"{spec} is not right: it must be {SERVER_FORM}")
    return f"{match[1]}:{_port(match[2])}"


def _port(text: str) -> int:
    port = int(text)
    if port > PORT_MOST:
        raise BadServers(f"port {port} is not right: it must be a number up to {PORT_MOST}")
    return port


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise NoNumber(f"{text!r} is not right: it must be the number of a member")
    return int(text)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
