"""The watch table: what fires, once or again, and what is removed. The rules are protocol facts 7.1, 7.2 and 7.5."""

from __future__ import annotations

import tracemalloc

import pytest

from znoded.jute.ops import EventType, WatcherType
from znoded.watches.table import Watches

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED


@pytest.fixture
def watches() -> Watches[str]:
    return Watches()


def test_an_empty_table_is_false_and_fires_nothing(watches: Watches[str]) -> None:
    assert not watches.watchers
    for event_type in EventType:
        assert watches.fire(event_type, b"/a") == []


@pytest.mark.parametrize("event_type", [CREATED, DELETED, CHANGED])
def test_a_data_watch_fires_once(watches: Watches[str], event_type: EventType) -> None:
    watches.add_data(b"/a", "ann")
    assert watches
    assert watches.fire(event_type, b"/a") == ["ann"]
    assert watches.fire(event_type, b"/a") == []
    assert not watches.watchers


def test_a_data_watch_does_not_fire_for_children(watches: Watches[str]) -> None:
    watches.add_data(b"/a", "ann")
    assert watches.fire(CHILDREN, b"/a") == []
    assert watches.fire(CHANGED, b"/a/b") == []
    assert watches.check(WatcherType.DATA, b"/a", "ann")


@pytest.mark.parametrize("event_type", [CHILDREN, DELETED])
def test_a_child_watch_fires_once(watches: Watches[str], event_type: EventType) -> None:
    watches.add_children(b"/a", "ann")
    assert watches.fire(event_type, b"/a") == ["ann"]
    assert watches.fire(event_type, b"/a") == []
    assert not watches.watchers


def test_a_child_watch_does_not_fire_for_data(watches: Watches[str]) -> None:
    watches.add_children(b"/a", "ann")
    assert watches.fire(CHANGED, b"/a") == []
    assert watches.fire(CREATED, b"/a") == []
    assert watches.check(WatcherType.CHILDREN, b"/a", "ann")


def test_a_deletion_is_one_event_and_uses_up_both_watches(watches: Watches[str]) -> None:
    watches.add_data(b"/a", "ann")
    watches.add_children(b"/a", "ann")
    watches.add_children(b"/a", "bob")
    assert watches.fire(DELETED, b"/a") == ["ann", "bob"]
    assert not watches.watchers


def test_a_persistent_watch_stays(watches: Watches[str]) -> None:
    watches.add_persistent(b"/a", "ann")
    for event_type in (CREATED, CHANGED, CHILDREN, DELETED, CREATED):
        assert watches.fire(event_type, b"/a") == ["ann"]


def test_a_watch_set_twice_is_one(watches: Watches[str]) -> None:
    for _ in range(2):
        watches.add_data(b"/a", "ann")
        watches.add_persistent(b"/a", "ann")
        watches.add_recursive(b"/a", "ann")
    assert watches.fire(CHANGED, b"/a") == ["ann"]
    assert watches.data_count == 1


def test_a_one_shot_watch_goes_and_the_persistent_one_on_its_path_stays(watches: Watches[str]) -> None:
    watches.add_data(b"/a", "ann")
    watches.add_children(b"/a", "ann")
    watches.add_persistent(b"/a", "ann")
    assert watches.fire(CHANGED, b"/a") == ["ann"]
    assert watches.fire(CHILDREN, b"/a") == ["ann"]
    assert not watches.check(WatcherType.DATA, b"/a", "ann")
    assert not watches.check(WatcherType.CHILDREN, b"/a", "ann")
    assert watches.check(WatcherType.PERSISTENT, b"/a", "ann")


def test_a_recursive_watch_tells_the_changed_path(watches: Watches[str]) -> None:
    watches.add_recursive(b"/a", "ann")
    for path in (b"/a", b"/a/b", b"/a/b/c"):
        for event_type in (CREATED, CHANGED, DELETED):
            assert watches.fire(event_type, path) == ["ann"]


def test_a_recursive_watch_ends_at_whole_names(watches: Watches[str]) -> None:
    watches.add_recursive(b"/a", "ann")
    assert watches.fire(CHANGED, b"/ab") == []
    assert watches.fire(CHANGED, b"/") == []


def test_a_recursive_watch_has_no_child_events(watches: Watches[str]) -> None:
    watches.add_recursive(b"/a", "ann")
    assert watches.fire(CHILDREN, b"/a") == []


def test_a_recursive_watch_on_the_root_covers_everything(watches: Watches[str]) -> None:
    watches.add_recursive(b"/", "ann")
    for path in (b"/", b"/a", b"/a/b"):
        assert watches.fire(CHANGED, path) == ["ann"]


def test_many_matching_watches_of_one_connection_are_one_event(watches: Watches[str]) -> None:
    watches.add_recursive(b"/", "ann")
    watches.add_recursive(b"/a", "ann")
    watches.add_persistent(b"/a/b", "ann")
    watches.add_data(b"/a/b", "ann")
    assert watches.fire(CHANGED, b"/a/b") == ["ann"]


def test_a_recursive_watcher_above_is_not_told_of_a_deletion_again_for_its_child_watch(watches: Watches[str]) -> None:
    watches.add_recursive(b"/a", "ann")
    watches.add_children(b"/a/b", "ann")
    assert watches.fire(DELETED, b"/a/b") == ["ann"]
    assert not watches.check(WatcherType.CHILDREN, b"/a/b", "ann")


def test_every_watcher_of_a_path_is_told(watches: Watches[str]) -> None:
    names = [f"watcher {number}" for number in range(50)]
    for name in names:
        watches.add_data(b"/a", name)
    assert watches.fire(CHANGED, b"/a") == names
    assert not watches.watchers


def _arm_all(watches: Watches[str]) -> None:
    watches.add_data(b"/a", "ann")
    watches.add_children(b"/a", "ann")
    watches.add_persistent(b"/a", "ann")
    watches.add_recursive(b"/a", "ann")


@pytest.mark.parametrize(
    ("watcher_type", "left"),
    [
        (WatcherType.CHILDREN, {WatcherType.DATA, WatcherType.PERSISTENT, WatcherType.PERSISTENT_RECURSIVE}),
        (WatcherType.DATA, {WatcherType.CHILDREN, WatcherType.PERSISTENT, WatcherType.PERSISTENT_RECURSIVE}),
        (WatcherType.PERSISTENT, {WatcherType.CHILDREN, WatcherType.DATA, WatcherType.PERSISTENT_RECURSIVE}),
        (WatcherType.PERSISTENT_RECURSIVE, {WatcherType.CHILDREN, WatcherType.DATA, WatcherType.PERSISTENT}),
        (WatcherType.ANY, set()),
    ],
)
def test_removal_takes_just_the_type_asked_for(
    watches: Watches[str], watcher_type: WatcherType, left: set[WatcherType]
) -> None:
    _arm_all(watches)
    assert watches.remove(watcher_type, b"/a", "ann")
    assert not watches.remove(watcher_type, b"/a", "ann")
    single = set(WatcherType) - {WatcherType.ANY}
    assert {kind for kind in single if watches.check(kind, b"/a", "ann")} == left
    assert watches.check(WatcherType.ANY, b"/a", "ann") == bool(left)


def test_one_shot_types_never_match_persistent_watches(watches: Watches[str]) -> None:
    watches.add_persistent(b"/a", "ann")
    watches.add_recursive(b"/a", "ann")
    assert not watches.remove(WatcherType.DATA, b"/a", "ann")
    assert not watches.remove(WatcherType.CHILDREN, b"/a", "ann")


def test_a_watch_is_found_at_its_own_path_and_connection_only(watches: Watches[str]) -> None:
    watches.add_recursive(b"/a", "ann")
    for watcher_type in WatcherType:
        assert not watches.check(watcher_type, b"/a", "bob")
        assert not watches.check(watcher_type, b"/a/b", "ann")


def test_an_unknown_type_is_an_error(watches: Watches[str]) -> None:
    with pytest.raises(KeyError):
        watches.check(6, b"/a", "ann")
    with pytest.raises(KeyError):
        watches.remove(0, b"/a", "ann")


def test_a_dropped_connection_leaves_the_others(watches: Watches[str]) -> None:
    _arm_all(watches)
    watches.add_data(b"/a", "bob")
    watches.add_data(b"/b", "ann")
    watches.drop("ann")
    watches.drop("never seen")
    assert watches.count_of("ann") == 0
    assert watches.fire(CHANGED, b"/a") == ["bob"]
    assert not watches.watchers


def test_counts_are_of_the_data_table(watches: Watches[str]) -> None:
    watches.add_data(b"/a", "ann")
    watches.add_data(b"/b", "ann")
    watches.add_children(b"/a", "ann")
    watches.add_children(b"/a", "cid")
    watches.add_persistent(b"/b", "bob")
    watches.add_recursive(b"/b", "bob")
    assert (watches.data_count, watches.data_path_count) == (3, 2)
    assert watches.count_of("ann") == 2
    assert [(watcher, list(paths)) for watcher, paths in watches.data_paths_by_watcher()] == [
        ("ann", [b"/a", b"/b"]),
        ("bob", [b"/b"]),
    ]
    assert list(watches.data_watchers_by_path()) == [(b"/a", ("ann",)), (b"/b", ("ann", "bob"))]


@pytest.mark.parametrize("count", [50_000, pytest.param(500_000, marks=pytest.mark.slow)])
def test_a_one_shot_watch_takes_less_than_200_bytes(watches: Watches[str], count: int) -> None:
    connections = [f"connection {number}" for number in range(count // 5_000)]
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            watches.add_data(b"/service/instances/%010d" % number, connections[number % len(connections)])
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert watches.data_count == count
    assert (after_bytes - before_bytes) / count < 200
