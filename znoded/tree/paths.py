"""Paths: which are valid (protocol facts 5.3), and whose child a path is. They are UTF-8, and kept as bytes."""

from __future__ import annotations

import re
from collections.abc import Collection

# No possessive group is in these: that of Python 3.11 before 3.11.5 takes what it should not (its issue 106052).
_PLAIN = re.compile(rb"[ -~]+")
#: ZooKeeper judges UTF-16 units, so everything beyond the first plane is out with the surrogates; so are control
#: characters, private use and the last sixteen.
_FORBIDDEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_EMPTY_OR_DOTS = re.compile(rb"/\.{0,2}(?:/|\Z)")


def check_path(path: bytes) -> bool:
    """Whether `path` may be the full path of a znode."""
    if path == b"/":
        return True
    return path.startswith(b"/") and _EMPTY_OR_DOTS.search(path) is None and _has_valid_characters(path)


def check_name(name: bytes) -> bool:
    """Whether `name` may be the last part of a path."""
    return name not in (b"", b".", b"..") and b"/" not in name and _has_valid_characters(name)


def _has_valid_characters(path: bytes) -> bool:
    if _PLAIN.fullmatch(path) is not None:
        return True
    try:
        return _FORBIDDEN.search(path.decode()) is None
    except UnicodeDecodeError:
        return False


def parent_of(path: bytes) -> bytes:
    """The path of the parent, `path` being valid; the root is its own."""
    return path[: path.rfind(b"/")] or b"/"


def name_bytes(path: bytes, parent: bytes) -> int:
    """The length of the last part of a path."""
    return len(path) - len(parent) - 1 if parent != b"/" else len(path) - 1


def names_bytes(parent: bytes, paths: Collection[bytes]) -> int:
    """The lengths of the names of a znode's children together."""
    return sum(map(len, paths)) - len(paths) * (len(parent) + 1 if parent != b"/" else 1)
