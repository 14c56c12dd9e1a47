"""Sweeping (protocol facts 5.2): containers go once they were used and emptied, TTL nodes once their time is up.

What a lock-delay keeps goes the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.primitives import Reader
from znoded.tree.create import CONTAINER
from znoded.tree.delete import remove_node
from znoded.tree.refusal import Refused
from znoded.tree.znode import mtime_of, mzxid_of, pzxid_of

if TYPE_CHECKING:
    from znoded.tree.tree import Tree


def sweep_candidates(tree: Tree, now_ms: int, limit: int) -> list[tuple[bytes, int, int]]:
    """At most `limit` nodes to delete at `now_ms` of the wall clock, each as (path, mzxid, pzxid) for its command."""
    found: list[tuple[bytes, int, int]] = []
    for path, kind in tree.kinds.items():
        if path in tree.children:
            continue
        node = tree.nodes[path]
        was_used = path in tree.created
        if was_used if kind == CONTAINER else now_ms - mtime_of(node) > kind:
            found.append((path, mzxid_of(node), pzxid_of(node)))
            if len(found) >= limit:
                break
    return found


def delete_container(tree: Tree, session_id: int, attach: int, record: bytes) -> None:
    """The internal op deleteContainer, for TTL nodes and kept ephemerals as well.

    Refused if the node changed since this was decided.
    """
    reader = Reader(record)
    path, mzxid, pzxid = reader.ustring(), reader.long(), reader.long()
    if path is None or (path not in tree.kinds and path not in tree.kept):
        raise Refused(ErrorCode.NO_NODE)
    if path in tree.children:
        raise Refused(ErrorCode.NOT_EMPTY)
    node = tree.nodes[path]
    if (mzxid_of(node), pzxid_of(node)) != (mzxid, pzxid):
        raise Refused(ErrorCode.BAD_VERSION)
    remove_node(tree, path)
