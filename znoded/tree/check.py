"""check: a condition of a multi, that a znode exists and has some version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.tree.acl import READ
from znoded.tree.paths import check_path
from znoded.tree.refusal import Refused
from znoded.tree.znode import version_of

if TYPE_CHECKING:
    from znoded.tree.tree import Tree


def check(tree: Tree, identities: bytes, path: bytes, version: int) -> None:
    """Refuse unless the znode is there and its version is `version` or that is -1."""
    node = tree.nodes.get(path)
    if node is None:
        raise Refused(ErrorCode.NO_NODE if check_path(path) else ErrorCode.BAD_ARGUMENTS)
    tree.require(READ, path, identities)
    if version not in (-1, version_of(node)):
        raise Refused(ErrorCode.BAD_VERSION)
