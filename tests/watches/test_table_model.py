"""The watch table against a model so plain that it can be read off protocol facts 7: a set of (way, path, watcher)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from znoded.jute.ops import EventType, WatcherType
from znoded.watches.table import Watches

PATHS = st.sampled_from([b"/", b"/a", b"/ab", b"/a/b", b"/a/b/c"])
WATCHERS = st.sampled_from(["ann", "bob", "cid"])
WAYS = st.sampled_from(["data", "children", "persistent", "recursive"])
TYPES = st.sampled_from(list(WatcherType))

WAYS_OF_TYPE = {
    WatcherType.CHILDREN: {"children"},
    WatcherType.DATA: {"data"},
    WatcherType.ANY: {"data", "children", "persistent", "recursive"},
    WatcherType.PERSISTENT: {"persistent"},
    WatcherType.PERSISTENT_RECURSIVE: {"recursive"},
}
IN_DATA_TABLE = {"data", "persistent", "recursive"}


def is_below(path: bytes, ancestor: bytes) -> bool:
    return path != ancestor and path.startswith(ancestor.rstrip(b"/") + b"/")


class TableAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.watches: Watches[str] = Watches()
        self.model: set[tuple[str, bytes, str]] = set()

    def found(self, watcher_type: WatcherType, path: bytes, watcher: str) -> set[tuple[str, bytes, str]]:
        return self.model & {(way, path, watcher) for way in WAYS_OF_TYPE[watcher_type]}

    @rule(way=WAYS, path=PATHS, watcher=WATCHERS)
    def add(self, way: str, path: bytes, watcher: str) -> None:
        getattr(self.watches, f"add_{way}")(path, watcher)
        self.model.add((way, path, watcher))

    @rule(watcher_type=TYPES, path=PATHS, watcher=WATCHERS)
    def remove(self, watcher_type: WatcherType, path: bytes, watcher: str) -> None:
        found = self.found(watcher_type, path, watcher)
        assert self.watches.check(watcher_type, path, watcher) == bool(found)
        assert self.watches.remove(watcher_type, path, watcher) == bool(found)
        self.model -= found

    @rule(watcher=WATCHERS)
    def drop(self, watcher: str) -> None:
        self.watches.drop(watcher)
        self.model = {entry for entry in self.model if entry[2] != watcher}

    @rule(event_type=st.sampled_from(list(EventType)), path=PATHS)
    def fire(self, event_type: EventType, path: bytes) -> None:
        on_path = {entry for entry in self.model if entry[1] == path}
        above = {entry for entry in self.model if entry[0] == "recursive" and is_below(path, entry[1])}
        met_in_data = {entry for entry in on_path if entry[0] in IN_DATA_TABLE} | above
        met_in_children = {entry for entry in on_path if entry[0] in ("children", "persistent")}
        if event_type is EventType.NODE_CHILDREN_CHANGED:
            met = met_in_children
        elif event_type is EventType.NODE_DELETED:
            met = met_in_data | met_in_children
        else:
            met = met_in_data
        told = self.watches.fire(event_type, path)
        assert sorted(told) == sorted({entry[2] for entry in met})
        self.model -= {entry for entry in met if entry[0] in ("data", "children")}

    @invariant()
    def counts_agree(self) -> None:
        data_table = {(path, watcher) for way, path, watcher in self.model if way in IN_DATA_TABLE}
        assert bool(self.watches.watchers) == bool(self.model)
        assert self.watches.data_count == len(data_table)
        assert self.watches.data_path_count == len({path for path, _ in data_table})
        by_watcher = {(path, name) for name, paths in self.watches.data_paths_by_watcher() for path in paths}
        by_path = {(path, name) for path, names in self.watches.data_watchers_by_path() for name in names}
        assert by_watcher == by_path == data_table
        for watcher in ("ann", "bob", "cid"):
            assert self.watches.count_of(watcher) == len({entry[1] for entry in self.model if entry[2] == watcher})


TableAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, print_blob=True)
TestTableAgainstModel = TableAgainstModel.TestCase
