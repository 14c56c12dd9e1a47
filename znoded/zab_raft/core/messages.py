"""What members send each other, and what they store. All are plain records of numbers, bytes and such records.

Ids of members are positive. A record that goes over the wire begins with its sender, its receiver and a term.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from znoded.zab_raft.core.configuration import Configuration

#: No member: no vote given, no leader known.
NOBODY = 0

#: What an entry takes beside its data, in a message as in a log; only limits count with it.
ENTRY_OVERHEAD_BYTES = 32


class EntryKind(IntEnum):
    """What an entry is for."""

    #: For the state machine.
    COMMAND = 0
    #: A `conf_change.ConfChange`, encoded.
    CONFIGURATION = 1
    #: The first entry of a leader; it has no data.
    TERM_START = 2


class Entry(NamedTuple):
    """One place in the log. Two entries of equal index and term are equal."""

    index: int  # type: ignore[assignment]  # the field takes the place of tuple.index, here and below
    term: int
    kind: EntryKind
    data: bytes


class HardState(NamedTuple):
    """What a member must not forget: its term, whom it voted for in it, and the last index it knew to be committed."""

    term: int = 0
    vote: int = NOBODY
    commit: int = 0


class Snapshot(NamedTuple):
    """A state of the machine: everything up to and including `index`, an entry of `term`, is applied to it.

    The state itself travels beside the core. `configuration` is the one in force at `index`.
    """

    index: int  # type: ignore[assignment]
    term: int
    configuration: Configuration


class AppendRequest(NamedTuple):
    """The leader's entries behind (`previous_index`, `previous_term`), perhaps none, and how far it has committed."""

    sender: int
    to: int
    term: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]
    commit: int


class AppendResponse(NamedTuple):
    """The log matches the leader's up to `index` and is durable; or, if `rejected`, it does not at `index`.

    With a rejection, (`hint_index`, `hint_term`) is the last place where the two may match. `blank` says that
    the member has no configuration yet, and that only a snapshot helps it.
    """

    sender: int
    to: int
    term: int
    index: int  # type: ignore[assignment]
    rejected: bool = False
    hint_index: int = 0
    hint_term: int = 0
    blank: bool = False


class Heartbeat(NamedTuple):
    """The leader is there. `commit` is at most what the receiver is known to store, `position` the last read round."""

    sender: int
    to: int
    term: int
    commit: int
    position: int


class HeartbeatResponse(NamedTuple):
    """The receiver follows; `position` is the heartbeat's."""

    sender: int
    to: int
    term: int
    position: int


class VoteRequest(NamedTuple):
    """Ask for a vote in `term`, or, if `pre_vote`, whether it would be given.

    (`last_index`, `last_term`) is the asker's last entry, (`commit_index`, `commit_term`) its last committed one.
    `transfer` says that the leader wants it.
    """

    sender: int
    to: int
    term: int
    pre_vote: bool
    transfer: bool
    last_index: int
    last_term: int
    commit_index: int
    commit_term: int


class VoteResponse(NamedTuple):
    """The answer. If granted, `term` is the request's, otherwise the sender's own.

    (`commit_index`, `commit_term`) is the sender's last committed entry.
    """

    sender: int
    to: int
    term: int
    pre_vote: bool
    granted: bool
    commit_index: int
    commit_term: int


class InstallSnapshot(NamedTuple):
    """The receiver lacks entries that the leader has no longer. To be stepped when the state itself has arrived."""

    sender: int
    to: int
    term: int
    snapshot: Snapshot


class TimeoutNow(NamedTuple):
    """The leader hands over: the receiver is to campaign at once."""

    sender: int
    to: int
    term: int


class ReadRequest(NamedTuple):
    """A member asks its leader for a read index; `request` is the asker's own number for it."""

    sender: int
    to: int
    term: int
    request: int


class ReadResponse(NamedTuple):
    """A read asked with `request` may be served from `index` on; or it was refused."""

    sender: int
    to: int
    term: int
    request: int
    index: int  # type: ignore[assignment]
    refused: bool


Message = (
    AppendRequest
    | AppendResponse
    | Heartbeat
    | HeartbeatResponse
    | VoteRequest
    | VoteResponse
    | InstallSnapshot
    | TimeoutNow
    | ReadRequest
    | ReadResponse
)


def size_bytes(entries: Iterable[Entry]) -> int:
    """What the entries count for against a limit."""
    return sum([len(entry.data) + ENTRY_OVERHEAD_BYTES for entry in entries])
