"""The history: what the tree was at earlier revisions, and what has changed since.

A revision is the zxid of a change. Each change is recorded with the znode as it was before, so that the past is what
there is now with the changes since taken back: a path is at a revision what it was before its first change after that,
and what it is now if there was none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace, merge
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from znoded.jute.ops import Perm
from znoded.tree.acl import Acls, Identities, allowed
from znoded.tree.history_block import NOBODY, Block, ChangeKind, with_end
from znoded.tree.history_search import HistorySearch
from znoded.tree.history_segment import ABSENT, CHANGED, OF_CHILDREN, Touch, Unreadable, first_revision
from znoded.tree.znode import mzxid_of, pzxid_of

if TYPE_CHECKING:
    from znoded.tree.tree import Tree

#: How much is done for one slice of a range: everybody waits for it. A path that was touched since, so that its
#: block may have to be read, counts for many of those that were not, and each block that touches it for one more.
SLICE_WORK = 5_000
TOUCHED_PATH_WORK = 20
#: Changes are given in portions of about so many bytes, however many were asked for.
CHANGES_BYTES = 8 * 1024 * 1024
#: How far back persistent watches catch up: everybody waits for it.
CATCH_UP_BYTES = 64 * 1024 * 1024
_BEHIND_SLASH = b"0"
#: Above so many children, a range needs them sorted: sorting them takes longer than a slice may.
WIDE = 2_000
#: So many children that are sorted take as long as one path.
SORTED_PER_WORK = 10
#: Marks a candidate of a range that is there now.
LIVE = b"live"


class Compacted(Exception):
    """The revision that was asked for is older than `oldest`, the lowest that can be."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"the oldest revision that is kept is {oldest}")
        self.oldest = oldest


class FutureRevision(Exception):
    """The revision that was asked for is not reached here: `current` is."""

    def __init__(self, current: int) -> None:
        super().__init__(f"the last revision is {current}")
        self.current = current


class Change(NamedTuple):
    """One change of one znode, as getData answered for it before and after (None: it was not there).

    `acl` (None: the open one) is the one that a watcher needs READ by: of a deleted znode the last, of one whose ACL
    changed that from before.
    """

    revision: int
    kind: ChangeKind
    path: bytes
    previous: bytes | None
    current: bytes | None
    time_ms: int
    acl: Acls | None


class PastNode(NamedTuple):
    """A znode as it was: as getData answered then, and its ACL (None: the open one)."""

    path: bytes
    node: bytes
    acl: Acls | None


class RangeSlice(NamedTuple):
    """A part of a range, and the path to go on after; None at its end.

    `unsorted` is a znode whose children are to be sorted before it goes on, see `History.range_slice`.
    """

    nodes: list[PastNode]
    resume_after: bytes | None
    unsorted: bytes | None = None


class _Unsorted(Exception):
    """The children of this znode are needed, sorted."""

    def __init__(self, parent: bytes) -> None:
        super().__init__(f"{len(parent)} bytes of a path whose children are many")
        self.parent = parent


class History(HistorySearch):
    """The history of one tree. All its methods may raise Unreadable, when the checkpoint cannot be read for now."""

    def __init__(self, tree: Tree, limit_bytes: int, retention_ms: int) -> None:
        super().__init__(limit_bytes, retention_ms)
        self._tree = tree
        #: No ACL has changed after this revision.
        self._last_acl_revision = 0

    def acl_changed(self, revision: int) -> None:
        """An ACL changed: the zxids in a Stat do not tell."""
        self._last_acl_revision = revision

    # ---- one znode

    def node_at(self, path: bytes, revision: int) -> PastNode | None:
        """The znode at `revision`, None if it was not there. Raises Compacted, FutureRevision."""
        self._check(revision)
        live = self._tree.nodes.get(path)
        if live is not None and self._is_unchanged(live, revision):
            return PastNode(path, live, self._tree.acls.get(path))
        return self._taken_back(path, revision, self.touches_of(path, revision))

    def _check(self, revision: int) -> None:
        if revision < self.oldest:
            raise Compacted(self.oldest)
        if revision > self._tree.zxid:
            raise FutureRevision(self._tree.zxid)

    def _is_unchanged(self, live: bytes, revision: int) -> bool:
        return pzxid_of(live) <= revision and self._is_itself_unchanged(live, revision)

    def _is_itself_unchanged(self, live: bytes, revision: int) -> bool:
        return mzxid_of(live) <= revision and self._last_acl_revision <= revision

    def _taken_back(self, path: bytes, revision: int, touches: Iterable[Touch]) -> PastNode | None:
        """The znode without its changes after `revision`, given who tells of them."""
        live = self._tree.nodes.get(path)
        end = b""
        for touch in touches:
            if end and touch.how == OF_CHILDREN:
                continue
            block = self.block(touch.key)
            start = block.first_after(revision)
            own = block.own(path, start)
            if not end:
                child = block.of_children(path, start)
                if child is not None and (own is None or child < own):
                    end = block.parent_end(child)
            if own is not None:
                before = block.before(own)
                return PastNode(path, with_end(before, end), block.acl(own)) if before else None
            if end and live is not None and self._is_itself_unchanged(live, revision):
                break
        return None if live is None else PastNode(path, with_end(live, end), self._tree.acls.get(path))

    # ---- ranges

    def range_slice(
        self,
        prefix: bytes,
        revision: int,
        start_after: bytes,
        limit: int,
        sorted_children: Mapping[bytes, Sequence[bytes]],
    ) -> RangeSlice:
        """`prefix` and its descendants at `revision`, sorted by path, as far as that takes no long time.

        Those after `start_after` (empty: all), at most `limit`, maybe none. Raises Compacted, FutureRevision.

        `sorted_children` has the children of znodes with more than WIDE of them, sorted, as they were at `revision` or
        at any time since: what has changed is known from the history.
        """
        self._check(revision)
        nodes: list[PastNode] = []
        work = 0
        reached = start_after
        candidates = self._candidates(prefix, revision, start_after, sorted_children)
        try:
            for path, of_path in groupby(candidates, attrgetter("path")):
                touches = [touch for touch in of_path if touch.key != LIVE]
                past = self._resolve(path, revision, touches)
                if past is not None:
                    nodes.append(past)
                reached = path
                work += TOUCHED_PATH_WORK + len(touches) if touches else 1
                work += min(len(self._tree.children.get(path, ())), WIDE) // SORTED_PER_WORK
                if len(nodes) >= limit or work >= SLICE_WORK:
                    return RangeSlice(nodes, reached)
        except _Unsorted as unsorted:
            return RangeSlice(nodes, reached, unsorted.parent)
        return RangeSlice(nodes, None)

    def _candidates(
        self, prefix: bytes, revision: int, start_after: bytes, sorted_children: Mapping[bytes, Sequence[bytes]]
    ) -> Iterator[Touch]:
        """Each path of the range that is there now, and each that was touched after `revision`, sorted by path."""
        low = start_after + b"\0" if start_after else b""
        exact = self.touches(max(low, prefix), prefix + b"\0", revision)
        below = prefix.rstrip(b"/")
        descendants = self.touches(max(low, below + b"/\0"), below + _BEHIND_SLASH, revision)
        touches = [chain(*pair) for pair in zip(exact, descendants, strict=True)]
        return merge(self._live(prefix, low, sorted_children), *touches, key=attrgetter("path"))

    def _live(self, prefix: bytes, low: bytes, sorted_children: Mapping[bytes, Sequence[bytes]]) -> Iterator[Touch]:
        """What of the range is there now, sorted. A child comes after its parent, but not always next to it."""
        # Of each znode that was met, the children that are still to come, by the first of them.
        waiting: list[tuple[bytes, Iterator[bytes]]] = [(prefix, iter(()))] if prefix in self._tree.nodes else []
        while waiting:
            path, siblings = waiting[0]
            following = next(siblings, None)
            if following is None:
                heappop(waiting)
            else:
                heapreplace(waiting, (following, siblings))
            if path >= low:
                yield Touch(path, LIVE, CHANGED)
            children = self._children(path, low, sorted_children)
            first = next(children, None)
            if first is not None:
                heappush(waiting, (first, children))

    def _children(self, path: bytes, low: bytes, sorted_children: Mapping[bytes, Sequence[bytes]]) -> Iterator[bytes]:
        """The children of a znode that are from `low` on or have descendants there, sorted. Raises _Unsorted."""
        children = self._tree.children.get(path, {})
        if len(children) <= WIDE:
            return iter(sorted([child for child in children if child + _BEHIND_SLASH > low]))
        if path not in sorted_children:
            raise _Unsorted(path)
        all_sorted = sorted_children[path]
        start = bisect_left(all_sorted, low)
        before = [child for child in _beginnings(all_sorted, low) if child + _BEHIND_SLASH > low]
        return chain(reversed(before), map(all_sorted.__getitem__, range(start, len(all_sorted))))

    def _resolve(self, path: bytes, revision: int, touches: list[Touch]) -> PastNode | None:
        live = self._tree.nodes.get(path)
        if live is not None and (not touches or self._is_unchanged(live, revision)):
            return PastNode(path, live, self._tree.acls.get(path))
        first = touches[0]
        if first.how == ABSENT and first_revision(first.key) > revision:
            return None
        return self._taken_back(path, revision, touches)

    # ---- changes

    def changes(self, after: int, up_to: int, limit: int) -> list[Change]:
        """The changes after the revision `after` up to `up_to`, all of them in order, about `limit` in one portion.

        A portion ends with a revision, and its size in bytes is limited too: the next one begins after its last
        change, and only an empty one says that there are no more. Raises Compacted, FutureRevision.
        """
        self._check(after)
        self._check(up_to)
        changes: list[Change] = []
        size_bytes = 0
        for block in self.blocks_after(after):
            for place in range(block.first_after(after), block.first_after(up_to)):
                is_enough = len(changes) >= limit or size_bytes >= CHANGES_BYTES
                if is_enough and block.revisions[place] != changes[-1].revision:
                    return changes
                change = _change(block, place)
                changes.append(change)
                size_bytes += len(change.previous or b"") + len(change.current or b"")
            if block.revisions[-1] > up_to:
                break
        return changes

    def since(
        self, revision: int, paths: Collection[bytes] = (b"/",), identities: Identities = ()
    ) -> list[tuple[int, int, bytes, bool | None]] | None:
        """Revision, event type and path of the changes after `revision`, and whether `identities` might read that then.

        (None: the ACL was too long to be kept.) All those of `paths`, of their children and of what lies below are
        among them. None if they are not all kept, cannot be read for now or are too many.
        """
        if revision < self.oldest:
            return None
        acls = {path: self._tree.acls.get(path) for path in paths}
        events: list[tuple[int, int, bytes, bool | None]] = []
        try:
            keys = self.blocks_about(paths, revision, CATCH_UP_BYTES)
            if keys is None:
                return None
            # Backwards, since a change tells which ACL its znode had before.
            for key in reversed(keys):
                might_read = _Verdicts(identities)
                for revision_of, event_type, path, acl in self.block(key).events(revision, acls):
                    events.append((revision_of, event_type, path, acl is None or might_read.by(acl)))
        except Unreadable:
            return None
        events.reverse()
        return events


class _Verdicts:
    """What `identities` might read. An ACL can be long, and most are the very same object: none is compared."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        #: By the identity of the ACL, which is kept with it: else another one could come to have it.
        self._known: dict[int, tuple[Acls, bool | None]] = {}

    def by(self, acl: Acls) -> bool | None:
        """Whether they might; None if nobody knows."""
        if id(acl) not in self._known:
            might_read = allowed(acl, Perm.READ, self._identities)
            self._known[id(acl)] = acl, None if acl == NOBODY and not might_read else might_read
        return self._known[id(acl)][1]


def _beginnings(paths: Sequence[bytes], path: bytes) -> Iterator[bytes]:
    """Those of the sorted paths that `path` begins with, but for itself, the longest first."""
    at = bisect_left(paths, path) - 1
    while at >= 0:
        before = paths[at]
        if path.startswith(before):
            yield before
            at -= 1
        else:
            pairs = enumerate(zip(before, path, strict=False))
            shared = path[: next(place for place, (one, other) in pairs if one != other)]
            at = bisect_right(paths, shared, 0, at) - 1


def _change(block: Block, place: int) -> Change:
    kind, path = ChangeKind(block.kinds[place]), block.paths[place]
    previous, current = block.before(place) or None, block.after(place) or None
    return Change(block.revisions[place], kind, path, previous, current, block.time_ms(place), block.acl(place))
