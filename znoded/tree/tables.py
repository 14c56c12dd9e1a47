"""The tree as tables of keys and values: how the checkpoint sees it.

nodes      path -> the znode as it is stored
created    path -> int: creations of children ever
acls       path -> vector of ACL entries; absent for the open ACL
kinds      path -> long: 0 for a container, the time to live in ms for a TTL node; absent for others
sessions   id -> int timeout_ms, long attach, long sequence, then the password
meta       zxid, term, cell_secret, options, session_numbers, history_oldest, roster, config_version

The history has tables of its own (`history_log`, `history_segment`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from znoded.jute.primitives import INT, LONG, Reader
from znoded.jute.records import ACL_VECTOR
from znoded.tree import quota
from znoded.tree.paths import names_bytes
from znoded.tree.sessions import Session
from znoded.tree.znode import NO_OWNER_BYTES, OWNER_SLICE, owner_of

if TYPE_CHECKING:
    from znoded.tree.tree import Tree

NODES, CREATED, ACLS, KINDS = b"nodes", b"created", b"acls", b"kinds"
SESSIONS, META = b"sessions", b"meta"

#: Keys and their new values, None for what is deleted.
Changed: TypeAlias = dict[bytes, bytes | None]
#: What changed, by table.
Changes: TypeAlias = Mapping[bytes, Mapping[bytes, bytes | None]]
#: Gives all of a table, by its name.
ReadTable: TypeAlias = Callable[[bytes], Iterable[tuple[bytes, bytes]]]
V = TypeVar("V")

_SESSION = struct.Struct(">iqq")
_SESSION_NUMBER = struct.Struct(">Bq")


class Dirty:
    """What changed since the last checkpoint, by key.

    Of nodes, by far the most, it holds the new values too (None: deleted), so that taking a checkpoint's share of them
    costs next to nothing. The other values are looked up when they are taken.
    """

    __slots__ = ("acls", "created", "kinds", "nodes", "sessions")

    def __init__(self) -> None:
        self.nodes: Changed = {}
        self.created: set[bytes] = set()
        self.acls: set[bytes] = set()
        self.kinds: set[bytes] = set()
        self.sessions: set[int] = set()


def take_changes(tree: Tree, dirty: Dirty) -> dict[bytes, Changed]:
    """The new values of everything in `dirty`, the history that is not stored yet, and `meta`."""
    return {
        NODES: dirty.nodes,
        CREATED: _encoded(dirty.created, tree.created, INT.pack),
        ACLS: _encoded(dirty.acls, tree.acls, ACL_VECTOR.encode),
        KINDS: _encoded(dirty.kinds, tree.kinds, LONG.pack),
        SESSIONS: {
            LONG.pack(session_id): _encode_session(tree.sessions.get(session_id)) for session_id in dirty.sessions
        },
        **tree.history.take(tree.time_ms),
        META: {
            b"zxid": LONG.pack(tree.zxid),
            b"term": LONG.pack(tree.term),
            b"cell_secret": tree.cell_secret,
            b"options": tree.options.encode(),
            b"session_numbers": _encode_numbers(tree.session_numbers),
            b"history_oldest": LONG.pack(tree.history.oldest),
            b"roster": tree.roster,
            b"config_version": LONG.pack(tree.config_version),
        },
    }


def restore_changes(tree: Tree, changes: Changes) -> None:
    """These were taken but could not be stored: they are dirty again."""
    dirty = tree.dirty
    dirty.nodes = {**changes[NODES], **dirty.nodes}
    dirty.created.update(changes[CREATED])
    dirty.acls.update(changes[ACLS])
    dirty.kinds.update(changes[KINDS])
    dirty.sessions.update(LONG.unpack(key)[0] for key in changes[SESSIONS])
    tree.history.restore()
    items = chain.from_iterable(values.items() for values in changes.values())
    tree.dirty_bytes += sum(len(key) + len(value or b"") for key, value in items)


def load(tree: Tree, read_table: ReadTable) -> None:
    """Replace the state of `tree` by that in the tables. Tables without a root are those of a new cell."""
    nodes = dict(read_table(NODES))
    if b"/" not in nodes:
        return
    meta = dict(read_table(META))
    tree.zxid = LONG.unpack(meta[b"zxid"])[0]
    tree.term = LONG.unpack(meta[b"term"])[0]
    tree.cell_secret = meta[b"cell_secret"]
    tree.options = tree.options.decided(meta[b"options"])
    tree.session_numbers = _decode_numbers(meta[b"session_numbers"])
    tree.roster = meta[b"roster"]
    tree.config_version = LONG.unpack(meta[b"config_version"])[0]
    tree.nodes = nodes
    tree.created = {path: INT.unpack(value)[0] for path, value in read_table(CREATED)}
    tree.acls = {path: tree.interned(ACL_VECTOR.read(Reader(value)) or ()) for path, value in read_table(ACLS)}
    tree.kinds = {path: LONG.unpack(value)[0] for path, value in read_table(KINDS)}
    tree.sessions = {session.id: session for session in map(_decode_session, read_table(SESSIONS))}
    tree.history.load(read_table, LONG.unpack(meta[b"history_oldest"])[0])
    tree.history.acl_changed(tree.zxid)  # maybe
    tree.dirty = Dirty()
    tree.dirty_bytes = 0
    _find_children_and_owners(tree)
    tree.quotas = {}
    quota.find_quotas(tree)


def _find_children_and_owners(tree: Tree) -> None:
    """Both follow from the znodes. This loop sees every one of them, and a start waits for it."""
    children: dict[bytes, dict[bytes, None]] = {}
    tree.kept = {}
    for path, node in tree.nodes.items():
        parent = path[: path.rfind(b"/")] or b"/"
        try:
            children[parent][path] = None
        except KeyError:
            children[parent] = {path: None}
        if node[OWNER_SLICE] != NO_OWNER_BYTES:
            owner = owner_of(node)
            session = tree.sessions.get(owner)
            if session is not None:
                session.own(path)
            else:
                tree.kept[path] = owner
    del children[b"/"][b"/"]  # the loop took the root for a child of itself
    tree.children = {parent: paths for parent, paths in children.items() if paths}
    tree.children_bytes = {parent: names_bytes(parent, paths) for parent, paths in tree.children.items()}


def _encoded(keys: Iterable[bytes], table: Mapping[bytes, V], encode: Callable[[V], bytes]) -> Changed:
    return {key: encode(table[key]) if key in table else None for key in keys}


def _encode_numbers(numbers: Mapping[int, int]) -> bytes:
    return b"".join(_SESSION_NUMBER.pack(*each) for each in sorted(numbers.items()))


def _decode_numbers(data: bytes) -> dict[int, int]:
    return dict(_SESSION_NUMBER.iter_unpack(data))


def _encode_session(session: Session | None) -> bytes | None:
    if session is None:
        return None
    fields = session.timeout_ms, session.attach, session.sequence
    return _SESSION.pack(*fields) + session.password


def _decode_session(item: tuple[bytes, bytes]) -> Session:
    key, value = item
    timeout_ms, attach, sequence = _SESSION.unpack_from(value)
    return Session(LONG.unpack(key)[0], timeout_ms, value[_SESSION.size :], attach, sequence)
