"""Setting the data of znodes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import EventType
from znoded.jute.primitives import INT, JuteError
from znoded.tree import quota
from znoded.tree.acl import WRITE
from znoded.tree.paths import check_path
from znoded.tree.refusal import Refused
from znoded.tree.znode import DATA_FIELDS, INT32_MAX, KEPT_WITH_DATA, STAT_BYTES, data_bytes_of, next_version

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

_QUOTA_ROOT_SLASH = quota.ROOT_SLASH
_DATA_CHANGED = int(EventType.NODE_DATA_CHANGED)
_unpack_int = INT.unpack_from
_unpack_kept = KEPT_WITH_DATA.unpack_from
_pack_fields = DATA_FIELDS.pack


def set_data(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op setData: the reply is the Stat. A null path is a bad path here, like an empty one.

    Raises Refused, in the order of protocol facts 3, or JuteError. Half of what a busy server does is done here.
    """
    try:
        (path_bytes,) = _unpack_int(record, 0)
        path_end = 4 + path_bytes if path_bytes > 0 else 4
        (data_bytes,) = _unpack_int(record, path_end)
        data_end = path_end + 4 + data_bytes if data_bytes > 0 else path_end + 4
        (version,) = _unpack_int(record, data_end)
    except struct.error:
        raise JuteError(f"no path, data and version in {len(record)} bytes") from None
    if path_bytes < -1 or data_bytes < -1:
        raise JuteError(f"no path of {path_bytes} and data of {data_bytes} bytes")
    path = record[4:path_end]
    before = tree.nodes.get(path)
    if before is None:
        raise Refused(ErrorCode.NO_NODE if check_path(path) else ErrorCode.BAD_ARGUMENTS)
    acl = tree.acls.get(path)
    if acl is not None:
        tree.require(WRITE, path, identities)
    if tree.quotas:
        added_bytes = data_end - path_end - 4 - data_bytes_of(before)
        quota.check(tree, path, 0, added_bytes)
    czxid, ctime, version_before, middle, tail = _unpack_kept(before, len(before) - STAT_BYTES)
    if version != -1 and version != version_before:
        raise Refused(ErrorCode.BAD_VERSION)
    # As `with_data` does it, with no call.
    zxid = tree.zxid
    version = version_before + 1 if 0 <= version_before < INT32_MAX else next_version(version_before)
    stat = _pack_fields(czxid, zxid, ctime, time_ms, version, middle, data_end - path_end - 4, tail)
    node = record[path_end:data_end] + stat
    if tree.undo is not None:
        tree.undo.remember(tree, path)
    tree.nodes[path] = tree.dirty.nodes[path] = node
    tree.history.add((zxid, time_ms, _DATA_CHANGED, path, before, node, acl, b""))
    tree.events.append((_DATA_CHANGED, path, acl))
    if tree.quotas:
        quota.count(tree, path, 0, added_bytes)
    if path.startswith(_QUOTA_ROOT_SLASH):
        quota.node_set(tree, path)
    return stat
