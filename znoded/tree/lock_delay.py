"""Lock-delay: a lock whose holder's session expired stays taken for a while, since the holder may not know it yet.

It is asked for by a znode: the data of /zookeeper/lock_delay/PATH is the delay in ms, as decimal text, of the lock
whose contenders are children of /PATH. When a session expires, those of its ephemerals that hold such a lock are kept:
their data version and mtime move, so that no guarded write of the old holder succeeds, and a sweep deletes them when
the delay is over. Everybody else waits for them as for any contender ahead.

What is kept is an ephemeral whose session is gone, so the znodes alone say it, and a checkpoint needs no more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from znoded.jute.ops import EventType
from znoded.tree.paths import parent_of
from znoded.tree.znode import STAT_BYTES, data_of, mtime_of, mzxid_of, owner_of, pzxid_of, with_data

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

ROOT = b"/zookeeper/lock_delay"
#: The longest delay, as in Chubby and Consul; a longer one is cut to it.
MAX_DELAY_MS = 60_000

_MS = re.compile(rb"[0-9]{1,9}")
#: As the server appends it, below 0 once it has counted beyond 2147483647; a single - may end a name.
_SEQUENCE = re.compile(rb"(?:(?<=[_-])-[0-9]{9,10}|[0-9]{10})$")
_SEQUENCES = 1 << 32
#: In the names of contenders that share a lock: Kazoo's readers and ours, and Curator's.
_SHARED = (b"__rlock__", b"__READ__")
_DATA_CHANGED = int(EventType.NODE_DATA_CHANGED)


def delay_ms(tree: Tree, parent: bytes) -> int:
    """The lock-delay of the lock whose contenders are children of `parent`; 0 for none, or text that is no number."""
    option = tree.nodes.get(ROOT + parent)
    text = b"" if option is None else data_of(option)
    return min(int(text), MAX_DELAY_MS) if _MS.fullmatch(text) else 0


def to_keep(tree: Tree, session: Session) -> set[bytes]:
    """The ephemerals of a session that hold a lock with a delay, when the session expires."""
    if ROOT not in tree.nodes:
        return set()
    return {
        path
        for path in session.ephemerals or ()
        if delay_ms(tree, parent_of(path)) and _holds_lock(tree, path, session.id)
    }


def keep(tree: Tree, path: bytes) -> None:
    """The session that owns this ephemeral expires with the command that is being applied, and the znode stays."""
    before, acl = tree.nodes[path], tree.acls.get(path)
    node = with_data(before, before[:-STAT_BYTES], tree.zxid, tree.time_ms)
    tree.replace(path, node)
    tree.kept[path] = None
    tree.history.add((tree.zxid, tree.time_ms, _DATA_CHANGED, path, before, node, acl, b""))
    tree.events.append((_DATA_CHANGED, path, acl))


def kept_too_long(tree: Tree, now_ms: int, limit: int) -> list[tuple[bytes, int, int]]:
    """At most `limit` kept nodes to delete at `now_ms` of the wall clock, each as (path, mzxid, pzxid)."""
    found: list[tuple[bytes, int, int]] = []
    for path in tree.kept:
        node = tree.nodes[path]
        if now_ms - mtime_of(node) >= delay_ms(tree, parent_of(path)):
            found.append((path, mzxid_of(node), pzxid_of(node)))
            if len(found) >= limit:
                break
    return found


def _holds_lock(tree: Tree, path: bytes, session_id: int) -> bool:
    """Whether no contender of another session is ahead of this one, but for those that it shares the lock with."""
    sequence = _sequence(path)
    if sequence is None:
        return False
    is_shared = _is_shared(path)
    for sibling in tree.children[parent_of(path)]:
        other = _sequence(sibling)
        if other is None or not 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2:
            continue
        if owner_of(tree.nodes[sibling]) != session_id and not (is_shared and _is_shared(sibling)):
            return False
    return True


def _sequence(path: bytes) -> int | None:
    found = _SEQUENCE.search(path)
    return int(found[0]) if found else None


def _is_shared(path: bytes) -> bool:
    name = path[path.rfind(b"/") :]
    return any(mark in name for mark in _SHARED)
