"""Creating znodes: all modes of create, create2, createContainer and createTTL (protocol facts 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import CreateFlags, EventType, Op
from znoded.jute.primitives import JuteError, Reader, encode_ustring
from znoded.jute.records import Acl
from znoded.tree import quota
from znoded.tree.acl import CREATE, OPEN_ACL_RECORD, Acls, fix_acl
from znoded.tree.commands import end_of_buffer, int_at, is_null
from znoded.tree.paths import check_path
from znoded.tree.refusal import Refused
from znoded.tree.znode import NO_OWNER, new_stat, next_count, owner_of, with_child_created

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

#: The longest life of a TTL node, in ms: 40 bits, about 34.8 years.
MAX_TTL_MS = (1 << 40) - 1

# What Tree.kinds holds; a TTL node is kept as its time to live in ms.
CONTAINER: Final = 0
ORDINARY: Final = None

_EPHEMERAL = frozenset((CreateFlags.EPHEMERAL, CreateFlags.EPHEMERAL_SEQUENTIAL))
_SEQUENTIAL = frozenset(
    (
        CreateFlags.PERSISTENT_SEQUENTIAL,
        CreateFlags.EPHEMERAL_SEQUENTIAL,
        CreateFlags.PERSISTENT_SEQUENTIAL_WITH_TTL,
    )
)
_WITH_TTL = frozenset((CreateFlags.PERSISTENT_WITH_TTL, CreateFlags.PERSISTENT_SEQUENTIAL_WITH_TTL))
_ANY_FLAGS = frozenset(CreateFlags)


def create(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op create: the reply is the path."""
    return _create(tree, time_ms, session, identities, record, Op.CREATE)


def create2(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op create2: the reply is the path and the Stat."""
    return _create(tree, time_ms, session, identities, record, Op.CREATE2)


def create_container(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op createContainer: the op makes a container, whatever the flags say of ephemerals."""
    return _create(tree, time_ms, session, identities, record, Op.CREATE_CONTAINER)


def create_ttl(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op createTTL."""
    return _create(tree, time_ms, session, identities, record, Op.CREATE_TTL)


def _create(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes, op: Op) -> bytes:
    path_end = end_of_buffer(record, 0)
    data_end = end_of_buffer(record, path_end)
    acl: Acls | None = None
    acl_end = data_end + len(OPEN_ACL_RECORD)
    is_open = record.startswith(OPEN_ACL_RECORD, data_end)
    if not is_open:
        reader = Reader(record, data_end)
        acl = tuple(reader.vector(Acl.decode, least_item_bytes=12) or ())
        acl_end = reader.position
    flags = int_at(record, acl_end)
    ttl_ms = Reader(record, acl_end + 4).long() if op == Op.CREATE_TTL else None
    if is_null(record, 0):
        raise JuteError("create of a null path")
    path, stat = create_node(
        tree, time_ms, session, identities, op, record[4:path_end], record[path_end:data_end], acl, flags, ttl_ms
    )
    return encode_ustring(path) if op == Op.CREATE else encode_ustring(path) + stat


def create_node(
    tree: Tree,
    time_ms: int,
    session: Session,
    identities: bytes,
    op: Op,
    path: bytes,
    data: bytes,
    requested_acl: Acls | None,
    flags: int,
    ttl_ms: int | None,
) -> tuple[bytes, bytes]:
    """Create a znode: the path it got, and its Stat. Raises Refused, in the order of protocol facts 3, or JuteError.

    `data` is an encoded buffer; `requested_acl` None is the open one; `ttl_ms` None is for the ops without it.
    """
    kind = _kind(tree, op, flags, ttl_ms)
    slash = path.rfind(b"/")
    if slash < 0 or b"\0" in path:
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    acl = (
        None
        if requested_acl is None
        else tree.stored_acl(fix_acl(requested_acl, tree.identities(identities), tree.options))
    )
    parent = path[:slash] or b"/"
    parent_node = tree.nodes.get(parent)
    if parent_node is None:
        raise Refused(ErrorCode.NO_NODE)
    tree.require(CREATE, parent, identities)
    created = tree.created.get(parent, 0)
    if flags in _SEQUENTIAL:
        path += b"%010d" % created
    if not check_path(path):
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    if path in tree.nodes:
        raise Refused(ErrorCode.NODE_EXISTS)
    if owner_of(parent_node) != NO_OWNER:
        raise Refused(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
    data_bytes = len(data) - 4
    if tree.quotas:
        quota.check(tree, path, 1, data_bytes)

    zxid = tree.zxid
    owner = session.id if kind is ORDINARY and flags in _EPHEMERAL else NO_OWNER
    stat = new_stat(zxid, time_ms, owner, data_bytes)
    if tree.undo is not None:
        tree.undo.remember(tree, path)
        tree.undo.remember(tree, parent)
    dirty = tree.dirty
    tree.nodes[path] = data + stat
    tree.nodes[parent] = with_child_created(parent_node, zxid)
    tree.created[parent] = next_count(created)
    tree.link(path, owner)
    dirty.nodes.add(path)
    dirty.nodes.add(parent)
    dirty.created.add(parent)
    if kind is not ORDINARY:
        tree.kinds[path] = kind
        dirty.kinds.add(path)
    if acl is not None:
        tree.acls[path] = acl
        dirty.acls.add(path)
    tree.changes.add(zxid, EventType.NODE_CREATED, path)
    tree.events.append((EventType.NODE_CREATED, path, acl))
    tree.events.append((EventType.NODE_CHILDREN_CHANGED, parent, tree.acls.get(parent)))
    if tree.quotas:
        quota.count(tree, path, 1, data_bytes)
    if path.startswith(quota.ROOT_SLASH):
        quota.node_created(tree, path)
    return path, stat


def _kind(tree: Tree, op: Op, flags: int, ttl_ms: int | None) -> int | None:
    """What Tree.kinds will hold for the znode. Raises Refused."""
    if flags not in _ANY_FLAGS:
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    if flags in _WITH_TTL:
        if not tree.options.ttl_nodes:
            raise Refused(ErrorCode.UNIMPLEMENTED)
        if ttl_ms is None or not 0 < ttl_ms <= MAX_TTL_MS:
            raise Refused(ErrorCode.BAD_ARGUMENTS)
        return ttl_ms
    if ttl_ms is not None:
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    return CONTAINER if op == Op.CREATE_CONTAINER else ORDINARY
