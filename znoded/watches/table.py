"""Who watches what, and which event goes to whom.

One watcher (a connection) may watch one path in four ways at once, as ZooKeeper 3.9 has it: one-shot data, one-shot
children, persistent, and persistent-recursive. A change is looked up in two tables, DATA and CHILD, and a watcher hears
of it once per table (protocol facts 7.1, 7.2).

Watchers are opaque: anything hashable. Paths are `bytes`, and are not checked here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from znoded.jute.ops import EventType, WatcherType

W = TypeVar("W", bound=Hashable)

# The ways a watcher watches a path are bits of one small integer.
_DATA = 1
_CHILDREN = 2
_PERSISTENT = 4
_RECURSIVE = 8

_IN_DATA_TABLE = _DATA | _PERSISTENT | _RECURSIVE
_IN_CHILD_TABLE = _CHILDREN | _PERSISTENT

_WAYS_OF_TYPE: dict[int, int] = {
    WatcherType.CHILDREN: _CHILDREN,
    WatcherType.DATA: _DATA,
    WatcherType.ANY: _DATA | _CHILDREN | _PERSISTENT | _RECURSIVE,
    WatcherType.PERSISTENT: _PERSISTENT,
    WatcherType.PERSISTENT_RECURSIVE: _RECURSIVE,
}

# Looked up for every change of the tree, where an attribute of an enum would cost more than all the rest.
_DELETED = int(EventType.NODE_DELETED)
_CHILDREN_CHANGED = int(EventType.NODE_CHILDREN_CHANGED)

#: Path to its one watcher, bare, or to a dict of its several watchers. A dict is never a watcher itself, for it is not
#: hashable; and it keeps the order in which they came, so that a run can be repeated.
_Table = dict[bytes, Any]


class Watches(Generic[W]):
    """The watches of all connections of one member.

    `watchers` has those who watch anything; it is to be read only, and costs less to ask than a method.
    """

    def __init__(self) -> None:
        self._ways: dict[W, dict[bytes, int]] = {}
        self.watchers: Mapping[W, object] = self._ways
        self._path_bytes: dict[W, int] = {}
        self._data: _Table = {}
        self._children: _Table = {}
        self._recursive: _Table = {}  # the part of the data table that also matches below its paths
        self._data_count = 0

    # ---- setting and removing

    def add_data(self, path: bytes, watcher: W) -> None:
        """Watch `path` once for its creation, deletion and data, as getData and exists ask."""
        self._add(_DATA, path, watcher)

    def add_children(self, path: bytes, watcher: W) -> None:
        """Watch `path` once for its deletion and its list of children, as getChildren asks."""
        self._add(_CHILDREN, path, watcher)

    def add_persistent(self, path: bytes, watcher: W) -> None:
        """Watch `path` for everything until the watch is removed."""
        self._add(_PERSISTENT, path, watcher)

    def add_recursive(self, path: bytes, watcher: W) -> None:
        """Watch `path` and all below it for creation, deletion and data until the watch is removed."""
        self._add(_RECURSIVE, path, watcher)

    def check(self, watcher_type: int, path: bytes, watcher: W) -> bool:
        """Whether `watcher` has a watch of that WatcherType on exactly `path`. Raises KeyError for an unknown type."""
        return bool(self._ways.get(watcher, {}).get(path, 0) & _WAYS_OF_TYPE[watcher_type])

    def remove(self, watcher_type: int, path: bytes, watcher: W) -> bool:
        """Remove what `check` finds: whether there was anything. Raises KeyError for an unknown type."""
        if not self.check(watcher_type, path, watcher):
            return False
        self._clear(_WAYS_OF_TYPE[watcher_type], path, watcher)
        return True

    def drop(self, watcher: W) -> None:
        """Forget all watches of a connection that ended."""
        self._path_bytes.pop(watcher, None)
        for path, ways in self._ways.pop(watcher, {}).items():
            self._leave_tables(ways, path, watcher)

    def _add(self, way: int, path: bytes, watcher: W) -> None:
        ways_of_path = self._ways.get(watcher)
        if ways_of_path is None:
            ways_of_path = self._ways[watcher] = {}
            self._path_bytes[watcher] = 0
        before = ways_of_path.get(path, 0)
        if not before:
            self._path_bytes[watcher] += len(path)
        ways_of_path[path] = before | way
        if way & _IN_DATA_TABLE and not before & _IN_DATA_TABLE:
            _hold(self._data, path, watcher)
            self._data_count += 1
        if way & _IN_CHILD_TABLE and not before & _IN_CHILD_TABLE:
            _hold(self._children, path, watcher)
        if way & _RECURSIVE & ~before:
            _hold(self._recursive, path, watcher)

    def _clear(self, ways: int, path: bytes, watcher: W) -> None:
        """Forget some of the ways in which `watcher` watches `path`."""
        ways_of_path = self._ways[watcher]
        before = ways_of_path[path]
        after = before & ~ways
        if after:
            ways_of_path[path] = after
        else:
            self._forget_path(path, watcher, ways_of_path)
        self._leave_tables(before, path, watcher, after)

    def _forget_path(self, path: bytes, watcher: W, ways_of_path: dict[bytes, int]) -> None:
        """`watcher` watches `path` in no way any more; `ways_of_path` are all its ways."""
        if len(ways_of_path) > 1:
            del ways_of_path[path]
            self._path_bytes[watcher] -= len(path)
        else:
            del self._ways[watcher]
            del self._path_bytes[watcher]

    def _leave_tables(self, before: int, path: bytes, watcher: W, after: int = 0) -> None:
        """Take `watcher` out of the tables it was in by the ways `before` and is not in by the ways `after`."""
        if before & _IN_DATA_TABLE and not after & _IN_DATA_TABLE:
            _release(self._data, path, watcher)
            self._data_count -= 1
        if before & _IN_CHILD_TABLE and not after & _IN_CHILD_TABLE:
            _release(self._children, path, watcher)
        if before & _RECURSIVE & ~after:
            _release(self._recursive, path, watcher)

    # ---- firing

    def fire(self, event_type: int, path: bytes) -> list[W]:
        """Who is to be told of one event of the tree, first come first told. One-shot watches it meets are used up.

        A creation or deletion is two events: the node's own, then NODE_CHILDREN_CHANGED of its parent.
        """
        if event_type == _CHILDREN_CHANGED:
            return list(self._meet(_CHILDREN, path))
        if path not in self._data and path not in self._children and not self._recursive:
            return []
        told = self._meet(_DATA, path)
        if self._recursive:
            self._meet_above(path, told)
        if event_type == _DELETED:
            # Whoever was told as a watcher of the data is not told again as a watcher of the children.
            told |= self._meet(_CHILDREN, path)
        return list(told)

    def _meet(self, one_shot: int, path: bytes) -> dict[W, None]:
        """The watchers of `path` in the table of this one-shot way, which is used up: who watches by no other leaves.

        They may be very many: so they leave all at once, and not one by one by `_clear`.
        """
        table, in_table = (self._data, _IN_DATA_TABLE) if one_shot == _DATA else (self._children, _IN_CHILD_TABLE)
        told: dict[W, None] = dict.fromkeys(_watchers(table, path))
        staying: dict[W, None] = {}
        for watcher in told:
            ways_of_path = self._ways[watcher]
            after = ways_of_path[path] & ~one_shot
            if after:
                ways_of_path[path] = after
            else:
                self._forget_path(path, watcher, ways_of_path)
            if after & in_table:
                staying[watcher] = None
        if len(staying) < len(told):
            _keep(table, path, staying)
            if one_shot == _DATA:
                self._data_count -= len(told) - len(staying)
        return told

    def _meet_above(self, path: bytes, told: dict[W, None]) -> None:
        """Add the recursive watchers of all ancestors of `path`."""
        recursive = self._recursive
        end = path.rfind(b"/")
        while end > 0:
            ancestor = path[:end]
            if ancestor in recursive:
                told.update(dict.fromkeys(_watchers(recursive, ancestor)))
            end = path.rfind(b"/", 0, end)
        if b"/" in recursive:
            told.update(dict.fromkeys(_watchers(recursive, b"/")))

    # ---- counts and lists

    def count_of(self, watcher: W) -> int:
        """How many paths `watcher` watches, in whatever ways."""
        return len(self._ways.get(watcher, ()))

    def bytes_of(self, watcher: W) -> int:
        """How long the paths that `watcher` watches are together."""
        return self._path_bytes.get(watcher, 0)

    @property
    def data_count(self) -> int:
        """Pairs of path and watcher in the data table."""
        return self._data_count

    @property
    def data_path_count(self) -> int:
        """Paths in the data table."""
        return len(self._data)

    def data_paths_by_watcher(self) -> Iterator[tuple[W, Iterator[bytes]]]:
        """Each watcher in the data table with the paths it watches there."""
        for watcher, ways_of_path in self._ways.items():
            if any(ways & _IN_DATA_TABLE for ways in ways_of_path.values()):
                yield watcher, (path for path, ways in ways_of_path.items() if ways & _IN_DATA_TABLE)

    def data_watchers_by_path(self) -> Iterator[tuple[bytes, tuple[W, ...]]]:
        """Each path in the data table with its watchers."""
        for path in self._data:
            yield path, tuple(_watchers(self._data, path))


def _watchers(table: _Table, path: bytes) -> Iterable[Any]:
    held = table.get(path)
    if held is None:
        return ()
    return held if type(held) is dict else (held,)


def _hold(table: _Table, path: bytes, watcher: Hashable) -> None:
    held = table.setdefault(path, watcher)
    if type(held) is dict:
        held[watcher] = None
    elif held is not watcher:
        table[path] = {held: None, watcher: None}


def _release(table: _Table, path: bytes, watcher: Hashable) -> None:
    held = table[path]
    if type(held) is not dict:
        del table[path]
        return
    del held[watcher]
    if len(held) == 1:
        (table[path],) = held


def _keep(table: _Table, path: bytes, staying: dict[Any, None]) -> None:
    """Of the watchers of `path`, only these stay in the table."""
    if len(staying) > 1:
        table[path] = staying
    elif staying:
        (table[path],) = staying
    else:
        del table[path]
