"""What one client watches, and what it has to be told by when: each event once, and before any later reply.

After a reconnect to a member whose history does not reach back, events stand for what lasting watches missed: then it
has to be told of every znode that it must look at again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from tests.simulation.calls import Call, WatchKind, set_watches
from tests.simulation.reference import Reference
from tests.zab_raft.core.history import require
from znoded.jute.ops import EventType
from znoded.tree.paths import parent_of

CREATED, DELETED, CHANGED, CHILDREN = map(int, EventType)
DATA_EVENTS = (CREATED, DELETED, CHANGED)
LAST_EVENT = 99
LASTING = (WatchKind.PERSISTENT, WatchKind.RECURSIVE)
#: Which events each kind tells of; those of recursive watches are also told of all nodes below.
EVENTS_OF = {
    WatchKind.DATA: DATA_EVENTS,
    WatchKind.EXIST: DATA_EVENTS,
    WatchKind.CHILD: (CHILDREN, DELETED),
    WatchKind.PERSISTENT: (*DATA_EVENTS, CHILDREN),
    WatchKind.RECURSIVE: DATA_EVENTS,
}


class WatchBook:
    """The watches of one client, with the zxid of the state in which each was set."""

    def __init__(self, reference: Reference, name: str) -> None:
        self._reference = reference
        self._name = name
        self._armed: dict[tuple[WatchKind, bytes], int] = {}
        self._received: Counter[tuple[int, int, bytes]] = Counter()
        self._made_up: set[bytes] = set()
        #: Of which it was told, though nothing happened: a member whose history is too short cannot know.
        self._unfounded: dict[bytes, str] = {}
        self._newest_event = 0
        self._checked = 0
        self._rearmed_from: int | None = None

    def forget(self) -> None:
        """The session ended, and its watches with it."""
        self._armed.clear()
        self.connected(0)

    def connected(self, last_zxid: int) -> Call | None:
        """There is a new connection: the request that sets the watches again."""
        self._received.clear()
        self._made_up.clear()
        self._unfounded.clear()
        self._newest_event = 0
        self._checked = last_zxid
        self._rearmed_from = None
        if not self._armed:
            return None
        self._rearmed_from = last_zxid
        paths: dict[WatchKind, list[bytes]] = {kind: [] for kind in WatchKind}
        for kind, path in self._armed:
            paths[kind].append(path)
        return set_watches(last_zxid, paths)

    def arm(self, kind: WatchKind, path: bytes, zxid: int) -> None:
        """A watch was set in the state of this zxid."""
        self._armed[kind, path] = max(zxid, self._armed.get((kind, path), 0)) if kind not in LASTING else zxid

    def notified(self, zxid: int, event_type: int, path: bytes, last_reply: int) -> None:
        """A notification came, behind a reply of the zxid `last_reply` on the same connection."""
        text = f"{self._name} is told of event {event_type} of {path.decode()} at zxid {zxid}"
        watches = self._interested(event_type, path)
        require(bool(watches), "X7", f"{text}, and does not watch for it")
        if zxid > 0:
            steps = self._reference.steps
            events = [(each, where) for each, where, _ in steps[zxid].events] if zxid in steps else []
            require((event_type, path) in events, "X7", f"{text}, and there was none")
            count = events.count((event_type, path))
            require(self._received[zxid, event_type, path] < count, "X7", f"{text} more than {count} times")
            require(zxid >= self._newest_event, "X7", f"{text} behind one of {self._newest_event}")
            self._newest_event = zxid
            after = self._rearmed_from if self._rearmed_from is not None else last_reply
            require(zxid > after, "X7", f"{text} behind a reply of {after}")
            require(any(self._armed[watch] < zxid for watch in watches), "X7", f"{text}, and watched only later")
            self._received[zxid, event_type, path] += 1
        else:
            since = self._rearmed_from
            require(since is not None, "X7", f"{text}, and sets no watches again")
            assert since is not None
            missed = self._reference.changes_between(path, since, self._reference.last)
            if not missed:
                text = f"{text}, and nothing happened after {since}"
                is_maybe_gone = event_type == DELETED and any(kind in LASTING for kind, _ in watches)
                require(is_maybe_gone, "X7", text)
                self._unfounded[path] = text
            self._made_up.add(path)
        for watch in watches:
            if watch[0] not in LASTING:
                del self._armed[watch]

    def replied(self, zxid: int) -> None:
        """A reply of this zxid came: all that was to be told up to there was told."""
        if self._rearmed_from is not None or zxid <= self._checked:
            return
        self._look(self._checked, zxid)
        self._checked = zxid

    def set_again(self, zxid: int, oldest: int) -> None:
        """The reply to setting the watches again came: what is still armed missed nothing, and starts anew here.

        `oldest` is where the history of the member begins that gave it.
        """
        after = self._rearmed_from or 0
        self._rearmed_from = None
        nodes = self._reference.state(zxid).nodes
        for path, text in self._unfounded.items():
            require(oldest > after and path not in nodes, "X7", f"{text}, where the history begins at {oldest}")
        for (kind, path), _armed in list(self._armed.items()):
            if kind is WatchKind.EXIST:
                require(path not in nodes, "X7", f"{self._name} is not told that {path.decode()} exists")
                self._armed[kind, path] = zxid
            elif kind in LASTING:
                self._armed[kind, path] = after
        self._look(after, zxid, has_history=oldest <= after)
        for kind, path in self._armed:
            self._armed[kind, path] = zxid
        self._checked = max(zxid, self._checked)

    def _look(self, after: int, until: int, has_history: bool = True) -> None:
        if not self._armed:
            return
        changes = self._reference.changes
        seen: Counter[tuple[int, int, bytes]] = Counter()
        for place in range(bisect_right(changes, (after, LAST_EVENT, b"")), len(changes)):
            change = zxid, event_type, path = changes[place]
            if zxid > until:
                break
            seen[change] += 1
            for kind, where in self._interested(event_type, path):
                if self._armed[kind, where] >= zxid or self._received[change] >= seen[change]:
                    continue
                is_told = kind in LASTING and not has_history and self._is_told_of(path, where, until)
                text = f"{self._name} has a reply of {until} and its {kind.value} watch was not told of event"
                require(is_told, "X7", f"{text} {event_type} of {path.decode()} at zxid {zxid}")

    def _is_told_of(self, path: bytes, top: bytes, zxid: int) -> bool:
        """Whether an event stands for changes of a znode: one of it, or if it is gone, of what is left above it."""
        nodes = self._reference.state(zxid).nodes
        while path not in nodes and path != top:
            path = parent_of(path)
        return path in self._made_up

    def _interested(self, event_type: int, path: bytes) -> list[tuple[WatchKind, bytes]]:
        found = []
        for watch in self._armed:
            kind, where = watch
            if event_type in EVENTS_OF[kind] and (
                where == path or (kind is WatchKind.RECURSIVE and path.startswith(where.rstrip(b"/") + b"/"))
            ):
                found.append(watch)
        return found
