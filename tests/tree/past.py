"""The past of a tree, as tests compare it: znodes without their ACLs, and a range with all its slices."""

from __future__ import annotations

from znoded.tree.history import History


def value_at(history: History, path: bytes, revision: int) -> bytes | None:
    """The znode as getData answered for it at `revision`, None if it was not there. Raises as `node_at`."""
    past = history.node_at(path, revision)
    return None if past is None else past.node


def range_at(
    history: History, prefix: bytes, revision: int, start_after: bytes, limit: int
) -> list[tuple[bytes, bytes]]:
    """Path and znode of `prefix` and its descendants at `revision`, at most `limit`. Raises as `range_slice`."""
    found: list[tuple[bytes, bytes]] = []
    resume_after: bytes | None = start_after
    children: dict[bytes, list[bytes]] = {}
    while resume_after is not None and len(found) < limit:
        part = history.range_slice(prefix, revision, resume_after, limit - len(found), children)
        resume_after = part.resume_after
        found += [(path, node) for path, node, _ in part.nodes]
        if part.unsorted is not None:
            children[part.unsorted] = sorted(history._tree.children[part.unsorted])
    return found
