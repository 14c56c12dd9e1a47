"""Lock-delay: a lock whose holder's session expired stays taken for a while, since the holder may not know it yet.

It is asked for by a znode: the data of /zookeeper/lock_delay/PATH is the delay in ms, as decimal text, of the lock
whose contenders are children of /PATH. When a session expires, those of its ephemerals that hold such a lock are kept
under another name, with `kept-` in front, and a sweep deletes them when the delay is over. The sequence number is the
same, so everybody else waits for them as for any contender ahead. The name is not, so no guarded write of the old
holder succeeds; and a client of Kazoo or Curator, which looks for its place in the queue by its name alone, does not
take what is left of its old session for the lock.

What is kept is an ephemeral whose session is gone, so the znodes alone say it, and a checkpoint needs no more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from znoded.jute.ops import EventType
from znoded.tree import quota
from znoded.tree.delete import remove_node
from znoded.tree.history_block import PARENT_END
from znoded.tree.paths import parent_of
from znoded.tree.sequence import sequence_of
from znoded.tree.znode import (
    STAT_BYTES,
    data_bytes_of,
    data_of,
    mzxid_of,
    next_count,
    owner_of,
    pzxid_of,
    with_child_created,
    with_data,
)

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

ROOT = b"/zookeeper/lock_delay"
#: The longest delay, as in Chubby and Consul; a longer one is cut to it.
MAX_DELAY_MS = 60_000
#: In front of the name of what is kept.
KEPT = b"kept-"

_MAX_DELAY_DIGITS = len(str(MAX_DELAY_MS))
_SEQUENCES = 1 << 32
#: In the names of contenders that share a lock: Kazoo's readers and ours, and Curator's.
_SHARED = (b"__rlock__", b"__READ__")
_NODE_CREATED, _CHILDREN_CHANGED = int(EventType.NODE_CREATED), int(EventType.NODE_CHILDREN_CHANGED)


def delay_ms(tree: Tree, parent: bytes) -> int:
    """The lock-delay of the lock whose contenders are children of `parent`; 0 for none, or text that is no number."""
    option = tree.nodes.get(ROOT + parent)
    text = b"" if option is None else data_of(option)
    if not text.isdigit():
        return 0
    digits = text.lstrip(b"0")  # Python reads no number of thousands of digits
    return min(int(digits or b"0"), MAX_DELAY_MS) if len(digits) <= _MAX_DELAY_DIGITS else MAX_DELAY_MS


def to_keep(tree: Tree, session: Session) -> set[bytes]:
    """The ephemerals of a session that hold a lock with a delay, when the session expires."""
    if ROOT not in tree.nodes:
        return set()
    contenders: dict[bytes, list[bytes]] = {}
    for path in session.ephemerals or ():
        contenders.setdefault(parent_of(path), []).append(path)
    return {
        path
        for parent, paths in contenders.items()
        if delay_ms(tree, parent)
        for path in _holding(tree, parent, paths, session.id)
    }


def keep(tree: Tree, path: bytes) -> None:
    """Keep this ephemeral, whose session is gone with the command that is being applied, under its other name."""
    zxid, parent = tree.zxid, parent_of(path)
    node, acl = tree.nodes[path], tree.acls.get(path)
    remove_node(tree, path)
    kept = parent + b"/" + KEPT + path[len(parent) + 1 :]
    if kept in tree.nodes:
        return  # somebody made it, to have no delay
    parent_node, node = tree.nodes[parent], with_data(node, node[:-STAT_BYTES], zxid, tree.time_ms)
    tree.replace(kept, node)
    tree.replace(parent, with_child_created(parent_node, zxid))
    tree.created[parent] = next_count(tree.created.get(parent, 0))
    tree.dirty.created.add(parent)
    tree.link(kept, parent, owner_of(node))
    if acl is not None:
        tree.acls[kept] = acl
        tree.dirty.acls.add(kept)
    tree.history.add((zxid, tree.time_ms, _NODE_CREATED, kept, b"", node, acl, parent_node[PARENT_END]))
    tree.events.append((_NODE_CREATED, kept, acl))
    tree.events.append((_CHILDREN_CHANGED, parent, tree.acls.get(parent)))
    if tree.quotas:
        quota.count(tree, kept, 1, data_bytes_of(node))


class Delays:
    """Since when a member has seen each kept node.

    The nodes' mtime would not do: it is by the wall clock of whoever led then. One that is ahead of it, or is set
    forward, would free a lock early. So a delay begins with the first look at what is kept, and with a look of its own
    at each member.
    """

    def __init__(self) -> None:
        #: By path and mzxid, as one of that name may be another one.
        self._since_ms: dict[tuple[bytes, int], int] = {}

    def over(self, tree: Tree, now_ms: int, limit: int) -> list[tuple[bytes, int, int]]:
        """Look at what is kept: at most `limit` nodes whose delay is over, each as (path, mzxid, pzxid).

        `now_ms` is of a clock that nobody sets.
        """
        found: list[tuple[bytes, int, int]] = []
        before, self._since_ms = self._since_ms, {}
        delays_ms: dict[bytes, int] = {}  # a text may be long, and be that of many
        for path in tree.kept:
            node, parent = tree.nodes[path], parent_of(path)
            if parent not in delays_ms:
                delays_ms[parent] = delay_ms(tree, parent)
            mzxid = mzxid_of(node)
            since_ms = self._since_ms[path, mzxid] = before.get((path, mzxid), now_ms)
            if now_ms - since_ms >= delays_ms[parent] and len(found) < limit:
                found.append((path, mzxid, pzxid_of(node)))
        return found


def _holding(tree: Tree, parent: bytes, paths: list[bytes], session_id: int) -> list[bytes]:
    """Those of a session's children of `parent` with no contender of another session ahead that excludes them.

    One look at each sibling, and at few of them if many wait: a session may have thousands there, and thousands of
    sessions one each.
    """
    numbered = [(sequence, path) for path in paths if (sequence := sequence_of(path)) is not None]
    if not numbered:
        return []
    origin = numbered[0][0]
    contenders = [(_distance(sequence, origin), _is_shared(path), path) for sequence, path in numbered]
    front = min(place for place, _, _ in contenders)
    is_any_shared = any(is_shared for _, is_shared, _ in contenders)
    #: Of the others: the place of the first that excludes one that is alone, or one that shares.
    first: dict[bool, float] = {False: math.inf, True: math.inf}
    for sibling in tree.children[parent]:
        sequence = sequence_of(sibling)
        if sequence is None or owner_of(tree.nodes[sibling]) == session_id:
            continue
        place = _distance(sequence, origin)
        for kind in (False,) if _is_shared(sibling) else (False, True):
            first[kind] = min(first[kind], place)
        if first[is_any_shared] < front:
            return []
    return [path for place, is_shared, path in contenders if place <= first[is_shared]]


def _distance(sequence: int, origin: int) -> int:
    """How far a sequence number comes after another one; after 2147483647 comes -2147483648."""
    return (sequence - origin + _SEQUENCES // 2) % _SEQUENCES - _SEQUENCES // 2


def _is_shared(path: bytes) -> bool:
    name = path[path.rfind(b"/") :]
    return any(mark in name for mark in _SHARED)
