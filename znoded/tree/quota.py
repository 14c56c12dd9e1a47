"""Quotas: limits on a subtree, and the usage that is kept beside them (protocol facts 11).

Both are znodes that clients make: /zookeeper/quota/PATH/zookeeper_limits puts a quota on /PATH, zookeeper_stats beside
it holds the usage as text. The usage is kept nowhere else, so it is in every checkpoint and the same at every member.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from znoded.jute.errors import ErrorCode
from znoded.jute.primitives import encode_buffer
from znoded.tree.paths import parent_of
from znoded.tree.refusal import Refused
from znoded.tree.znode import data_bytes_of, data_of, with_data_unnoticed

if TYPE_CHECKING:
    from znoded.tree.tree import Tree

ROOT = b"/zookeeper/quota"
#: Paths that begin with this can be limits or stats.
ROOT_SLASH = b"/zookeeper/quota/"
_LIMITS = b"/zookeeper_limits"
_STATS = b"/zookeeper_stats"
#: A quota on this path counts nothing, as in ZooKeeper.
_EXEMPT = b"/zookeeper"

_UNLIMITED = -1
_INT64 = range(-(1 << 63), 1 << 63)
_NUMBER = re.compile(rb"[+-]?[0-9]{1,20}")
_USAGE = re.compile(rb"count=(-?[0-9]{1,18}),bytes=(-?[0-9]{1,18})")


class HardLimits(NamedTuple):
    """The hard limits of a quota, -1 for none; soft ones refuse nothing and are only there to be read."""

    nodes: int = _UNLIMITED
    data_bytes: int = _UNLIMITED


class Usage(NamedTuple):
    """The nodes in a subtree, its top included, and the sum of their data lengths."""

    nodes: int
    data_bytes: int


def check(tree: Tree, path: bytes, added_nodes: int, added_bytes: int) -> None:
    """Refuse a change of `path` that would take its quota above a hard limit. What shrinks is never refused."""
    top = _deepest(tree, path)
    usage = _usage(tree, top) if top is not None and tree.options.enforce_quota else None
    if top is None or usage is None:
        return
    limits = tree.quotas[top]
    if added_nodes > 0 and 0 <= limits.nodes < usage.nodes + added_nodes:
        raise Refused(ErrorCode.QUOTA_EXCEEDED)
    if added_bytes > 0 and 0 <= limits.data_bytes < usage.data_bytes + added_bytes:
        raise Refused(ErrorCode.QUOTA_EXCEEDED)


def count(tree: Tree, path: bytes, added_nodes: int, added_bytes: int) -> None:
    """Bring the usage up to date after a change of `path`; only the deepest quota above it counts the change."""
    top = _deepest(tree, path)
    usage = None if top is None else _usage(tree, top)
    if top is not None and usage is not None:
        _write_usage(tree, top, Usage(usage.nodes + added_nodes, usage.data_bytes + added_bytes))


def node_created(tree: Tree, path: bytes) -> None:
    """A znode below ROOT was created. New stats are filled in with the present usage."""
    limits_changed(tree, path)
    top = _top(path, _STATS)
    if top:
        _write_usage(tree, top, _count_subtree(tree, top))


def node_set(tree: Tree, path: bytes) -> None:
    """The data of a znode below ROOT was set. Stats that make no sense are replaced by the present usage."""
    limits_changed(tree, path)
    top = _top(path, _STATS)
    if top and not _USAGE.fullmatch(data_of(tree.nodes[path])):
        _write_usage(tree, top, _count_subtree(tree, top))


def limits_changed(tree: Tree, path: bytes) -> None:
    """If `path` is a limits znode, put the quota in force that it has now, or end it if it is gone."""
    top = _top(path, _LIMITS)
    if top:
        node = tree.nodes.get(path)
        if node is None:
            tree.quotas.pop(top, None)
        else:
            tree.quotas[top] = parse_limits(data_of(node))


def find_quotas(tree: Tree) -> None:
    """Put all quotas in force that a loaded tree has."""
    waiting = [ROOT]
    while waiting:
        for path in tree.children.get(waiting.pop(), ()):
            limits_changed(tree, path)
            waiting.append(path)


def parse_limits(text: bytes) -> HardLimits:
    """The hard limits in a limits znode. Text that makes no sense limits nothing; in ZooKeeper it fails writes."""
    values: dict[bytes, int] = {}
    for item in re.split(rb"[,;]+", text.rstrip(b",;")) if text else ():
        key, value = (*item.split(b"="), b"")[:2]
        if not _NUMBER.fullmatch(value) or int(value) not in _INT64:
            return HardLimits()
        values[key] = int(value)
    return HardLimits(values.get(b"countHardLimit", _UNLIMITED), values.get(b"byteHardLimit", _UNLIMITED))


def _top(path: bytes, name: bytes) -> bytes:
    """The path that the quota of the limits or stats znode `path` is on; empty if it is no such znode."""
    return path[len(ROOT) : -len(name)] if path.startswith(ROOT_SLASH) and path.endswith(name) else b""


def _deepest(tree: Tree, path: bytes) -> bytes | None:
    """Where the deepest quota above `path`, or on it, stands."""
    while path not in tree.quotas:
        path = parent_of(path)
        if path == b"/":
            return None
    return None if path == _EXEMPT else path


def _usage(tree: Tree, top: bytes) -> Usage | None:
    node = tree.nodes.get(ROOT + top + _STATS)
    match = _USAGE.fullmatch(data_of(node)) if node is not None else None
    return Usage(int(match[1]), int(match[2])) if match else None


def _write_usage(tree: Tree, top: bytes, usage: Usage) -> None:
    """Change the data of the stats in place: no version, no time and no watch tells of it."""
    path = ROOT + top + _STATS
    tree.replace(path, with_data_unnoticed(tree.nodes[path], encode_buffer(b"count=%d,bytes=%d" % usage)))


def _count_subtree(tree: Tree, top: bytes) -> Usage:
    if top not in tree.nodes:
        return Usage(0, 0)
    found = data_bytes = 0
    waiting = [top]
    while waiting:
        path = waiting.pop()
        found += 1
        data_bytes += max(0, data_bytes_of(tree.nodes[path]))
        waiting += tree.children.get(path, ())
    return Usage(found, data_bytes)
