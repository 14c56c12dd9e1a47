"""A tree that keeps its past, and the past as tests compare it: znodes without ACLs, a range with all its slices."""

from __future__ import annotations

from tests.tree.test_checkpoint_tables import Checkpoint
from tests.tree.world import Client, World
from znoded.tree.history import History
from znoded.tree.options import TreeOptions

MIB = 1 << 20


def kept(limit_bytes: int = 8 * MIB, retention_ms: int = 3_600_000) -> tuple[World, Client, Checkpoint]:
    """A tree that keeps so much of its history, a session of it, and its checkpoint."""
    house = World(TreeOptions(history_bytes=limit_bytes, history_retention_ms=retention_ms))
    checkpoint = Checkpoint()
    house.tree.history.read_stored = checkpoint.read_stored
    return house, house.session(), checkpoint


def store(house: World, checkpoint: Checkpoint) -> None:
    """Write what is there to the checkpoint, and let the tree know."""
    for _ in range(2):
        checkpoint.write(house.tree.take_changes())


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
