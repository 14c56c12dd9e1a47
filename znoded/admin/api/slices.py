"""Sorting what is too much to be sorted at once: everybody else has their turn in between."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from znoded.admin.api.backend import Backend
from znoded.tree.tree import Tree

T = TypeVar("T", bound=Any)

#: So many are sorted, or merged, in one turn.
SLICE = 2_000
#: Of so many znodes the sorted children are kept for the next page.
PARENTS = 4


async def sorted_in_slices(
    backend: Backend, paths: Sequence[bytes], entries: Callable[[Sequence[bytes]], list[T]]
) -> list[T]:
    """What `entries` makes of the paths, a slice at a time, all of it sorted."""
    runs: list[list[T]] = []
    for start in range(0, len(paths), SLICE):
        run = sorted(entries(paths[start : start + SLICE]))
        if runs and run and runs[-1][-1] <= run[0]:
            runs[-1] += run  # as children come, mostly: in the order of their numbers, or of their creation
        elif run:
            runs.append(run)
        await backend.waiting.sleep(0)
    if len(runs) == 1:
        return runs[0]
    merged: list[T] = []
    merging = merge(*runs)
    while part := list(islice(merging, SLICE)):
        merged += part
        await backend.waiting.sleep(0)
    return merged


class SortedChildren:
    """The children of znodes that have very many, sorted; the last ones are kept."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: With the revision since which they may have changed.
        self._kept: OrderedDict[bytes, tuple[int, Sequence[bytes]]] = OrderedDict()

    async def of(self, parent: bytes, revision: int) -> Sequence[bytes]:
        """The children, sorted, as they were at this revision or at any time since."""
        since, found = self._kept.get(parent, (-1, ()))
        if since < revision:
            tree: Tree = self._backend.tree
            since, children = tree.zxid, tree.children.get(parent, {})
            found = await sorted_in_slices(self._backend, tuple(children), list)
            self._kept[parent] = since, found
            if len(self._kept) > PARENTS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(parent)
        return found
