"""The recent changes that persistent watches catch up from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tree.world import CHANGED, CHILDREN, CREATED, DELETED, EPHEMERAL, Client, World
from znoded.tree.changes import CHUNK_CHANGES, CHUNK_PATH_BYTES, Change, RecentChanges

LIMIT_BYTES = 16 << 20
ENTRY_BYTES = 8 + 1 + 4


def stored(table: dict[bytes, bytes], changes: RecentChanges) -> None:
    """Write what is dirty to the table of a checkpoint."""
    for key, chunk in changes.take_dirty():
        if chunk is None:
            table.pop(key, None)
        else:
            table[key] = chunk


def loaded(table: dict[bytes, bytes], floor_zxid: int = 0) -> RecentChanges:
    changes = RecentChanges(LIMIT_BYTES)
    changes.load(table.items(), floor_zxid)
    return changes


def all_of(changes: RecentChanges, zxid: int = 0) -> list[Change] | None:
    since = changes.since(zxid)
    return None if since is None else list(since)


def test_every_change_of_the_tree_is_recorded_with_those_of_the_parents(house: World, client: Client) -> None:
    begin = house.tree.zxid
    client.create(b"/a")
    client.set(b"/a")
    client.create(b"/a/e", flags=EPHEMERAL)
    client.close()
    assert all_of(house.tree.changes, begin) == [
        (begin + 1, CREATED, b"/a"),
        (begin + 1, CHILDREN, b"/"),
        (begin + 2, CHANGED, b"/a"),
        (begin + 3, CREATED, b"/a/e"),
        (begin + 3, CHILDREN, b"/a"),
        (begin + 4, DELETED, b"/a/e"),
        (begin + 4, CHILDREN, b"/a"),
    ]
    assert all_of(house.tree.changes, begin + 3) == [
        (begin + 4, DELETED, b"/a/e"),
        (begin + 4, CHILDREN, b"/a"),
    ]
    assert all_of(house.tree.changes, begin + 4) == []


def test_of_packed_changes_at_least_those_of_the_paths_asked_for_are_found() -> None:
    changes = RecentChanges(LIMIT_BYTES)
    paths = [b"/few", b"/few/below", *(b"/many/%d" % number for number in range(4 * CHUNK_CHANGES))]
    for zxid, path in enumerate(paths, 1):
        changes.add(zxid, CHANGED, path)
    found = list(changes.since(0, [b"/few"]) or ())
    assert found[:2] == [(1, CHANGED, b"/few"), (2, CHANGED, b"/few/below")]
    assert len(found) < len(paths), "chunks without them are not unpacked"


def test_old_changes_are_dropped_when_there_are_too_many() -> None:
    changes = RecentChanges(limit_bytes=2 * CHUNK_CHANGES * (ENTRY_BYTES + 2))
    table: dict[bytes, bytes] = {}
    for zxid in range(1, 5 * CHUNK_CHANGES + 1):
        changes.add(zxid, CHANGED, b"/a")
        if zxid % 700 == 0:
            stored(table, changes)
    stored(table, changes)
    floor = changes.floor_zxid
    assert floor == 2 * CHUNK_CHANGES
    assert changes.since(floor - 1) is None
    kept = [(zxid, CHANGED, b"/a") for zxid in range(floor + 1, 5 * CHUNK_CHANGES + 1)]
    assert all_of(changes, floor) == kept
    assert all_of(loaded(table, floor), floor) == kept
    assert all_of(changes, floor + 2 * CHUNK_CHANGES) == kept[2 * CHUNK_CHANGES :]
    assert loaded(table, floor).since(floor - 1) is None


def test_a_chunk_never_ends_within_one_zxid() -> None:
    changes = RecentChanges(LIMIT_BYTES)
    for _ in range(CHUNK_CHANGES + 10):
        changes.add(1, CHANGED, b"/a")
    changes.add(2, CHANGED, b"/a")
    table: dict[bytes, bytes] = {}
    stored(table, changes)
    assert [int.from_bytes(key, "big") for key in table] == [1, 2]


def test_changes_can_be_taken_back() -> None:
    changes = RecentChanges(LIMIT_BYTES)
    for zxid in (1, 2, 2):
        changes.add(zxid, CHANGED, b"/a")
    changes.forget(2)
    changes.forget(2)
    assert all_of(changes) == [(1, CHANGED, b"/a")]
    changes.forget(1)
    assert all_of(changes) == []
    assert changes.take_dirty() == []


def test_only_what_changed_is_stored_again() -> None:
    changes = RecentChanges(LIMIT_BYTES)
    for zxid in range(1, CHUNK_CHANGES + 2):
        changes.add(zxid, CHANGED, b"/a")
    assert len(changes.take_dirty()) == 2
    assert changes.take_dirty() == []
    changes.add(CHUNK_CHANGES + 2, CHANGED, b"/a")
    assert [int.from_bytes(key, "big") for key, _ in changes.take_dirty()] == [CHUNK_CHANGES + 1]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, CHUNK_CHANGES)),
            st.tuples(st.sampled_from(["store", "fail"]), st.just(0)),
        ),
        max_size=20,
    )
)
def test_after_any_mix_of_good_and_failed_checkpoints_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    changes = RecentChanges(limit_bytes=3 * CHUNK_CHANGES * (ENTRY_BYTES + 2))
    table: dict[bytes, bytes] = {}
    zxid = 0
    for step, count in steps:
        if step == "store":
            stored(table, changes)
        elif step == "fail":
            changes.restore_dirty([key for key, _ in changes.take_dirty()])
        for _ in range(count):
            zxid += 1
            changes.add(zxid, CHANGED, b"/a")
    stored(table, changes)
    floor = changes.floor_zxid
    assert all_of(loaded(table, floor), floor) == all_of(changes, floor)
    assert all_of(changes, floor) == [(n, CHANGED, b"/a") for n in range(floor + 1, zxid + 1)]


def test_long_paths_that_were_taken_back_do_not_fill_a_chunk() -> None:
    changes = RecentChanges(limit_bytes=1 << 20)
    path = b"/" + b"n" * (CHUNK_PATH_BYTES // 2)
    for zxid in range(1, 5):
        changes.add(zxid, CREATED, path)
        changes.forget(zxid)
    changes.add(5, CREATED, path)
    changes.add(6, CREATED, b"/a")
    assert len(changes.take_dirty()) == 1
    changes.add(7, CREATED, path)
    changes.add(8, CREATED, b"/b")
    assert len(changes.take_dirty()) == 2
