"""Undoing what a multi or a TXN has done so far, when one of its operations is refused."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from znoded.tree import quota
from znoded.tree.acl import Acls
from znoded.tree.paths import parent_of
from znoded.tree.znode import owner_of

if TYPE_CHECKING:
    from znoded.tree.tree import Tree

T = TypeVar("T")


class _Before(NamedTuple):
    """All that the tree held of one path."""

    node: bytes | None
    created: int | None
    acl: Acls | None
    kind: int | None


class Undo:
    """What a multi has changed, as it was before. Around its operations: if one raises, all of them are undone."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._first_event = len(tree.events)
        self._before: dict[bytes, _Before] = {}

    def __enter__(self) -> Self:
        self._tree.undo = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tree = self._tree
        tree.undo = None
        if kind is not None:
            self._roll_back(tree)
            del tree.events[self._first_event :]
            tree.history.forget(tree.zxid)

    def remember(self, tree: Tree, path: bytes) -> None:
        """Called before each change of what the tree holds of `path`; the first time counts."""
        if path not in self._before:
            self._before[path] = _Before(
                tree.nodes.get(path), tree.created.get(path), tree.acls.get(path), tree.kinds.get(path)
            )

    def _roll_back(self, tree: Tree) -> None:
        """Put everything back. That it changed since the last checkpoint may stay noted."""
        for path, before in self._before.items():
            node = tree.nodes.get(path)
            if _place(node) != _place(before.node):
                if node is not None:
                    tree.unlink(path, parent_of(path), owner_of(node))
                if before.node is not None:
                    tree.link(path, parent_of(path), owner_of(before.node))
            _put_back(tree.nodes, path, before.node)
            tree.dirty.nodes[path] = before.node
            _put_back(tree.created, path, before.created)
            _put_back(tree.acls, path, before.acl)
            _put_back(tree.kinds, path, before.kind)
        for path in self._before:
            quota.limits_changed(tree, path)


def _place(node: bytes | None) -> int | None:
    """Whether a path is among its parent's children, and whose ephemeral it is."""
    return None if node is None else owner_of(node)


def _put_back(table: dict[bytes, T], path: bytes, value: T | None) -> None:
    if value is None:
        table.pop(path, None)
    else:
        table[path] = value
