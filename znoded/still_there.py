"""Whether a member that is taken for lost is there all the same: at its peers' address, or at that of its clients."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from dataclasses import dataclass

from znoded.zab_raft.cell.server_lines import Member, split_address

#: More than the second after which a lost packet of a connection is sent again.
TIMEOUT_S = 3.0
ANSWER_BYTES_MOST = 1 << 14
_MODE = re.compile(rb"^Mode: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sign:
    """What was found of a member: `peer_answers`, and how it calls itself to clients, empty if it does not say.

    What listens at the clients' address and does not say what it is may be something else, such as a balancer.
    """

    member: Member
    peer_answers: bool
    mode: str

    @property
    def leads(self) -> bool:
        """It leads a cell: it has had a majority just now."""
        return self.mode == "leader"

    @property
    def text(self) -> str:
        """A line for the operator."""
        signs = []
        if self.peer_answers:
            signs.append(f"something answers at {self.member.peer}")
        if self.mode:
            signs.append(f"at {self.member.client} it says that it is a {self.mode}")
        return f"member {self.member.number}: {', and '.join(signs)}"


def look_for(member: Member) -> Sign | None:
    """What is found of a member; None if it does not answer. It may be well, and the network be in the way."""
    sign = Sign(member, _listens(member.peer), _mode(member.client) if member.client else "")
    return sign if sign.peer_answers or sign.mode else None


def _listens(address: str) -> bool:
    try:
        _connected(address).close()
    except OSError:
        return False
    return True


def _mode(address: str) -> str:
    """What the word `srvr` tells; empty if nobody knows it there."""
    with suppress(OSError), _connected(address) as connection:
        connection.sendall(b"srvr")
        answer = b""
        while len(answer) < ANSWER_BYTES_MOST and (part := connection.recv(4096)):
            answer += part
        if match := _MODE.search(answer):
            return match[1].decode(errors="replace")
    return ""


def _connected(address: str) -> socket.socket:
    host, port = split_address(address)
    return socket.create_connection((host.strip("[]"), port), TIMEOUT_S)
