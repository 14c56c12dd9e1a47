"""Creating znodes: all modes of create, create2, createContainer and createTTL (protocol facts 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import CreateFlags, EventType
from znoded.jute.primitives import JuteError, Reader, encode_ustring
from znoded.jute.records import Acl
from znoded.tree import quota
from znoded.tree.acl import CREATE, OPEN_ACL_RECORD, Acls, fix_acl
from znoded.tree.history_block import PARENT_END
from znoded.tree.paths import check_name
from znoded.tree.refusal import Refused
from znoded.tree.request_fields import ends_of_path_and_data, int_at, is_null
from znoded.tree.sequence import numbered
from znoded.tree.znode import NO_OWNER, NO_OWNER_BYTES, OWNER_SLICE, new_stat, next_count, with_child_created

if TYPE_CHECKING:
    from znoded.tree.sessions import Session
    from znoded.tree.tree import Tree

#: The longest life of a TTL node, in ms: 40 bits, about 34.8 years.
MAX_TTL_MS = (1 << 40) - 1

#: What Tree.kinds holds for a container; for a TTL node it is the time to live in ms.
CONTAINER = 0

# Plain ints all: looking up the members of an enumeration takes longer than it should where every create comes by.
_PLAIN_FLAGS = frozenset(range(CreateFlags.CONTAINER + 1))
_EPHEMERAL = frozenset(map(int, (CreateFlags.EPHEMERAL, CreateFlags.EPHEMERAL_SEQUENTIAL)))
_TTL_SEQUENTIAL = int(CreateFlags.PERSISTENT_SEQUENTIAL_WITH_TTL)
_SEQUENTIAL = frozenset(
    (int(CreateFlags.PERSISTENT_SEQUENTIAL), int(CreateFlags.EPHEMERAL_SEQUENTIAL), _TTL_SEQUENTIAL)
)
_WITH_TTL = frozenset((int(CreateFlags.PERSISTENT_WITH_TTL), _TTL_SEQUENTIAL))
_NODE_CREATED, _CHILDREN_CHANGED = int(EventType.NODE_CREATED), int(EventType.NODE_CHILDREN_CHANGED)


class Wanted(NamedTuple):
    """What a create asks for. `data` is an encoded buffer; `acl` None is the open one."""

    path: bytes | None
    data: bytes
    acl: Acls | None
    flags: int
    is_container: bool = False
    ttl_ms: int | None = None


def create(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op create: the reply is the path."""
    wanted, _ = _decode(record)
    path, _ = create_node(tree, time_ms, session, identities, wanted)
    return encode_ustring(path)


def create2(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op create2: the reply is the path and the Stat."""
    wanted, _ = _decode(record)
    path, stat = create_node(tree, time_ms, session, identities, wanted)
    return encode_ustring(path) + stat


def create_container(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op createContainer: the op makes the container, and the flags are only looked at for a sequence number."""
    wanted, _ = _decode(record)
    path, stat = create_node(tree, time_ms, session, identities, wanted._replace(is_container=True))
    return encode_ustring(path) + stat


def create_ttl(tree: Tree, time_ms: int, session: Session, identities: bytes, record: bytes) -> bytes:
    """op createTTL."""
    wanted, end = _decode(record)
    ttl_ms = Reader(record, end).long()
    path, stat = create_node(tree, time_ms, session, identities, wanted._replace(ttl_ms=ttl_ms))
    return encode_ustring(path) + stat


def _decode(record: bytes) -> tuple[Wanted, int]:
    """A CreateRequest, and where it ends. Raises JuteError."""
    path_end, data_end = ends_of_path_and_data(record)
    acl: Acls | None = None
    if record.startswith(OPEN_ACL_RECORD, data_end):
        acl_end = data_end + len(OPEN_ACL_RECORD)
    else:
        reader = Reader(record, data_end)
        acl = tuple(reader.vector(Acl.decode, least_item_bytes=12) or ())
        acl_end = reader.position
    flags = int_at(record, acl_end)
    path = None if is_null(record, 0) else record[4:path_end]
    return Wanted(path, record[path_end:data_end], acl, flags), acl_end + 4


def create_node(tree: Tree, time_ms: int, session: Session, identities: bytes, wanted: Wanted) -> tuple[bytes, bytes]:
    """Create a znode: the path it got, and its Stat. Raises Refused, in the order of protocol facts 3, or JuteError."""
    path, data, wanted_acl, flags, is_container, ttl_ms = wanted
    if flags not in _PLAIN_FLAGS or ttl_ms is not None:
        _check_ttl(tree, flags, ttl_ms)
    if path is None:
        raise JuteError("a create of a null path")
    slash = path.rfind(b"/")
    if slash < 0 or b"\0" in path:
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    acl = None
    if wanted_acl is not None:
        acl = tree.stored_acl(fix_acl(wanted_acl, tree.identities(identities), tree.options))
    parent = path[:slash] or b"/"
    parent_node = tree.nodes.get(parent)
    if parent_node is None:
        raise Refused(ErrorCode.NO_NODE)
    tree.require(CREATE, parent, identities)
    created = tree.created.get(parent, 0)
    if flags in _SEQUENTIAL:
        path = numbered(path, created)
    if path in tree.nodes:
        raise Refused(ErrorCode.NODE_EXISTS)
    is_below_root_twice = slash == 1  # as //a, whose parent would be / all the same
    if is_below_root_twice or not check_name(path[slash + 1 :]):
        raise Refused(ErrorCode.BAD_ARGUMENTS)
    if parent_node[OWNER_SLICE] != NO_OWNER_BYTES:
        raise Refused(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
    if tree.children_bytes.get(parent, 0) + len(path) - slash - 1 > tree.options.children_bytes:
        raise Refused(ErrorCode.QUOTA_EXCEEDED)
    data_bytes = len(data) - 4
    if tree.quotas:
        quota.check(tree, path, 1, data_bytes)

    zxid = tree.zxid
    owner = session.id if flags in _EPHEMERAL and not is_container else NO_OWNER
    stat = new_stat(zxid, time_ms, owner, data_bytes)
    if tree.undo is not None:
        tree.undo.remember(tree, path)
        tree.undo.remember(tree, parent)
    dirty = tree.dirty
    tree.nodes[path] = dirty.nodes[path] = node = data + stat
    tree.nodes[parent] = dirty.nodes[parent] = with_child_created(parent_node, zxid)
    tree.created[parent] = next_count(created)
    tree.link(path, parent, owner)
    dirty.created.add(parent)
    if acl is not None:
        tree.acls[path] = acl
        dirty.acls.add(path)
    if is_container or ttl_ms is not None:
        tree.kinds[path] = CONTAINER if ttl_ms is None else ttl_ms
        dirty.kinds.add(path)
    tree.history.add((zxid, time_ms, _NODE_CREATED, path, b"", node, acl, parent_node[PARENT_END]))
    tree.events.append((_NODE_CREATED, path, acl))
    tree.events.append((_CHILDREN_CHANGED, parent, tree.acls.get(parent)))
    if tree.quotas:
        quota.count(tree, path, 1, data_bytes)
    if path.startswith(quota.ROOT_SLASH):
        quota.node_created(tree, path)
    return path, stat


def _check_ttl(tree: Tree, flags: int, ttl_ms: int | None) -> None:
    """Flags with a time to live must come with one, and others without."""
    if flags in _WITH_TTL:
        if not tree.options.ttl_nodes:
            raise Refused(ErrorCode.UNIMPLEMENTED)
        if ttl_ms is not None and 0 < ttl_ms <= MAX_TTL_MS:
            return
    raise Refused(ErrorCode.BAD_ARGUMENTS)
