"""Setting the data of znodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import EventType
from znoded.tree import quota
from znoded.tree.acl import WRITE
from znoded.tree.commands import ends_of_path_and_data, int_at
from znoded.tree.paths import check_path
from znoded.tree.refusal import Refused
from znoded.tree.znode import STAT_BYTES, data_bytes_of, version_of, with_data

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

_QUOTA_ROOT_SLASH = quota.ROOT_SLASH
_DATA_CHANGED = int(EventType.NODE_DATA_CHANGED)


def set_data(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op setData: the reply is the Stat. A null path is a bad path here, like an empty one."""
    path_end, data_end = ends_of_path_and_data(record)
    version = int_at(record, data_end)
    return set_data_of(tree, time_ms, identities, record[4:path_end], record[path_end:data_end], version)


def set_data_of(tree: Tree, time_ms: int, identities: bytes, path: bytes, data: bytes, version: int) -> bytes:
    """Set the data (an encoded buffer) of a znode if its version is `version` or that is -1: its Stat.

    Raises Refused, in the order of protocol facts 3.
    """
    node = tree.nodes.get(path)
    if node is None:
        raise Refused(ErrorCode.NO_NODE if check_path(path) else ErrorCode.BAD_ARGUMENTS)
    acl = tree.acls.get(path)
    if acl is not None:
        tree.require(WRITE, path, identities)
    if tree.quotas:
        added_bytes = len(data) - 4 - data_bytes_of(node)
        quota.check(tree, path, 0, added_bytes)
    if version != -1 and version != version_of(node):
        raise Refused(ErrorCode.BAD_VERSION)
    zxid = tree.zxid
    before = node
    node = with_data(node, data, zxid, time_ms)
    if tree.undo is not None:
        tree.undo.remember(tree, path)
    tree.nodes[path] = tree.dirty.nodes[path] = node
    tree.history.add((zxid, time_ms, _DATA_CHANGED, path, before, node, acl, b""))
    tree.events.append((_DATA_CHANGED, path, acl))
    if tree.quotas:
        quota.count(tree, path, 0, added_bytes)
    if path.startswith(_QUOTA_ROOT_SLASH):
        quota.node_set(tree, path)
    return node[-STAT_BYTES:]
