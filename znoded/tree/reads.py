"""The operations that only read. Each gives an error code and the reply record, empty if there was an error.

Paths are not checked: one that cannot be is just not there (protocol facts 2). The root is b"/".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from znoded.jute.errors import ErrorCode
from znoded.jute.multi import MULTI_END, MULTI_HEADER, MultiReadRequest
from znoded.jute.ops import Op
from znoded.jute.primitives import JuteError, Reader, encode_int, encode_strings, encode_ustring, encode_vector
from znoded.jute.records import ACL_VECTOR, PathWatchRequest
from znoded.tree.acl import ADMIN, OPEN_ACL, READ, Identities, allowed, redacted, shown_user
from znoded.tree.znode import stat_of

if TYPE_CHECKING:
    from znoded.tree.tree import Tree

Reply: TypeAlias = tuple[int, bytes]
#: Takes the tree, the path and who is asking.
Read: TypeAlias = Callable[["Tree", bytes, Identities], Reply]

#: What Java's trim takes away at both ends.
BLANKS = bytes(range(0x21))

_SUCCESS_HEADER = {op: MULTI_HEADER.pack(op, False, ErrorCode.OK) for op in (Op.GET_DATA, Op.GET_CHILDREN)}


def get_data(tree: Tree, path: bytes, identities: Identities) -> Reply:
    """op getData: the data and the Stat, which is how a znode is stored."""
    node = tree.nodes.get(path)
    if node is None:
        return ErrorCode.NO_NODE, b""
    if not allowed(tree.acls.get(path), READ, identities):
        return ErrorCode.NO_AUTH, b""
    return ErrorCode.OK, node


def exists(tree: Tree, path: bytes, identities: Identities) -> Reply:
    """op exists: the Stat. This one looks at the path: a NUL is a bad argument."""
    if b"\0" in path:
        return ErrorCode.BAD_ARGUMENTS, b""
    err, node = get_data(tree, path, identities)
    return err, stat_of(node)


def get_children(tree: Tree, path: bytes, identities: Identities) -> Reply:
    """op getChildren: the names of the children, in no order."""
    err, _ = get_data(tree, path, identities)
    return err, b"" if err else _names(tree, path)


def get_children2(tree: Tree, path: bytes, identities: Identities) -> Reply:
    """op getChildren2: the names of the children and the Stat."""
    err, node = get_data(tree, path, identities)
    return err, b"" if err else _names(tree, path) + stat_of(node)


def _names(tree: Tree, path: bytes) -> bytes:
    children = tree.children.get(path, ())
    begin = len(path) + 1 if path != b"/" else 1
    return encode_int(len(children)) + b"".join([encode_int(len(child) - begin) + child[begin:] for child in children])


def get_acl(tree: Tree, path: bytes, identities: Identities) -> Reply:
    """op getACL: the ACL and the Stat; who lacks ADMIN sees no hashes."""
    node = tree.nodes.get(path)
    if node is None:
        return ErrorCode.NO_NODE, b""
    acl = tree.acls.get(path, OPEN_ACL)
    if not allowed(acl, READ | ADMIN, identities):
        return ErrorCode.NO_AUTH, b""
    shown = acl if allowed(acl, ADMIN, identities) else redacted(acl)
    return ErrorCode.OK, ACL_VECTOR.encode(shown) + stat_of(node)


def get_all_children_number(tree: Tree, path: bytes, identities: Identities) -> Reply:
    """op getAllChildrenNumber: how many znodes there are below one. The empty path has the root below it."""
    err, _ = get_data(tree, path or b"/", identities)
    if err:
        return err, b""
    if path in (b"", b"/"):
        return ErrorCode.OK, encode_int(len(tree.nodes) - len(path))
    found = 0
    waiting = [path]
    while waiting:
        children = tree.children.get(waiting.pop(), ())
        found += len(children)
        waiting += children
    return ErrorCode.OK, encode_int(found)


def get_ephemerals(tree: Tree, session_id: int, prefix: bytes | None) -> Reply:
    """op getEphemerals: the session's own ephemerals whose paths begin with `prefix`.

    Null, blank and the root mean all, whatever white space is around them; any other prefix is taken as it is.
    """
    session = tree.sessions.get(session_id)
    if session is None:
        return ErrorCode.SESSION_EXPIRED, b""
    wanted = prefix or b""
    if wanted.strip(BLANKS) in (b"", b"/"):
        wanted = b""
    return ErrorCode.OK, encode_strings([path for path in session.ephemerals or () if path.startswith(wanted)])


def multi_read(tree: Tree, record: bytes, identities: Identities, limit_bytes: int) -> Reply:
    """op multiRead: a result of each getData and getChildren; one that fails does not touch the others.

    A reply of more than `limit_bytes` is refused: a small request can ask for the same large znode ever again.
    """
    try:
        operations = MultiReadRequest.decode(Reader(record)).ops
    except JuteError:
        return ErrorCode.MARSHALLING_ERROR, b""
    parts: list[bytes] = []
    reply_bytes = 0
    for op, request in operations:
        assert isinstance(request, PathWatchRequest)
        if request.path is None:
            return ErrorCode.MARSHALLING_ERROR, b""
        read = get_data if op == Op.GET_DATA else get_children
        err, body = read(tree, request.path or b"/", identities)
        if err:
            parts.append(MULTI_HEADER.pack(Op.ERROR, False, err) + encode_int(err))
        else:
            parts += (_SUCCESS_HEADER[op], body)
            reply_bytes += len(body)
            if reply_bytes > limit_bytes:
                return ErrorCode.QUOTA_EXCEEDED, b""
    return ErrorCode.OK, b"".join([*parts, MULTI_END])


def who_am_i(identities: Identities) -> Reply:
    """op whoAmI: the identities of the connection; of scheme digest the user only."""
    return ErrorCode.OK, encode_vector(
        identities,
        lambda identity: (
            encode_ustring(identity[0])
            + encode_ustring(shown_user(identity[1]) if identity[0] == b"digest" else identity[1])
        ),
    )
