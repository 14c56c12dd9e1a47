"""How a blank member comes into a cell: who founds a new one, and who joins the one that is there. Pure.

A blank member asks all others of its table, in rounds. If any welcomes it, it joins that cell, unless another denies it
the same raft id: each knows what it has seen, and one alone may have seen that the id belongs to a disk that was lost.
The lowest-numbered voter founds a new cell when all voters are there, blank, and have the same table. A majority would
not do: those whose disks were lost are blank too, and the one that they do not reach may be all that is left of a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.zab_raft.peers.handshake import ADDRESS_BYTES_LIMIT


class Table(NamedTuple):
    """The members in the configuration of a blank member: `digest` differs when anything in it does.

    `voters` are member numbers; `addresses` are member number -> "host:port", all members, its own included.
    """

    digest: bytes
    voters: frozenset[int]
    addresses: Mapping[int, str]


class Blank(NamedTuple):
    """An answer: I am blank too, and this is my table's digest."""

    digest: bytes


class Welcome(NamedTuple):
    """An answer: you belong to this cell under this raft id. `roster` is the one the cell was founded with, encoded.

    `founding`: the member was in the cell from its beginning, and begins with the snapshot of index 0; otherwise with
    the empty configuration. `members` is raft id -> (member number, "host:port") as of now, `highest_id` the greatest
    raft id there ever was.
    """

    cell: bytes
    raft_id: int
    founding: bool
    roster: bytes
    members: Mapping[int, tuple[int, str]]
    highest_id: int


class Denied(NamedTuple):
    """An answer: you may not come in, for this reason, which says what to do.

    `raft_id` is what the answerer knows the member as; 0 if it is not in the roster there.
    """

    raft_id: int
    reason: str


Answer = Blank | Welcome | Denied

ANSWER_BYTES_LIMIT = 1 << 20
DIGEST_BYTES_LIMIT = 64

_WELCOME = Struct(">16sQQ?I")
_DENIED = Struct(">Q")
_MEMBER = Struct(">QI")


class _Kind(IntEnum):
    BLANK = 1
    WELCOME = 2
    DENIED = 3


def encode_answer(answer: Answer) -> bytes:
    """The payload of an answer."""
    if isinstance(answer, Blank):
        return bytes([_Kind.BLANK]) + answer.digest
    if isinstance(answer, Denied):
        return bytes([_Kind.DENIED]) + _DENIED.pack(answer.raft_id) + answer.reason.encode()
    head = _WELCOME.pack(answer.cell, answer.raft_id, answer.highest_id, answer.founding, len(answer.members))
    members = [
        _MEMBER.pack(raft_id, number) + encode_buffer(address.encode())
        for raft_id, (number, address) in sorted(answer.members.items())
    ]
    return b"".join((bytes([_Kind.WELCOME]), head, *members, answer.roster))


def decode_answer(payload: bytes) -> Answer:
    """Raises JuteError."""
    kind, reader = payload[:1], Reader(payload, min(1, len(payload)))
    try:
        if kind == bytes([_Kind.BLANK]):
            return Blank(payload[1:])
        if kind == bytes([_Kind.DENIED]):
            (raft_id,) = reader.unpack(_DENIED)
            return Denied(raft_id, payload[reader.position :].decode())
        if kind == bytes([_Kind.WELCOME]):
            return _decode_welcome(reader)
    except UnicodeDecodeError as error:
        raise JuteError("an answer that is not text") from error
    raise JuteError(f"no answer begins with {kind.hex() or 'nothing'}")


def _decode_welcome(reader: Reader) -> Welcome:
    cell, raft_id, highest_id, founding, count = reader.unpack(_WELCOME)
    if count * (_MEMBER.size + 4) > reader.remaining:
        raise JuteError(f"{count} members in {reader.remaining} bytes")
    members = {}
    for _ in range(count):
        member, number = reader.unpack(_MEMBER)
        address = reader.buffer() or b""
        if len(address) > ADDRESS_BYTES_LIMIT:
            raise JuteError(f"an address of {len(address)} bytes")
        members[member] = number, address.decode()
    return Welcome(cell, raft_id, founding, reader.data[reader.position :], members, highest_id)


class Found(NamedTuple):
    """Found a new cell: draw its id, make it durable, then `Peers.adopt` it. Raft ids are the member numbers."""


class Join(NamedTuple):
    """Become the member that the welcome names."""

    welcome: Welcome


class Wait(NamedTuple):
    """Nothing to do yet, because of this."""

    why: str


Decision = Found | Join | Wait


def decide(own_number: int, table: Table, answers: Mapping[int, Answer]) -> Decision:
    """What the answers of one round, by member number, mean for a blank member."""
    welcomes = [answer for answer in answers.values() if isinstance(answer, Welcome)]
    if len({welcome.cell for welcome in welcomes}) > 1:
        return Wait(f"the members are not of one cell: {_cells(answers)}")
    # A member that was removed and added again is known by its latest id to those that are up to date. Under an id of
    # the founding it is known to all but those who have seen it removed, and one who has not may be far behind them.
    welcome = max(welcomes, key=lambda welcome: welcome.raft_id, default=None)
    for number, answer in sorted(answers.items()):
        if not isinstance(answer, Denied):
            continue
        if welcome is None or welcome.founding or answer.raft_id >= welcome.raft_id:
            return Wait(f"member {number} says: {answer.reason}")
    return Join(welcome) if welcome else _found(own_number, table, answers)


def _found(own_number: int, table: Table, answers: Mapping[int, Answer]) -> Decision:
    others = [number for number, answer in answers.items() if answer != Blank(table.digest)]
    if others:
        return Wait(f"the table of members in the configuration of {_members(others)} differs from this member's")
    if own_number != min(table.voters):
        return Wait(f"member {min(table.voters)} has not founded the cell yet")
    missing = table.voters - answers.keys() - {own_number}
    if missing:
        return Wait(f"{_members(missing)} did not answer: all voters have to be there once, to found the cell")
    return Found()


def _cells(answers: Mapping[int, Answer]) -> str:
    return ", ".join(
        f"member {number} is of {answer.cell.hex()}"
        for number, answer in sorted(answers.items())
        if isinstance(answer, Welcome)
    )


def _members(numbers: Iterable[int]) -> str:
    return ", ".join(f"member {number}" for number in sorted(numbers))
