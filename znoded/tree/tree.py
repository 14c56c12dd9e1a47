"""The tree: the state that every member of a cell has alike, and the commands that change it.

`Tree.apply` is total and deterministic: whatever the bytes of a command, it returns, and every member that applies the
same commands holds the same state, gives the same replies and fires the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.jute.records import Acl
from znoded.jute.stat import STAT
from znoded.tree import tables
from znoded.tree.acl import OPEN_ACL, Acls, Identity, allowed, size_bytes
from znoded.tree.commands import (
    ATTACH,
    DECIDED_RECONFIG,
    EXPIRY_SEQUENCE,
    HEAD,
    HEAD_BYTES,
    NEW_TERM,
    SET_ROSTER,
    TXN,
    IdentityCache,
)
from znoded.tree.create import create, create2, create_container, create_ttl
from znoded.tree.delete import delete
from znoded.tree.history import History
from znoded.tree.multi import multi
from znoded.tree.options import TreeOptions
from znoded.tree.paths import name_bytes, names_bytes
from znoded.tree.quota import HardLimits
from znoded.tree.reconfig import CONFIG, decided_reconfig, reconfig, set_roster
from znoded.tree.refusal import Refused
from znoded.tree.sessions import Session, attach_session, close_session, create_session, expire_session
from znoded.tree.set_acl import set_acl
from znoded.tree.set_data import set_data
from znoded.tree.sweep import delete_container
from znoded.tree.txn import txn
from znoded.tree.undo import Undo

#: An event type, the path, and the ACL that a watcher needs READ by (None: the open one).
Event: TypeAlias = tuple[int, bytes, Acls | None]
#: Session id, attach, sequence, error code, reply record (empty if there was an error).
Applied: TypeAlias = tuple[int, int, int, int, bytes]

_INTERNED_ACLS = 4096
#: Larger ACLs are rare, and a table full of them would take gigabytes.
_INTERNED_ACL_BYTES = 1024
# Looked up once: every command comes by.
unpack_head = HEAD.unpack_from
_READ_ONLY_ACL: Acls = (Acl(int(Perm.READ), b"world", b"anyone"),)


class Tree:
    """znodes, sessions, ACLs and quotas. Paths are bytes; the root is b"/"."""

    def __init__(self, options: TreeOptions = TreeOptions()) -> None:
        self.options = options
        #: Path -> the znode, in the form that getData answers.
        self.nodes: dict[bytes, bytes] = {}
        #: Path -> the full paths of its children; no entry for those without.
        self.children: dict[bytes, dict[bytes, None]] = {}
        #: Path -> the bytes of the names of its children; no entry for those without.
        self.children_bytes: dict[bytes, int] = {}
        #: Path -> how many children were ever created, which numbers sequential ones; no entry for none.
        self.created: dict[bytes, int] = {}
        #: Path -> its ACL; no entry for the open one.
        self.acls: dict[bytes, Acls] = {}
        #: Path -> 0 for a container, the time to live in ms for a TTL node; no entry for others.
        self.kinds: dict[bytes, int] = {}
        #: Path -> the limits of the quota on it.
        self.quotas: dict[bytes, HardLimits] = {}
        self.sessions: dict[int, Session] = {}
        #: The paths of ephemerals that outlive their session (see `lock_delay`), with the session's id.
        self.kept: dict[bytes, int] = {}
        self.history = History(self, options.history_bytes, options.history_retention_ms)
        #: The events of what was applied, in firing order; whoever delivers them clears the list.
        self.events: list[Event] = []
        #: The zxid of the last command applied, and its time.
        self.zxid = 0
        self.time_ms = 0
        self.term = 0
        self.cell_secret = b""
        #: Who the members of the cell are, opaque here, and the zxid since when; empty and 0 for a member alone.
        self.roster = b""
        self.config_version = 0
        #: Member -> the number in the id of the last session that it made.
        self.session_numbers: dict[int, int] = {}
        self.dirty = tables.Dirty()
        #: The bytes of the commands applied since the last checkpoint, which is about what it will write.
        self.dirty_bytes = 0
        #: What a multi under way has to put back if it fails.
        self.undo: Undo | None = None
        self._identities = IdentityCache()
        self._interned_acls: dict[Acls, Acls] = {}
        self._make_reserved_nodes()

    def _make_reserved_nodes(self) -> None:
        """The znodes of a new server. No command created them, and no parent counted them (protocol facts 4)."""
        for path, aversion, children in (
            (b"/", 0, (b"/zookeeper",)),
            (b"/zookeeper", 0, (CONFIG, b"/zookeeper/quota")),
            (CONFIG, -1, ()),
            (b"/zookeeper/quota", 0, ()),
        ):
            count = len(children)
            self.nodes[path] = encode_buffer(b"") + STAT.pack(0, 0, 0, 0, 0, -count, aversion, 0, 0, count, 0)
            if children:
                self.children[path] = dict.fromkeys(children)
                self.children_bytes[path] = names_bytes(path, children)
        self.acls[CONFIG] = _READ_ONLY_ACL
        self.dirty.nodes.update(self.nodes)
        self.dirty.acls.update(self.acls)

    # ---- commands

    def apply(self, zxid: int, command: bytes) -> Applied:
        """Carry out one command. Its events are appended to `events`, and its changes to `history`."""
        self.zxid = zxid
        self.dirty_bytes += len(command)
        if len(command) < HEAD_BYTES:
            return 0, 0, 0, ErrorCode.MARSHALLING_ERROR, b""
        time_ms, session_id, attach, sequence, op, identities_bytes = unpack_head(command)
        self.time_ms = time_ms
        record_at = HEAD_BYTES + identities_bytes
        if not HEAD_BYTES <= record_at <= len(command):
            return session_id, attach, sequence, ErrorCode.MARSHALLING_ERROR, b""
        try:
            act = client_op(op)
            if act is None or sequence == EXPIRY_SEQUENCE:
                INTERNAL_OPS.get(op, _unknown)(self, session_id, attach, command[record_at:])
                return session_id, attach, sequence, 0, b""
            session = self.sessions.get(session_id)
            if session is None:
                raise Refused(ErrorCode.SESSION_EXPIRED)
            if attach != session.attach or sequence != session.sequence + 1:
                raise Refused(ErrorCode.SESSION_MOVED)
            session.sequence = sequence
            self.dirty.sessions.add(session_id)
            body = act(self, time_ms, session, command[HEAD_BYTES:record_at], command[record_at:])
        except Refused as refused:
            return session_id, attach, sequence, refused.err, b""
        except JuteError:
            return session_id, attach, sequence, ErrorCode.MARSHALLING_ERROR, b""
        return session_id, attach, sequence, 0, body

    # ---- rights

    def identities(self, encoded: bytes) -> tuple[Identity, ...]:
        """The identities that a command carries. Raises JuteError."""
        return self._identities.decode(encoded)

    def require(self, perm: int, path: bytes, identities: bytes) -> None:
        """Refuse who lacks the right `perm` on a znode."""
        acl = self.acls.get(path)
        if acl is not None and not allowed(acl, perm, self._identities.decode(identities)):
            raise Refused(ErrorCode.NO_AUTH)

    def stored_acl(self, acl: Acls) -> Acls | None:
        """What is kept of an ACL: nothing of the open one, and one copy of each other."""
        return None if acl == OPEN_ACL else self.interned(acl)

    def interned(self, acl: Acls) -> Acls:
        """The one copy of an ACL, unless it is large."""
        if size_bytes(acl) > _INTERNED_ACL_BYTES:
            return acl
        if len(self._interned_acls) >= _INTERNED_ACLS:
            self._interned_acls.clear()
        return self._interned_acls.setdefault(acl, acl)

    # ---- small changes of the state, which the operations are made of

    def replace(self, path: bytes, node: bytes) -> None:
        """Put other bytes in the place of a znode's."""
        if self.undo is not None:
            self.undo.remember(self, path)
        self.nodes[path] = self.dirty.nodes[path] = node

    def link(self, path: bytes, parent: bytes, owner: int) -> None:
        """A znode is a child of its parent, and an ephemeral of its owner if it has one."""
        siblings = self.children.get(parent)
        if siblings is None:
            self.children[parent] = {path: None}
            self.children_bytes[parent] = name_bytes(path, parent)
        else:
            siblings[path] = None
            self.children_bytes[parent] += name_bytes(path, parent)
        if owner in self.sessions:
            self.sessions[owner].own(path)
        elif owner:
            self.kept[path] = owner

    def unlink(self, path: bytes, parent: bytes, owner: int) -> None:
        """The opposite of `link`."""
        siblings = self.children[parent]
        del siblings[path]
        if siblings:
            self.children_bytes[parent] -= name_bytes(path, parent)
        else:
            del self.children[parent]
            del self.children_bytes[parent]
        if owner in self.sessions:
            self.sessions[owner].disown(path)
        elif owner:
            self.kept.pop(path, None)

    # ---- the checkpoint

    def take_changes(self) -> dict[bytes, tables.Changed]:
        """Everything that changed since the last time, by table (see `tables`); a value of None is a deletion."""
        dirty, self.dirty = self.dirty, tables.Dirty()
        self.dirty_bytes = 0
        return tables.take_changes(self, dirty)

    def restore_changes(self, changes: tables.Changes) -> None:
        """What was taken could not be stored: it belongs to the next checkpoint, with the values it has by then."""
        tables.restore_changes(self, changes)

    def load(self, read_table: tables.ReadTable) -> None:
        """Take over the state of a checkpoint."""
        tables.load(self, read_table)


def _new_term(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    reader = Reader(record)
    term, cell_secret, options = reader.long(), reader.buffer(), reader.buffer()
    tree.options = tree.options.decided(options or b"")
    tree.term = term
    tree.cell_secret = tree.cell_secret or cell_secret or b""


def _unknown(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    raise Refused(ErrorCode.UNIMPLEMENTED)


#: Takes the tree, the time in ms, the session, the identities and the record, both encoded; gives the reply record.
ClientOp: TypeAlias = Callable[[Tree, int, Session, bytes, bytes], bytes]
CLIENT_OPS: Final[Mapping[int, ClientOp]] = {
    int(op): act
    for op, act in {
        Op.CREATE: create,
        Op.DELETE: delete,
        Op.SET_DATA: set_data,
        Op.SET_ACL: set_acl,
        Op.MULTI: multi,
        Op.CREATE2: create2,
        Op.RECONFIG: reconfig,
        Op.CREATE_CONTAINER: create_container,
        Op.CREATE_TTL: create_ttl,
        Op.CLOSE_SESSION: close_session,
        DECIDED_RECONFIG: decided_reconfig,
        TXN: txn,
    }.items()
}
client_op = CLIENT_OPS.get

#: Takes the tree, the session id, the attach and the record.
InternalOp: TypeAlias = Callable[[Tree, int, int, bytes], None]
INTERNAL_OPS: Final[Mapping[int, InternalOp]] = {
    Op.CREATE_SESSION: create_session,
    Op.CLOSE_SESSION: expire_session,
    Op.DELETE_CONTAINER: delete_container,
    NEW_TERM: _new_term,
    SET_ROSTER: set_roster,
    ATTACH: attach_session,
}
