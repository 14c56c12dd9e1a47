"""Who stands in line for a lock: every sequential child of its path, in the order of creation.

A line of many is not looked through for each question: it is kept, and brought up to date by the changes that the
history has since. What takes long, a first look at a line of many, is done in slices.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from twisted.internet.defer import DeferredLock

from znoded.admin.api import errors
from znoded.admin.api.backend import Backend
from znoded.admin.api.slices import sorted_in_slices
from znoded.tree.history import Change, Compacted
from znoded.tree.history_block import ChangeKind
from znoded.tree.history_segment import Unreadable
from znoded.tree.paths import parent_of
from znoded.tree.sequence import sequence_of
from znoded.tree.tree import Tree
from znoded.tree.znode import czxid_of, pzxid_of

#: In the name of the second znode that a contender of `znoded.recipes` has in line, for Curator to order.
SECOND_ZNODE = b"__lock-"
#: A lock with so many children is looked through for each question.
NARROW = 1_000
#: Of so many locks with more the lines are kept.
QUEUES = 4
#: Changes looked at in one turn.
CHANGES = 500


class Contender(NamedTuple):
    """A znode in line. They are in the order of these fields; the token is the revision that created it."""

    token: int
    sequence: int
    path: bytes

    @property
    def is_second(self) -> bool:
        """Whether it stands there beside another one of the same contender."""
        return SECOND_ZNODE in self.path


class Queue:
    """The line for a lock at a revision."""

    def __init__(self, lock: bytes, revision: int, contenders: list[Contender], second_count: int) -> None:
        self.lock = lock
        self.revision = revision
        self._contenders = contenders
        self._second_count = second_count

    def __len__(self) -> int:
        """How many stand in line, however many znodes they have there."""
        return len(self._contenders) - self._second_count

    def __iter__(self) -> Iterator[Contender]:
        """One znode of each, the holder's first."""
        return (contender for contender in self._contenders if not contender.is_second)

    @property
    def first(self) -> Contender | None:
        """Whose turn it is."""
        return self._contenders[0] if self._contenders else None

    def ahead_of(self, contender: Contender) -> Contender | None:
        """Who is directly before this one, which is in line."""
        place = bisect_left(self._contenders, contender)
        return self._contenders[place - 1] if place else None

    def apply(self, changes: Iterable[Change]) -> None:
        """Bring it up to date with what has changed after its revision."""
        for change in changes:
            self.revision = change.revision
            contender = self._changed(change)
            if contender is None:
                continue
            if change.kind == ChangeKind.CREATED:
                insort(self._contenders, contender)
                self._second_count += contender.is_second
                continue
            place = bisect_left(self._contenders, contender)
            if self._contenders[place : place + 1] == [contender]:
                del self._contenders[place]
                self._second_count -= contender.is_second

    def _changed(self, change: Change) -> Contender | None:
        """Who came or went with this change."""
        node = change.current if change.kind == ChangeKind.CREATED else change.previous
        is_here = change.kind in (ChangeKind.CREATED, ChangeKind.DELETED) and parent_of(change.path) == self.lock
        return contender_of(change.path, node) if is_here and node is not None else None


class Queues:
    """The lines of one member's locks."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: OrderedDict[bytes, Queue] = OrderedDict()
        self._scanning = DeferredLock()

    async def of(self, lock: bytes) -> Queue:
        """The line as it is at the revision that is reached when this returns. Raises busy."""
        queue = self.now(lock)
        if queue is not None:
            return queue
        async with self._scanning:  # one at a time, for the sake of everybody else
            await self._backend.waiting.sleep(0)
            while (queue := self.now(lock)) is None:
                await self._bring_up(lock)
            return queue

    async def first(self, lock: bytes) -> Contender | None:
        """Whose turn it is at the revision that is reached when this returns. Raises busy."""
        return self.first_now(lock) or (await self.of(lock)).first

    def now(self, lock: bytes) -> Queue | None:
        """The same, if it is known without a long look."""
        tree: Tree = self._backend.tree
        children = tree.children.get(lock, {})
        if len(children) <= NARROW:
            contenders = sorted(self._contenders(children, tree.zxid))
            return Queue(lock, tree.zxid, contenders, _second_count(contenders))
        queue = self._kept.get(lock)
        if queue is None or queue.revision < pzxid_of(tree.nodes[lock]):
            return None
        self._kept.move_to_end(lock)
        return queue

    def first_now(self, lock: bytes) -> Contender | None:
        """Who is first, if that is known without a long look: whoever was first is it until it is gone."""
        queue = self.now(lock)
        if queue is None:
            queue = self._kept.get(lock)
        first = None if queue is None else queue.first
        node = None if first is None else self._backend.tree.nodes.get(first.path)
        return first if first is not None and node is not None and czxid_of(node) == first.token else None

    async def _bring_up(self, lock: bytes) -> None:
        """Go on with the kept line towards what there is now, or look anew if that is less to do."""
        tree: Tree = self._backend.tree
        queue = self._kept.get(lock)
        if queue is not None and tree.zxid - queue.revision <= len(tree.children.get(lock, ())):
            try:
                changes = self._backend.history.changes(queue.revision, tree.zxid, CHANGES)
            except Compacted:
                changes = []  # the state was replaced by another member's
            except Unreadable:
                raise errors.busy() from None
            if changes:
                queue.apply(changes)
                await self._backend.waiting.sleep(0)
                return
        revision = tree.zxid
        second_count = 0

        def contenders(paths: Iterable[bytes]) -> list[Contender]:
            nonlocal second_count
            found = self._contenders(paths, revision)
            second_count += _second_count(found)
            return found

        found = await sorted_in_slices(self._backend, tuple(tree.children.get(lock, ())), contenders)
        self._kept[lock] = Queue(lock, revision, found, second_count)
        if len(self._kept) > QUEUES:
            self._kept.popitem(last=False)

    def _contenders(self, paths: Iterable[bytes], revision: int) -> list[Contender]:
        """Those of the paths that stand in line, but for what came after the revision."""
        nodes = self._backend.tree.nodes
        found = [contender_of(path, node) for path in paths if (node := nodes.get(path)) is not None]
        return [contender for contender in found if contender is not None and contender.token <= revision]


def _second_count(contenders: Iterable[Contender]) -> int:
    return sum(contender.is_second for contender in contenders)


def contender_of(path: bytes, node: bytes) -> Contender | None:
    """A znode as a contender, if its name has a number at its end."""
    sequence = sequence_of(path)
    return None if sequence is None else Contender(czxid_of(node), sequence, path)
