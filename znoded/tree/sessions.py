"""Sessions: how they begin and end in the replicated state. That one was silent too long is the server's to decide."""

from __future__ import annotations

import hmac
from collections.abc import Set
from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.primitives import LONG, Reader
from znoded.tree import lock_delay
from znoded.tree.delete import remove_node
from znoded.tree.refusal import Refused

if TYPE_CHECKING:
    from znoded.tree.tree import Tree

PASSWORD_BYTES = 16
#: The low bits of an attach, which tell the member that the connection came to, and those above, which are its mark.
MEMBER_BITS = 8
MARK_BITS = 24
#: The low bits of a session id, which count; the byte above them is the member's number.
SESSION_NUMBER_BITS = 56


class Session:
    """A session. `attach` grows each time a connection takes it over; `sequence` counts its commands within an attach.

    `timeout_ms` is what was granted last; `password` is the 16 bytes that open it.
    """

    __slots__ = ("attach", "ephemerals", "id", "password", "sequence", "timeout_ms")

    def __init__(self, id: int, timeout_ms: int, password: bytes, attach: int, sequence: int = 0) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.password = password
        self.attach = attach
        self.sequence = sequence
        #: The paths of its ephemerals; None until it has had one, to keep idle sessions small.
        self.ephemerals: set[bytes] | None = None

    def own(self, path: bytes) -> None:
        """It has an ephemeral more."""
        if self.ephemerals is None:
            self.ephemerals = set()
        self.ephemerals.add(path)

    def disown(self, path: bytes) -> None:
        """One of its ephemerals is gone."""
        assert self.ephemerals is not None, "what it disowns, it owned"
        self.ephemerals.discard(path)


def as_long(number: int) -> int:
    """The 64 bits of `number` as the wire's signed long."""
    return number - (1 << 64) if number >> 63 else number


def split_id(session_id: int) -> tuple[int, int]:
    """The number of the member that made a session's id, and the part that only grows with each one it makes."""
    return (session_id >> SESSION_NUMBER_BITS) & 0xFF, session_id & (1 << SESSION_NUMBER_BITS) - 1


def next_attach(attach: int, member: int, mark: int) -> int:
    """What a connection to `member` takes a session over with, `attach` being the greatest known there.

    No two members make the same one, and of two connections that want a session at the same time, the first or the
    greater gets it. `mark` is a random number that the member's process drew when it began: what an earlier one
    proposed may be on its way still, and must not be taken for this one's.
    """
    return ((attach >> MARK_BITS + MEMBER_BITS) + 1) << MARK_BITS + MEMBER_BITS | mark << MEMBER_BITS | member


def attach_member(attach: int) -> int:
    """The member that the connection came to."""
    return attach & (1 << MEMBER_BITS) - 1


def session_password(cell_secret: bytes, session_id: int) -> bytes:
    """The password of a session of this cell: an HMAC of its id under the cell's secret."""
    return hmac.digest(cell_secret, LONG.pack(session_id), "sha256")[:PASSWORD_BYTES]


def create_session(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    """The internal op createSession. Refused for an id that is not the newest of its member, or 0, that of no owner.

    A command may come to the log more than once: a copy that comes when the session is over must not bring it back.
    """
    reader = Reader(record)
    timeout_ms = reader.int()
    password = reader.buffer()
    member, number = split_id(session_id)
    if session_id == 0 or number <= tree.session_numbers.get(member, 0):
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    if password is None:
        password = session_password(tree.cell_secret, session_id)
    tree.sessions[session_id] = Session(session_id, timeout_ms, password, attach)
    tree.session_numbers[member] = number
    tree.dirty.sessions.add(session_id)


def attach_session(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    """The internal op ATTACH. Refused if a connection with a later attach has the session, or this one has it."""
    timeout_ms = Reader(record).int()
    session = tree.sessions.get(session_id)
    if session is None:
        raise Refused(ErrorCode.SESSION_EXPIRED)
    if attach <= session.attach:
        raise Refused(ErrorCode.SESSION_MOVED)
    session.attach = attach
    session.sequence = 0
    session.timeout_ms = timeout_ms
    tree.dirty.sessions.add(session_id)


def close_session(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op closeSession, asked for by the client: a clean end, after which no lock is kept."""
    _end(tree, session, frozenset())
    return b""


def expire_session(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    """The internal op closeSession. Refused if a connection took the session over since, or another leader did."""
    term = Reader(record).long()
    session = tree.sessions.get(session_id)
    if session is None:
        raise Refused(ErrorCode.SESSION_EXPIRED)
    if term != tree.term or attach != session.attach:
        raise Refused(ErrorCode.SESSION_MOVED)
    _end(tree, session, lock_delay.to_keep(tree, session))


def _end(tree: Tree, session: Session, kept: Set[bytes]) -> None:
    """The session goes, and its ephemerals but those kept. Sorted: every member must fire the same events."""
    del tree.sessions[session.id]
    tree.dirty.sessions.add(session.id)
    for path in sorted(session.ephemerals or ()):
        if path in kept:
            lock_delay.keep(tree, path)
        else:
            remove_node(tree, path)
