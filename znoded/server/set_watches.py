"""setWatches after a reconnect: the tree and its history, as catching up has to see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Perm
from znoded.jute.records import SetWatches2Request
from znoded.server.replies import notification_frame
from znoded.tree.acl import Identity, allowed
from znoded.tree.tree import Tree
from znoded.tree.znode import czxid_of, last_zxid_of, mzxid_of, pzxid_of
from znoded.watches.catch_up import Change, NodeZxids, catch_up

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection
    from znoded.server.member import Member


class TreeAsSeen:
    """A tree as one client may see it (the `TreeView` of catching up)."""

    def __init__(self, tree: Tree, identities: tuple[Identity, ...]) -> None:
        self._tree = tree
        self._identities = identities

    def zxids(self, path: bytes) -> NodeZxids | None:
        """When a node was created, last set, and last given or bereft of a child."""
        node = self._tree.nodes.get(path or b"/")  # by the empty path, ZooKeeper finds the root
        if node is None:
            return None
        return NodeZxids(czxid_of(node), mzxid_of(node), pzxid_of(node))

    def changes_after(self, zxid: int, paths: Collection[bytes]) -> Iterable[Change] | None:
        """The changes of these paths and below, others among them; None if they are not all kept, or too many."""
        return self._tree.history.since(zxid, paths, self._identities)

    def changed_below(self, path: bytes, zxid: int) -> Iterable[bytes]:
        """The nodes below that changed after `zxid` or whose children did, parents first."""
        nodes, children = self._tree.nodes, self._tree.children
        waiting = [path]
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if last_zxid_of(nodes[child]) > zxid:
                    yield child
                if child in children:
                    waiting.append(child)

    def may_read(self, path: bytes) -> bool:
        """Whether the node may be read; of one that is gone, whether what is left of its ancestors may."""
        acl = self._tree.acls.get(self._nearest(path))
        return acl is None or allowed(acl, Perm.READ, self._identities)

    def _nearest(self, path: bytes) -> bytes:
        """The node itself, or its deepest ancestor that is there."""
        nodes = self._tree.nodes
        if path in nodes:
            return path
        # From the top, so that a long path that some client made up is not looked at to its end.
        nearest = b"/"
        end = path.find(b"/", 1)
        while end > 0 and path[:end] in nodes:
            nearest = path[:end]
            end = path.find(b"/", end + 1)
        return nearest


def set_watches(member: Member, connection: ClientConnection, request: SetWatches2Request) -> ErrorCode:
    """Set the watches of a setWatches or setWatches2, and queue what was missed; the error to answer with."""
    given = (request.data, request.exist, request.child, request.persistent, request.persistent_recursive)
    lists = [paths for paths in given if paths is not None]
    if len(lists) < len(given):
        return ErrorCode.MARSHALLING_ERROR
    if not member.may_watch(connection, sum(map(len, lists)), sum(len(path) for paths in lists for path in paths)):
        return ErrorCode.QUOTA_EXCEEDED
    data, exist, child, persistent, recursive = lists
    missed = catch_up(
        member.watches,
        connection,
        TreeAsSeen(member.tree, connection.identities),
        request.relative_zxid,
        data=data,
        exist=exist,
        child=child,
        persistent=persistent,
        recursive=recursive,
    )
    if missed:
        # One piece, however long: it is an answer, and its client is not slow before it could read it.
        connection.put(b"".join([notification_frame(*event) for event in missed]))
    return ErrorCode.OK
