"""multi: several writes and checks as one (protocol facts 8).

Each is carried out at once, so that the next ones see it, and all are undone if one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Record
from znoded.jute.multi import MULTI_END, MULTI_HEADER, MultiRequest
from znoded.jute.ops import CreateFlags, Op
from znoded.jute.primitives import JuteError, Reader, encode_buffer, encode_int, encode_ustring
from znoded.jute.records import (
    CheckRequest,
    CreateRequest,
    CreateTtlRequest,
    DeleteRequest,
    SetDataRequest,
)
from znoded.tree.check import check
from znoded.tree.create import Wanted, create_node
from znoded.tree.delete import delete_node
from znoded.tree.refusal import Refused
from znoded.tree.set_data import set_data
from znoded.tree.undo import Undo

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree


def multi(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op multi: the reply is a result of each op. Being refused as a whole is a success of the request itself."""
    operations = MultiRequest.decode(Reader(record)).ops
    if any(_has_null(request) for _, request in operations):
        raise JuteError("a multi with a null path or ACL")
    results: list[bytes] = []
    try:
        with Undo(tree):
            for op, request in operations:
                results.append(_carry_out(tree, time_ms, session, identities, op, request))
    except Refused as refused:
        results = _all_refused(len(operations), len(results), refused.err)
    return b"".join([*results, MULTI_END])


def _has_null(request: Record) -> bool:
    """Whether ZooKeeper makes no sense of this operation, so of the whole multi. createTTL may have a null ACL."""
    match request:
        case CreateRequest(None) | CreateRequest(acl=None) | CreateTtlRequest(None):
            return True
        case DeleteRequest(None) | SetDataRequest(None) | CheckRequest(None):
            return True
        case _:
            return False


def _all_refused(count: int, failed: int, err: ErrorCode) -> list[bytes]:
    errors = [ErrorCode.OK] * failed + [err] + [ErrorCode.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    return [MULTI_HEADER.pack(Op.ERROR, False, error) + encode_int(error) for error in errors]


def _carry_out(tree: Tree, time_ms: int, session: Session, identities: bytes, op: Op, request: Record) -> bytes:
    """Carry out one operation: its result. Raises Refused or JuteError."""
    body = b""
    match request:
        case SetDataRequest():
            body = set_data(tree, time_ms, session, identities, request.encode())
        case DeleteRequest(path, version):
            delete_node(tree, identities, path or b"", version)
        case CheckRequest(path, version):
            check(tree, identities, path or b"", version)
        case _:
            assert isinstance(request, CreateRequest | CreateTtlRequest)  # decoding lets nothing else pass
            op, wanted = _wanted(op, request)
            made, stat = create_node(tree, time_ms, session, identities, wanted)
            body = encode_ustring(made)
            if op != Op.CREATE:
                op = Op.CREATE2
                body += stat
    return MULTI_HEADER.pack(op, False, ErrorCode.OK) + body


def _wanted(op: Op, request: CreateRequest | CreateTtlRequest) -> tuple[Op, Wanted]:
    """The create that ZooKeeper makes of one in a multi: there the flags say more than the op."""
    ttl_ms = None
    if request.flags == CreateFlags.CONTAINER:
        op = Op.CREATE_CONTAINER
    elif isinstance(request, CreateTtlRequest):
        if request.flags > CreateFlags.CONTAINER:
            ttl_ms = request.ttl_ms
        else:
            op = Op.CREATE
    data = encode_buffer(request.data)
    is_container = op == Op.CREATE_CONTAINER
    return op, Wanted(request.path, data, request.acl or (), request.flags, is_container, ttl_ms)
