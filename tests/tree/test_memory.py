"""What a million znodes and a hundred thousand sessions may cost, measured on fewer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable

from tests.jute.factory import stat, string
from tests.tree.world import World
from znoded.tree.proposals import new_session
from znoded.tree.tree import Tree

PARENTS, CHILDREN_EACH = 20, 1000
#: 1 M znodes of 100 bytes have to fit into 430 MB, what the interpreter allocates around them included.
NODE_BYTES_MOST = 400
SESSION_BYTES_MOST = 500


def allocated_by(act: Callable[[], object]) -> int:
    """The bytes that are still allocated after `act`, by what it left behind."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        act()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_znode_of_a_hundred_bytes_takes_less_than_four_hundred() -> None:
    fresh = Tree().take_changes()
    tree = Tree()

    def nodes() -> Iterable[tuple[bytes, bytes]]:
        yield from [(key, value) for key, value in fresh[b"nodes"].items() if value is not None]
        for parent in range(PARENTS):
            yield b"/k%d" % parent, string(b"x" * 100) + stat()
            for child in range(CHILDREN_EACH):
                yield b"/k%d/%d" % (parent, child), string(b"x" * 100) + stat()

    def read_table(table: bytes) -> Iterable[tuple[bytes, bytes]]:
        return (
            nodes() if table == b"nodes" else [(key, value) for key, value in fresh[table].items() if value is not None]
        )

    node_bytes = allocated_by(lambda: tree.load(read_table)) / (PARENTS * CHILDREN_EACH)
    assert len(tree.nodes) == 4 + PARENTS * (CHILDREN_EACH + 1)
    assert node_bytes < NODE_BYTES_MOST


def test_an_idle_session_takes_less_than_five_hundred_bytes() -> None:
    house = World()

    def open_sessions() -> None:
        for number in range(1, 5001):
            house.tree.apply(number + 1, new_session(1, 1 << 56 | number << 16, 1 << 32 | number, 10_000, None))
        house.tree.take_changes()

    assert allocated_by(open_sessions) / 5000 < SESSION_BYTES_MOST
    assert len(house.tree.sessions) == 5000
