"""Setting the ACL of znodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.primitives import Reader
from znoded.jute.records import SetAclRequest
from znoded.tree.acl import ADMIN, fix_acl
from znoded.tree.history_block import ChangeKind, kept_acl
from znoded.tree.paths import check_path
from znoded.tree.refusal import Refused
from znoded.tree.znode import aversion_of, stat_of, with_next_aversion

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree


def set_acl(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op setACL: the reply is the Stat. Only the aversion moves, and no watch fires (protocol facts 4)."""
    request = SetAclRequest.decode(Reader(record))
    path = request.path
    if path is None or not check_path(path):
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    acl = tree.stored_acl(fix_acl(request.acl, tree.identities(identities), tree.options))
    node = tree.nodes.get(path)
    if node is None:
        raise Refused(ErrorCode.NO_NODE)
    tree.require(ADMIN, path, identities)
    if request.version not in (-1, aversion_of(node)):
        raise Refused(ErrorCode.BAD_VERSION)
    before, node = node, with_next_aversion(node)
    tree.replace(path, node)
    acl_before = kept_acl(tree.acls.get(path))
    tree.history.add((tree.zxid, time_ms, ChangeKind.ACL_CHANGED, path, before, node, acl_before, b""))
    tree.history.acl_changed(tree.zxid)
    if acl is None:
        tree.acls.pop(path, None)
    else:
        tree.acls[path] = acl
    tree.dirty.acls.add(path)
    return stat_of(node)
