"""TXN: compare, then carry out one list of ops or another, as one. What the native API makes of each of its writes.

A command of a member's own session; the session that ephemerals belong to is named in the record.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import CreateFlags
from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.jute.records import SetDataRequest
from znoded.tree.acl import READ, Acls
from znoded.tree.create import Wanted, create_node
from znoded.tree.delete import delete_node
from znoded.tree.paths import parent_of
from znoded.tree.refusal import Refused
from znoded.tree.sequence import numbered
from znoded.tree.set_data import set_data
from znoded.tree.txn_records import (
    NO_REVISION,
    NO_VERSION,
    NONE_FAILED,
    Compare,
    Kind,
    OpResult,
    Relation,
    Target,
    TxnOp,
    TxnReply,
    TxnRequest,
)
from znoded.tree.undo import Undo
from znoded.tree.znode import czxid_of, data_of, mzxid_of, version_of

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

# What a short record could make very much of: every member carries it out, and everybody waits meanwhile.
#: The levels, together, of the paths whose parents are to be created.
LEVELS_MOST = 2000
#: The znodes that GETs tell, together; one alone may be larger.
READ_BYTES = 4 * 1024 * 1024
_EMPTY = encode_buffer(b"")
_RELATIONS: dict[int, Callable[[Any, Any], bool]] = {
    Relation.EQUAL: operator.eq,
    Relation.NOT_EQUAL: operator.ne,
    Relation.LESS: operator.lt,
    Relation.GREATER: operator.gt,
}
_EPHEMERAL = frozenset((CreateFlags.EPHEMERAL, CreateFlags.EPHEMERAL_SEQUENTIAL))
_SEQUENTIAL = frozenset((CreateFlags.PERSISTENT_SEQUENTIAL, CreateFlags.EPHEMERAL_SEQUENTIAL))


def txn(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """The reply is a TxnReply. An op that is refused undoes the others, and is a success of the command itself.

    A compare or a get needs READ. Raises Refused (SESSION_EXPIRED without the owner, NO_AUTH for a compare), JuteError.
    """
    request = TxnRequest.decode(Reader(record))
    owner = tree.sessions.get(request.owner) if request.owner else None
    if request.owner and owner is None:
        raise Refused(ErrorCode.SESSION_EXPIRED)
    # All of them, so that what may not be read is refused whatever the others say.
    verdicts = [_holds(tree, identities, compare) for compare in request.compares or ()]
    holds = all(verdicts)
    results: list[OpResult] = []
    levels = read_bytes = 0
    try:
        with Undo(tree):
            for op in (request.then if holds else request.otherwise) or ():
                levels += (op.path or b"").count(b"/") if op.parents else 0
                read_bytes += len(tree.nodes.get(op.path or b"", b"")) if op.kind == Kind.GET else 0
                if levels > LEVELS_MOST or (read_bytes > READ_BYTES and results):
                    raise Refused(ErrorCode.QUOTA_EXCEEDED)
                result = _carry_out(tree, time_ms, owner, session, identities, op)
                results.append(result)
    except Refused as refused:
        return TxnReply(holds, len(results), refused.err, ()).encode()
    return TxnReply(holds, NONE_FAILED, ErrorCode.OK, tuple(results)).encode()


def _holds(tree: Tree, identities: bytes, compare: Compare) -> bool:
    path = compare.path or b""
    node = tree.nodes.get(path)
    if node is not None:
        tree.require(READ, path, identities)
    if compare.target == Target.VALUE:
        if node is None:
            return compare.relation == Relation.NOT_EQUAL
        return _stands(data_of(node), compare.relation, compare.value or b"")
    if compare.target == Target.VERSION:
        number = NO_VERSION if node is None else version_of(node)
    elif compare.target == Target.CREATE_REVISION:
        number = NO_REVISION if node is None else czxid_of(node)
    elif compare.target == Target.MOD_REVISION:
        number = NO_REVISION if node is None else mzxid_of(node)
    else:
        raise JuteError(f"a compare of {compare.target}")
    return _stands(number, compare.relation, compare.number)


def _stands(left: int | bytes, relation: int, right: int | bytes) -> bool:
    """Whether two numbers, or two values, stand in a relation."""
    if relation not in _RELATIONS:
        raise JuteError(f"a compare by {relation}")
    return _RELATIONS[relation](left, right)


def _carry_out(
    tree: Tree, time_ms: int, owner: Session | None, session: Session, identities: bytes, op: TxnOp
) -> OpResult:
    """Carry out one op: its result. Raises Refused or JuteError."""
    path = op.path or b""
    if op.kind == Kind.GET:
        if path in tree.nodes:
            tree.require(READ, path, identities)
        return OpResult(path, tree.nodes.get(path))
    if op.kind == Kind.SET or (op.kind == Kind.PUT and path in tree.nodes):
        set_data(tree, time_ms, session, identities, SetDataRequest(path, op.data, op.version).encode())
        return OpResult(path, tree.nodes[path])
    if op.kind == Kind.DELETE:
        delete_node(tree, identities, path, op.version)
        return OpResult(path, None)
    if op.kind not in (Kind.CREATE, Kind.PUT):
        raise JuteError(f"an op of kind {op.kind}")
    if op.flags in _EPHEMERAL and owner is None:
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    made = _create(tree, time_ms, owner or session, identities, path, op)
    return OpResult(made, tree.nodes[made])


def _create(tree: Tree, time_ms: int, owner: Session, identities: bytes, path: bytes, op: TxnOp) -> bytes:
    """Create a znode: the path it got.

    The parents that are missing are created, if that is asked for, with the same ACL. An infix stands between the
    number of a sequential znode and that number once more: so one name is in order for two recipes that look for it in
    different places.
    """
    if op.parents:
        _create_parents(tree, time_ms, owner, identities, path, op.acl)
    if op.infix is not None and op.flags in _SEQUENTIAL:
        path = numbered(path, tree.created.get(parent_of(path), 0)) + op.infix
    made, _ = create_node(tree, time_ms, owner, identities, Wanted(path, encode_buffer(op.data), op.acl, op.flags))
    return made


def _create_parents(tree: Tree, time_ms: int, owner: Session, identities: bytes, path: bytes, acl: Acls | None) -> None:
    end = path.find(b"/", 1)
    while end > 0:
        if path[:end] not in tree.nodes:
            create_node(tree, time_ms, owner, identities, Wanted(path[:end], _EMPTY, acl, CreateFlags.PERSISTENT))
        end = path.find(b"/", end + 1)
