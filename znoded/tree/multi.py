"""multi: several writes and checks as one (protocol facts 8).

Each is carried out at once, so that the next ones see it, and all are undone if one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Record
from znoded.jute.ops import CreateFlags, Op
from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.jute.records import (
    CheckRequest,
    Create2Reply,
    CreateReply,
    CreateRequest,
    CreateTtlRequest,
    DeleteRequest,
    EmptyRecord,
    ErrorReply,
    MultiReply,
    MultiRequest,
    SetDataRequest,
    StatReply,
)
from znoded.jute.stat import Stat
from znoded.tree import quota
from znoded.tree.acl import READ, Acls
from znoded.tree.create import Wanted, create_node
from znoded.tree.delete import delete_node
from znoded.tree.paths import check_path, parent_of
from znoded.tree.refusal import Refused
from znoded.tree.set_data import set_data_of
from znoded.tree.znode import owner_of, version_of

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

T = TypeVar("T")
Result = tuple[Op, Record]


def multi(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op multi: the reply is a result of each op. Being refused as a whole is a success of the request itself."""
    operations = MultiRequest.decode(Reader(record)).ops
    results: list[Result] = []
    first_event = len(tree.events)
    undo = tree.undo = Undo()
    try:
        for op, request in operations:
            results.append(_carry_out(tree, time_ms, session, identities, op, request))
    except (Refused, JuteError) as refused:
        tree.undo = None
        undo.roll_back(tree)
        del tree.events[first_event:]
        tree.changes.forget(tree.zxid)
        if isinstance(refused, JuteError):
            raise
        return MultiReply(_all_refused(len(operations), len(results), refused.err)).encode()
    tree.undo = None
    return MultiReply(tuple(results)).encode()


def _all_refused(count: int, failed: int, err: ErrorCode) -> tuple[Result, ...]:
    errors = [ErrorCode.OK] * failed + [err] + [ErrorCode.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    return tuple((Op.ERROR, ErrorReply(error)) for error in errors)


def _carry_out(tree: Tree, time_ms: int, session: Session, identities: bytes, op: Op, request: Record) -> Result:
    match request:
        case CreateRequest() | CreateTtlRequest():
            op, wanted = _wanted(op, request)
            path, stat = create_node(tree, time_ms, session, identities, wanted)
            if op == Op.CREATE:
                return op, CreateReply(path)
            return Op.CREATE2, Create2Reply(path, Stat.decode(Reader(stat)))
        case DeleteRequest(path, version):
            delete_node(tree, identities, _not_null(path), version)
            return op, EmptyRecord()
        case SetDataRequest(path, data, version):
            stat = set_data_of(tree, time_ms, identities, path or b"", encode_buffer(data), version)
            return op, StatReply(Stat.decode(Reader(stat)))
        case CheckRequest(path, version):
            _check(tree, identities, path or b"", version)
            return op, EmptyRecord()
    raise JuteError(f"op {op} in a multi")


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
    return op, Wanted(_not_null(request.path), data, request.acl or (), request.flags, is_container, ttl_ms)


def _not_null(path: bytes | None) -> bytes:
    if path is None:
        raise JuteError("a null path in a multi")
    return path


def _check(tree: Tree, identities: bytes, path: bytes, version: int) -> None:
    node = tree.nodes.get(path)
    if node is None:
        raise Refused(ErrorCode.NO_NODE if check_path(path) else ErrorCode.BAD_ARGUMENTS)
    tree.require(READ, path, identities)
    if version not in (-1, version_of(node)):
        raise Refused(ErrorCode.BAD_VERSION)


class _Before(NamedTuple):
    """All that the tree held of one path."""

    node: bytes | None
    created: int | None
    acl: Acls | None
    kind: int | None


class Undo:
    """What a multi has changed, as it was before."""

    def __init__(self) -> None:
        self._before: dict[bytes, _Before] = {}

    def remember(self, tree: Tree, path: bytes) -> None:
        """Called before each change of what the tree holds of `path`; the first time counts."""
        if path not in self._before:
            self._before[path] = _Before(
                tree.nodes.get(path), tree.created.get(path), tree.acls.get(path), tree.kinds.get(path)
            )

    def roll_back(self, tree: Tree) -> None:
        """Put everything back. It was marked as changed since the last checkpoint, and may stay so."""
        for path, before in self._before.items():
            node = tree.nodes.get(path)
            if _place(node) != _place(before.node):
                if node is not None:
                    tree.unlink(path, parent_of(path), owner_of(node))
                if before.node is not None:
                    tree.link(path, parent_of(path), owner_of(before.node))
            _put_back(tree.nodes, path, before.node)
            _put_back(tree.created, path, before.created)
            _put_back(tree.acls, path, before.acl)
            _put_back(tree.kinds, path, before.kind)
        for path in self._before:
            quota.limits_changed(tree, path)


def _place(node: bytes | None) -> int | None:
    """Whether a path is among its parent's children, and whose ephemeral it is."""
    return None if node is None else owner_of(node)


def _put_back(table: dict[bytes, T], path: bytes, value: T | None) -> None:
    if value is None:
        table.pop(path, None)
    else:
        table[path] = value
