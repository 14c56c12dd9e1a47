"""Changing the members of the cell, and /zookeeper/config, which shows them (protocol facts 12).

The tree does not know what a member is. A leader plans a change on the state in which it will be applied, and proposes
the plan, or the code it is refused with; applying it only shows the result. `text` is ZooKeeper's configuration text
without its last line, which tells the version: the zxid of the change. `roster` is the same for the members themselves,
and opaque here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import EventType
from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.jute.records import ReconfigRequest
from znoded.tree import quota
from znoded.tree.acl import WRITE
from znoded.tree.commands import DECIDED_RECONFIG, HEAD, HEAD_BYTES
from znoded.tree.refusal import Refused
from znoded.tree.znode import data_bytes_of, with_data, with_version

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

CONFIG = b"/zookeeper/config"
ANY_VERSION = -1
_NO_VERSION = -1  # what the Stat shows: data changes are counted by the text's own version
_DATA_CHANGED = int(EventType.NODE_DATA_CHANGED)


class Asked(NamedTuple):
    """What a client asks for, and its identities, encoded."""

    request: ReconfigRequest
    identities: bytes


def reconfig(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op reconfig as a client sends it, at a member that stands alone: no leader decided it."""
    ReconfigRequest.decode(Reader(record))
    raise Refused(ErrorCode.UNIMPLEMENTED if tree.options.reconfig else ErrorCode.RECONFIG_DISABLED)


def decided_reconfig(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """A reconfig that its leader decided: the reply is that of getData for CONFIG."""
    reader = Reader(record)
    err, roster, text = reader.int(), reader.buffer() or b"", reader.buffer() or b""
    if err:
        raise Refused(_error_code(err))
    return _show(tree, time_ms, roster, text)


def set_roster(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    """A leader says who its members are: not shown yet in a new cell, news after its members were set by hand."""
    reader = Reader(record)
    time_ms, roster, text = reader.long(), reader.buffer() or b"", reader.buffer() or b""
    if roster != tree.roster or not tree.config_version:
        _show(tree, time_ms, roster, text)


def check_request(tree: Tree, command: bytes, is_pending: bool) -> Asked:
    """What the command of a reconfig asks for, unless it is refused, in the order of protocol facts 3.

    `is_pending`: an earlier change is not finished. Raises Refused, JuteError.
    """
    if len(command) < HEAD_BYTES:
        raise JuteError(f"a command of {len(command)} bytes")
    _, session_id, attach, sequence, _, identities_bytes = HEAD.unpack_from(command)
    record_at = HEAD_BYTES + identities_bytes
    request = ReconfigRequest.decode(Reader(command, record_at))
    if not tree.options.reconfig:
        raise Refused(ErrorCode.RECONFIG_DISABLED)
    session = tree.sessions.get(session_id)
    if session is None:
        raise Refused(ErrorCode.SESSION_EXPIRED)
    if is_pending or not _is_next(session, attach, sequence):
        raise Refused(ErrorCode.RECONFIG_IN_PROGRESS)
    if request.config_id not in (ANY_VERSION, tree.config_version):
        raise Refused(ErrorCode.BAD_VERSION)
    return Asked(request, command[HEAD_BYTES:record_at])


def check_rights(tree: Tree, identities: bytes) -> None:
    """Refuse who may not write CONFIG. ZooKeeper looks at this last. Raises Refused, JuteError."""
    tree.require(WRITE, CONFIG, identities)


def original(command: bytes) -> bytes:
    """The command that a leader decided, for one who proposed it and waits for it; any other command as it is."""
    if not is_decided(command):
        return command
    reader = Reader(command, HEAD_BYTES)
    reader.int()
    reader.buffer()
    reader.buffer()
    return reader.buffer() or b""


def is_decided(command: bytes) -> bool:
    """Whether the command is a reconfig that its leader decided."""
    return len(command) >= HEAD_BYTES and HEAD.unpack_from(command)[4] == DECIDED_RECONFIG


def _is_next(session: Session, attach: int, sequence: int) -> bool:
    """Whether a command would be admitted now. One that would not was applied before, or comes out of turn."""
    return attach == session.attach and sequence == session.sequence + 1


def _show(tree: Tree, time_ms: int, roster: bytes, text: bytes) -> bytes:
    """Let CONFIG say who is a member from this zxid on: the znode."""
    tree.roster = roster
    tree.config_version = tree.zxid
    data = encode_buffer(b"%sversion=%x" % (text, tree.zxid))
    before = tree.nodes[CONFIG]
    node = with_version(with_data(before, data, tree.zxid, time_ms), _NO_VERSION)
    tree.replace(CONFIG, node)
    acl = tree.acls.get(CONFIG)
    tree.history.add((tree.zxid, time_ms, _DATA_CHANGED, CONFIG, before, node, acl, b""))
    tree.events.append((_DATA_CHANGED, CONFIG, acl))
    if tree.quotas:
        quota.count(tree, CONFIG, 0, data_bytes_of(node) - data_bytes_of(before))
    return node


def _error_code(err: int) -> ErrorCode:
    try:
        return ErrorCode(err)
    except ValueError:
        raise JuteError(f"{err} is no error code") from None
