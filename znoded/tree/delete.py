"""Deleting znodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import EventType
from znoded.jute.primitives import JuteError
from znoded.tree import quota
from znoded.tree.acl import DELETE
from znoded.tree.history_block import PARENT_END
from znoded.tree.paths import parent_of
from znoded.tree.refusal import Refused
from znoded.tree.request_fields import end_of_buffer, int_at, is_null
from znoded.tree.znode import data_bytes_of, owner_of, version_of, with_child_deleted

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

#: The znodes that nobody may delete (protocol facts 5.4).
RESERVED = frozenset((b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config"))

_NODE_DELETED, _CHILDREN_CHANGED = int(EventType.NODE_DELETED), int(EventType.NODE_CHILDREN_CHANGED)


def delete(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op delete."""
    path_end = end_of_buffer(record, 0)
    version = int_at(record, path_end)
    if is_null(record, 0):
        raise JuteError("delete of a null path")
    delete_node(tree, identities, record[4:path_end], version)
    return b""


def delete_node(tree: Tree, identities: bytes, path: bytes, version: int) -> None:
    """Delete a znode if its version is `version` or that is -1. Raises Refused, in the order of protocol facts 3."""
    slash = path.rfind(b"/")
    if slash < 0 or b"\0" in path or path in RESERVED:
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    parent = path[:slash] or b"/"
    if parent not in tree.nodes:
        raise Refused(ErrorCode.NO_NODE)
    tree.require(DELETE, parent, identities)
    node = tree.nodes.get(path)
    if node is None:
        raise Refused(ErrorCode.NO_NODE)
    if version not in (-1, version_of(node)):
        raise Refused(ErrorCode.BAD_VERSION)
    if path in tree.children:
        raise Refused(ErrorCode.NOT_EMPTY)
    remove_node(tree, path)


def remove_node(tree: Tree, path: bytes) -> None:
    """Take a childless znode out of the tree, whoever asks for it: a client, the end of its session, a sweep."""
    zxid = tree.zxid
    dirty = tree.dirty
    parent = parent_of(path)
    if tree.undo is not None:
        tree.undo.remember(tree, path)
        tree.undo.remember(tree, parent)
    node = tree.nodes.pop(path)
    acl = tree.acls.pop(path, None)
    dirty.nodes[path] = None
    parent_node = tree.nodes[parent]
    tree.nodes[parent] = dirty.nodes[parent] = with_child_deleted(parent_node, zxid)
    tree.unlink(path, parent, owner_of(node))
    if acl is not None:
        dirty.acls.add(path)
    if tree.created.pop(path, None) is not None:
        dirty.created.add(path)
    if tree.kinds.pop(path, None) is not None:
        dirty.kinds.add(path)
    tree.history.add((zxid, tree.time_ms, _NODE_DELETED, path, node, b"", acl, parent_node[PARENT_END]))
    tree.events.append((_NODE_DELETED, path, acl))
    tree.events.append((_CHILDREN_CHANGED, parent, tree.acls.get(parent)))
    if path.startswith(quota.ROOT_SLASH):
        quota.limits_changed(tree, path)
    if tree.quotas:
        quota.count(tree, path, -1, -data_bytes_of(node))
