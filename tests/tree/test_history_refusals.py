"""The history: what of the past cannot be told, because it is not kept, not reached or not whole."""

from __future__ import annotations

import pytest

from tests.tree.past import MIB, kept, range_at, store, value_at
from tests.tree.world import World
from znoded.tree.history import Compacted, FutureRevision
from znoded.tree.history_segment import Unreadable, first_revision


def test_a_revision_that_is_not_reached_or_not_kept_is_refused_with_the_one_that_is(house: World) -> None:
    history, current = house.tree.history, house.tree.zxid
    with pytest.raises(FutureRevision) as future:
        value_at(history, b"/", current + 1)
    assert future.value.current == current
    history.reset(current)
    for ask in (
        lambda: value_at(history, b"/", current - 1),
        lambda: range_at(history, b"/", current - 1, b"", 10),
        lambda: history.changes(current - 1, current, 10),
    ):
        with pytest.raises(Compacted) as compacted:
            ask()
        assert compacted.value.oldest == current
    assert value_at(history, b"/", current) == house.tree.nodes[b"/"]
    assert history.since(current - 1) is None


def test_what_the_checkpoint_does_not_give_now_cannot_be_told() -> None:
    house, client, checkpoint = kept()
    client.create(b"/a")
    begin = house.tree.zxid
    for _ in range(20_000):
        client.set(b"/a", b"x" * 100)
    store(house, checkpoint)
    house.tree.history.read_stored = lambda table, key, part: None
    with pytest.raises(Unreadable):
        value_at(house.tree.history, b"/a", begin)
    assert house.tree.history.since(begin) is None


def test_what_the_disk_has_changed_is_not_told() -> None:
    house, client, checkpoint = kept()
    client.create(b"/a")
    begin = house.tree.zxid
    for _ in range(20_000):
        client.set(b"/a", b"x" * 100)
    store(house, checkpoint)
    blocks = checkpoint.tables[b"history"]
    first = min(blocks)
    blocks[first] = blocks[first].replace(b"x", b"y", 1)
    with pytest.raises(Unreadable, match="not what was stored"):
        value_at(house.tree.history, b"/a", begin)


def test_a_block_that_went_while_it_was_looked_for_cannot_be_told() -> None:
    house, client, checkpoint = kept(MIB)
    client.create(b"/a")
    begin = house.tree.zxid
    history = house.tree.history

    def write_and_store() -> None:
        for _ in range(20_000):
            client.set(b"/a", b"x" * 100)
        store(house, checkpoint)

    write_and_store()
    keys = [touch.key for touch in history.touches_of(b"/a", begin)]
    kept_key = keys[len(keys) // 2]
    assert history.block(kept_key).revisions[0] == first_revision(kept_key)
    with pytest.raises(Unreadable, match="no block"):
        history.block(kept_key[:-1] + bytes((kept_key[-1] ^ 1,)))
    write_and_store()
    with pytest.raises(Unreadable, match="no block"):
        history.block(keys[0])
