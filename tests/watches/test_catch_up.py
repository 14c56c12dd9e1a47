"""Setting watches again: what is told at once and what is armed (protocol facts 7.4)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.jute.ops import EventType, WatcherType
from znoded.watches.catch_up import NO_ZXID, Change, Missed, NodeZxids, catch_up
from znoded.watches.table import Watches

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED

LAST_SEEN = 10
OLD = NodeZxids(1, 1, 1)


@dataclass
class View:
    """A tree of which only the zxids matter. `changes` None: forgotten. `hidden`: not to be read, now and before."""

    nodes: dict[bytes, NodeZxids] = field(default_factory=dict)
    changes: list[tuple[int, int, bytes]] | None = field(default_factory=list)
    hidden: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    """Of which nobody knows any more who might read them."""
    looked_below: list[bytes] = field(default_factory=list)

    def zxids(self, path: bytes) -> NodeZxids | None:
        return self.nodes.get(path)

    def changes_after(self, zxid: int, paths: Collection[bytes]) -> Iterable[Change] | None:
        if self.changes is None:
            return None
        return [(*change, self.might_read(change[2])) for change in self.changes if change[0] > zxid]

    def might_read(self, path: bytes) -> bool | None:
        return None if path in self.unknown else path not in self.hidden

    def changed_below(self, path: bytes, zxid: int) -> Iterable[bytes]:
        self.looked_below.append(path)
        below = [node for node in sorted(self.nodes) if node.startswith(path.rstrip(b"/") + b"/") and node != path]
        return [node for node in below if max(self.nodes[node]) > zxid]

    def may_read(self, path: bytes) -> bool:
        return path not in self.hidden


@pytest.fixture
def watches() -> Watches[str]:
    return Watches()


def plain(events: list[Missed]) -> list[tuple[int, bytes]]:
    return [(event.event_type, event.path) for event in events]


def test_the_data_list_tells_deletions_and_newer_data_and_arms_the_rest(watches: Watches[str]) -> None:
    view = View({b"/changed": NodeZxids(1, 11, 1), b"/same": NodeZxids(1, 10, 99)})
    missed = catch_up(watches, "ann", view, LAST_SEEN, data=[b"/gone", b"/changed", b"/same"])
    assert missed == [Missed(NO_ZXID, DELETED, b"/gone"), Missed(NO_ZXID, CHANGED, b"/changed")]
    assert list(watches.data_watchers_by_path()) == [(b"/same", ("ann",))]
    assert watches.check(WatcherType.DATA, b"/same", "ann")


def test_the_exist_list_tells_any_present_node_as_created_and_arms_the_rest(watches: Watches[str]) -> None:
    view = View({b"/old": OLD})
    assert catch_up(watches, "ann", view, LAST_SEEN, exist=[b"/old", b"/absent"]) == [Missed(NO_ZXID, CREATED, b"/old")]
    assert list(watches.data_watchers_by_path()) == [(b"/absent", ("ann",))]


def test_the_child_list_tells_deletions_and_newer_children_and_arms_the_rest(watches: Watches[str]) -> None:
    view = View({b"/more": NodeZxids(1, 1, 11), b"/same": NodeZxids(1, 99, 10)})
    missed = catch_up(watches, "ann", view, LAST_SEEN, child=[b"/gone", b"/more", b"/same"])
    assert missed == [Missed(NO_ZXID, DELETED, b"/gone"), Missed(NO_ZXID, CHILDREN, b"/more")]
    assert watches.check(WatcherType.CHILDREN, b"/same", "ann")
    assert watches.count_of("ann") == 1


def test_one_shot_events_are_not_filtered(watches: Watches[str]) -> None:
    view = View({b"/a": NodeZxids(1, 11, 11)}, hidden={b"/a"})
    assert plain(catch_up(watches, "ann", view, LAST_SEEN, data=[b"/a"], child=[b"/a"])) == [
        (CHANGED, b"/a"),
        (CHILDREN, b"/a"),
    ]


def test_a_deletion_is_told_once_for_data_and_children(watches: Watches[str]) -> None:
    missed = catch_up(watches, "ann", View(), LAST_SEEN, data=[b"/gone"], child=[b"/gone"])
    assert plain(missed) == [(DELETED, b"/gone")]


def test_persistent_watches_get_each_missed_event_once_and_in_order(watches: Watches[str]) -> None:
    view = View(
        {b"/r": NodeZxids(1, 11, 12), b"/r/k": NodeZxids(12, 12, 12)},
        [(9, CHANGED, b"/r"), (11, CHANGED, b"/r"), (12, CREATED, b"/r/k"), (12, CHILDREN, b"/r")],
    )
    missed = catch_up(watches, "ann", view, LAST_SEEN, persistent=[b"/r", b"/r/absent"], recursive=[b"/r/k", b"/r"])
    assert missed == [Missed(11, CHANGED, b"/r"), Missed(12, CREATED, b"/r/k"), Missed(12, CHILDREN, b"/r")]
    assert watches.check(WatcherType.PERSISTENT, b"/r/absent", "ann")
    assert watches.check(WatcherType.PERSISTENT_RECURSIVE, b"/r/k", "ann")


def test_a_recursive_watch_misses_no_child_events_and_nothing_beside_it(watches: Watches[str]) -> None:
    view = View(
        changes=[(11, CHILDREN, b"/r"), (11, CREATED, b"/r/k"), (12, CHANGED, b"/rest"), (13, CHANGED, b"/r")],
    )
    assert plain(catch_up(watches, "ann", view, LAST_SEEN, recursive=[b"/r"])) == [(CREATED, b"/r/k"), (CHANGED, b"/r")]


def test_a_recursive_watch_on_the_root_misses_nothing(watches: Watches[str]) -> None:
    view = View(changes=[(11, CREATED, b"/a"), (12, CHANGED, b"/a/b"), (13, CHANGED, b"/")])
    assert len(catch_up(watches, "ann", view, LAST_SEEN, recursive=[b"/"])) == 3


@pytest.mark.parametrize("changes", [[(11, CREATED, b"/r/k"), (11, CHANGED, b"/r/open")], None])
def test_events_of_persistent_watches_need_read(
    watches: Watches[str], changes: list[tuple[int, int, bytes]] | None
) -> None:
    new = NodeZxids(1, 11, 1)
    view = View({b"/r": OLD, b"/r/k": new, b"/r/open": new}, changes, hidden={b"/r/k"})
    assert plain(catch_up(watches, "ann", view, LAST_SEEN, recursive=[b"/r"])) == [(CHANGED, b"/r/open")]


def test_events_are_made_up_if_nobody_knows_who_might_read_a_watched_node(watches: Watches[str]) -> None:
    view = View({b"/r": NodeZxids(1, 1, 11)}, [(11, DELETED, b"/r/k"), (12, CHANGED, b"/r")], unknown={b"/r/k"})
    assert catch_up(watches, "ann", view, LAST_SEEN, recursive=[b"/r"]) == [Missed(NO_ZXID, CHANGED, b"/r")]
    assert catch_up(watches, "bob", view, LAST_SEEN, persistent=[b"/r"]) == [Missed(12, CHANGED, b"/r")]


def test_a_recursive_watch_below_another_has_nothing_looked_at_twice(watches: Watches[str]) -> None:
    new = NodeZxids(11, 11, 11)
    view = View(dict.fromkeys((b"/", b"/r", b"/r/k", b"/r/k/l", b"/s"), new), None)
    paths = [b"/r/k", b"/r", b"/r/gone", b"/s", b""]
    missed = catch_up(watches, "ann", view, LAST_SEEN, recursive=paths)
    assert sorted(plain(missed)) == sorted(
        [(CREATED, path) for path in (b"/r", b"/r/k", b"/r/k/l", b"/s")] + [(DELETED, b"/r/gone"), (DELETED, b"")]
    )
    assert view.looked_below == [b"/r", b"/s"]
    assert len(catch_up(watches, "bob", view, LAST_SEEN, recursive=[b"/r", b"/"])) == 5
    assert view.looked_below == [b"/r", b"/s", b"/"]


def test_a_deep_path_that_is_nowhere_is_caught_up_with_soon(watches: Watches[str]) -> None:
    began_s = time.process_time()
    for view in (View(), View(changes=None)):
        catch_up(watches, "ann", view, LAST_SEEN, recursive=[b"/a" * 500_000])
    assert time.process_time() - began_s < 1


def test_changes_of_deep_nodes_are_caught_up_with_soon(watches: Watches[str]) -> None:
    view = View(changes=[(11, CREATED, b"/a" * depth) for depth in range(1, 5_000)])
    began_s = time.process_time()
    assert catch_up(watches, "ann", view, LAST_SEEN, recursive=[b"/r"]) == []
    assert len(catch_up(watches, "bob", view, LAST_SEEN, recursive=[b"/a/a"])) == 4_998
    assert time.process_time() - began_s < 1


def test_very_many_recursive_watches_catch_up_with_very_many_changes_soon(watches: Watches[str]) -> None:
    view = View(changes=[(11, CHANGED, b"/r/%d/k" % number) for number in range(5_000)])
    paths = [b"/r/%d" % number for number in range(4_900, 50_000)]
    began_s = time.process_time()
    missed = catch_up(watches, "ann", view, LAST_SEEN, recursive=paths)
    assert time.process_time() - began_s < 1
    assert len(missed) == 100


def test_a_one_shot_watch_has_no_event_beside_a_replayed_one(watches: Watches[str]) -> None:
    view = View({b"/a": NodeZxids(1, 11, 12)}, [(11, CHANGED, b"/a"), (12, CHILDREN, b"/a"), (13, DELETED, b"/b")])
    lists = {"data": [b"/a", b"/b"], "child": [b"/a", b"/b"], "exist": [b"/a"]}
    missed = catch_up(watches, "ann", view, LAST_SEEN, **lists, persistent=[b"/a", b"/b"])
    assert plain(missed) == [(CHANGED, b"/a"), (CHILDREN, b"/a"), (DELETED, b"/b")]
    assert not watches.check(WatcherType.DATA, b"/a", "ann")


def test_when_changes_are_forgotten_a_persistent_watch_is_told_from_the_state(watches: Watches[str]) -> None:
    nodes = {
        b"/old": OLD,
        b"/new": NodeZxids(11, 12, 11),
        b"/set": NodeZxids(1, 11, 1),
        b"/more": NodeZxids(1, 1, 11),
    }
    paths = [b"/old", b"/new", b"/set", b"/more", b"/gone"]
    missed = catch_up(watches, "ann", View(nodes, None), LAST_SEEN, persistent=paths)
    assert missed == [
        Missed(NO_ZXID, CREATED, b"/new"),
        Missed(NO_ZXID, CHILDREN, b"/new"),
        Missed(NO_ZXID, CHANGED, b"/set"),
        Missed(NO_ZXID, CHILDREN, b"/more"),
        Missed(NO_ZXID, DELETED, b"/gone"),
    ]


def test_when_changes_are_forgotten_a_recursive_watch_is_led_to_every_changed_node(watches: Watches[str]) -> None:
    nodes = {
        b"/r": OLD,
        b"/r/lost-a-child": NodeZxids(1, 1, 11),
        b"/r/new": NodeZxids(11, 11, 11),
        b"/r/old": OLD,
        b"/r/set": NodeZxids(1, 11, 1),
    }
    missed = catch_up(watches, "ann", View(nodes, None), LAST_SEEN, recursive=[b"/r", b"/gone"])
    assert plain(missed) == [
        (CHANGED, b"/r/lost-a-child"),
        (CREATED, b"/r/new"),
        (CHANGED, b"/r/set"),
        (DELETED, b"/gone"),
    ]


PATHS = st.sampled_from([b"/", b"/a", b"/a/b", b"/a/b/c", b"/ab"])
CHANGES = st.lists(st.tuples(st.sampled_from(list(EventType)), PATHS), max_size=20)


@given(CHANGES, st.sets(PATHS), st.sets(PATHS), st.integers(0, 20))
def test_persistent_watches_hear_the_same_whether_they_were_away_or_not(
    changes: list[tuple[EventType, bytes]], persistent: set[bytes], recursive: set[bytes], seen: int
) -> None:
    """What a watcher is told on coming back is what a watcher that never left is told."""
    numbered: list[tuple[int, int, bytes]] = [(zxid, *change) for zxid, change in enumerate(changes, 1)]
    stayed: Watches[str] = Watches()
    for path in persistent:
        stayed.add_persistent(path, "ann")
    for path in recursive:
        stayed.add_recursive(path, "ann")
    heard = [
        Missed(zxid, event_type, path)
        for zxid, event_type, path in numbered
        if zxid > seen
        for _ in stayed.fire(event_type, path)
    ]
    came_back: Watches[str] = Watches()
    missed = catch_up(came_back, "ann", View({}, numbered), seen, persistent=persistent, recursive=recursive)
    assert missed == heard
    for path in (b"/", b"/a", b"/a/b", b"/a/b/c", b"/ab"):
        for event_type in EventType:
            assert came_back.fire(event_type, path) == stayed.fire(event_type, path)
