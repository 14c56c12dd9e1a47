"""What is true of a member whatever its clients sent."""

from __future__ import annotations

from znoded.jute.stat import STAT
from znoded.server.connection import OUTPUT_SLICE_BYTES, ClientConnection
from znoded.server.member import Member
from znoded.tree.paths import check_path, names_bytes, parent_of
from znoded.tree.tree import Tree
from znoded.tree.znode import data_bytes_of, owner_of

SEGMENT_BYTES = 1 << 16


def check_tree(tree: Tree) -> None:
    """Every znode hangs together with its parent, its owner and what is kept beside it."""
    children = {path: list(tree.children.get(path, ())) for path in tree.nodes}
    assert set(tree.children) == {path for path, below in children.items() if below}
    below_someone = sorted(path for below in children.values() for path in below)
    assert below_someone == sorted(set(tree.nodes) - {b"/"})
    for path, node in tree.nodes.items():
        assert check_path(path)
        assert parent_of(path) in tree.nodes
        _, _, _, _, _, _, _, owner, data_length, children_count, _ = STAT.unpack(node[-STAT.size :])
        assert children_count == len(children[path])
        assert data_length == data_bytes_of(node)
        if owner:
            assert path in (tree.sessions[owner].ephemerals or ())
            assert not children[path]
    owned = [path for session in tree.sessions.values() for path in session.ephemerals or ()]
    assert len(owned) == len(set(owned)) == sum(1 for node in tree.nodes.values() if owner_of(node))
    assert tree.children_bytes == {path: names_bytes(path, below) for path, below in children.items() if below}
    for table in (tree.acls, tree.kinds, tree.created):
        assert set(table) <= set(tree.nodes)
    assert tree.undo is None
    assert tree.events == []


def check_memory(member: Member, connection: ClientConnection) -> None:
    """A connection holds no more than its limits, and the one request that met them."""
    limits = member.limits
    request_bytes = limits.frame_bytes + SEGMENT_BYTES
    assert len(connection.kept or b"") <= request_bytes
    assert len(connection.pending or ()) <= limits.outstanding_per_connection
    assert connection.waiting_bytes <= limits.outstanding_bytes_per_connection + request_bytes
    out_limit_bytes = limits.queued_bytes_per_connection + connection.waiting_bytes
    assert connection.out_bytes <= out_limit_bytes + OUTPUT_SLICE_BYTES
    assert connection.has_ended or sum(map(len, connection.out)) == connection.out_bytes
    assert sum(len(name) for _, name in connection.identities) <= limits.identity_bytes_per_connection
    assert member.watches.count_of(connection) <= limits.watches_per_session
    assert member.watches.bytes_of(connection) <= limits.watch_bytes_per_session
