"""Setting watches again after a reconnect: what was missed is told, the rest is armed.

The one-shot lists follow ZooKeeper (protocol facts 7.4). Persistent watches are better off here than there: every
change they missed is told, once and in order, as long as the history reaches back. If it does not, events are
made up from the present state, so that a client that looks again at every node it is told of misses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from znoded.jute.ops import EventType
from znoded.watches.table import Watches

W = TypeVar("W", bound=Hashable)

#: The zxid in the header of an event that stands for changes whose own zxid is not told.
NO_ZXID = -1

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
DATA_CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN_CHANGED = EventType.NODE_CHILDREN_CHANGED


class Missed(NamedTuple):
    """An event to send before the reply."""

    zxid: int
    event_type: int
    path: bytes


class NodeZxids(NamedTuple):
    """When a node was created, last set, and last given or bereft of a child."""

    czxid: int
    mzxid: int
    pzxid: int


#: Zxid, event type, path, and whether the watcher might read the node at that time; None if that is not known.
Change: TypeAlias = tuple[int, int, bytes, bool | None]


class TreeView(Protocol):
    """What catching up has to know of the tree. The root's path is `/`."""

    def zxids(self, path: bytes) -> NodeZxids | None:
        """Those of the node, or None if there is none."""

    def changes_after(self, zxid: int, paths: Collection[bytes]) -> Iterable[Change] | None:
        """Each change after `zxid`, oldest first; None if they are not all known any more.

        Only changes of `paths`, of their children and of what lies below them are asked for; others do no harm.
        """

    def changed_below(self, path: bytes, zxid: int) -> Iterable[bytes]:
        """The paths of the nodes below one that changed after `zxid` or whose children did, parents first."""

    def may_read(self, path: bytes) -> bool:
        """Whether the watcher may read the node now, or, if it is gone, may know that."""


def catch_up(
    watches: Watches[W],
    watcher: W,
    view: TreeView,
    zxid: int,
    *,
    data: Iterable[bytes] = (),
    exist: Iterable[bytes] = (),
    child: Iterable[bytes] = (),
    persistent: Iterable[bytes] = (),
    recursive: Iterable[bytes] = (),
) -> list[Missed]:
    """Set the watches of setWatches or setWatches2 for `watcher`, which last saw `zxid`; the events to send it at once.

    Only the events of persistent watches are told to nobody but who may read: ZooKeeper does not filter the others.
    """
    persistent_paths, recursive_paths = list(dict.fromkeys(persistent)), list(dict.fromkeys(recursive))
    for path in persistent_paths:
        watches.add_persistent(path, watcher)
    for path in recursive_paths:
        watches.add_recursive(path, watcher)
    replayed: list[Missed] = []
    if persistent_paths or recursive_paths:
        replayed = _replay(view, zxid, persistent_paths, recursive_paths)

    missed: dict[Missed, None] = {}
    told = _Told(replayed)
    for path in data:
        node = view.zxids(path)
        if node is None or node.mzxid > zxid:
            if not told.of_data(path):
                missed[Missed(NO_ZXID, DELETED if node is None else DATA_CHANGED, path)] = None
        else:
            watches.add_data(path, watcher)
    for path in exist:
        if view.zxids(path) is None:
            watches.add_data(path, watcher)
        elif not told.of_data(path):
            missed[Missed(NO_ZXID, CREATED, path)] = None
    for path in child:
        node = view.zxids(path)
        if node is None or node.pzxid > zxid:
            if not told.of_children(path):
                missed[Missed(NO_ZXID, DELETED if node is None else CHILDREN_CHANGED, path)] = None
        else:
            watches.add_children(path, watcher)
    return [*missed, *replayed]


class _Told:
    """Which one-shot watches the replayed events use up in the client: these need no event of their own."""

    def __init__(self, replayed: Iterable[Missed]) -> None:
        self._events = {(event.event_type, event.path) for event in replayed}

    def of_data(self, path: bytes) -> bool:
        """Whether a data watch on `path` is used up."""
        return any((event_type, path) in self._events for event_type in (CREATED, DATA_CHANGED, DELETED))

    def of_children(self, path: bytes) -> bool:
        """Whether a child watch on `path` is used up."""
        return (CHILDREN_CHANGED, path) in self._events or (DELETED, path) in self._events


def _replay(view: TreeView, zxid: int, persistent: list[bytes], recursive: list[bytes]) -> list[Missed]:
    """What persistent watches missed, each change once, in the order of the changes."""
    changes = view.changes_after(zxid, [*persistent, *recursive])
    if changes is None:
        return _made_up(view, zxid, persistent, recursive)
    exact, covered = set(persistent), _Covered(recursive)
    missed: list[Missed] = []
    for change_zxid, event_type, path, might_read in changes:
        if path in exact or (event_type != CHILDREN_CHANGED and path in covered):
            if might_read:
                missed.append(Missed(change_zxid, event_type, path))
            elif might_read is None:
                return _made_up(view, zxid, persistent, recursive)
    return missed


class _Covered:
    """What lies at or below the paths of recursive watches. There may be very many of them, and very deep znodes.

    What was found of a znode is kept for all that lie below it.
    """

    def __init__(self, tops: Iterable[bytes]) -> None:
        self._known = {b"/": False} | dict.fromkeys(tops, True)

    def __contains__(self, path: bytes) -> bool:
        known = self._known
        met: list[bytes] = []
        while path not in known:
            met.append(path)
            path = _above(path)
        found = known[path]
        known.update(dict.fromkeys(met[1:], found))
        return found


def _above(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _made_up(view: TreeView, zxid: int, persistent: list[bytes], recursive: list[bytes]) -> list[Missed]:
    """Events that lead a client to every node that changed after `zxid`, made from what the nodes are now.

    A deletion below a recursive watch left no trace but the pzxid of the parent. A recursive watch has no child events,
    so the parent is told as changed: whoever then looks at its Stat sees another cversion and reads the children again.
    """
    events: dict[tuple[int, bytes], None] = {}
    for path in persistent:
        node = view.zxids(path)
        if event_type := _what_became_of(node, zxid, children_count=False):
            events[event_type, path] = None
        if node is not None and node.pzxid > zxid:
            events[CHILDREN_CHANGED, path] = None
    covered = _Covered(recursive)
    for top in recursive:
        node = view.zxids(top)
        if event_type := _what_became_of(node, zxid, children_count=True):
            events[event_type, top] = None
        # Below another one there is nothing to look at that is not looked at for that. The path of a znode that is not
        # there may be very long: it is not taken apart.
        if node is not None and (top == b"/" or _above(top) not in covered):
            for path in view.changed_below(top, zxid):
                events[_what_became_of(view.zxids(path), zxid, children_count=True), path] = None
    return [Missed(NO_ZXID, event_type, path) for event_type, path in events if view.may_read(path)]


def _what_became_of(node: NodeZxids | None, zxid: int, *, children_count: bool) -> int:
    """The event of a node itself after `zxid`, 0 for none."""
    if node is None:
        return DELETED
    if node.czxid > zxid:
        return CREATED
    if node.mzxid > zxid or (children_count and node.pzxid > zxid):
        return DATA_CHANGED
    return 0
