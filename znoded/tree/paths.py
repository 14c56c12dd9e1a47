"""Paths: which are valid (protocol facts 5.3), and whose child a path is. They are UTF-8 and are never decoded."""

from __future__ import annotations

import re
from collections.abc import Collection

# The characters that a name may hold, as UTF-8. ZooKeeper judges UTF-16 units, so everything beyond the first plane is
# out with the surrogates; so are control characters, private use and the last sixteen. Malformed UTF-8 matches nothing.
_CHARACTERS = rb"""
    [ -.0-~]++
  | \xc2[\xa0-\xbf] | [\xc3-\xdf][\x80-\xbf]
  | \xe0[\xa0-\xbf][\x80-\xbf] | [\xe1-\xec][\x80-\xbf]{2} | \xed[\x80-\x9f][\x80-\xbf]
  | \xef[\xa4-\xbe][\x80-\xbf] | \xef\xbf[\x80-\xaf]
"""
_NAME = rb"(?! \.{1,2} (?: / | \Z ) ) (?: %s )++" % _CHARACTERS
_VALID_NAME = re.compile(_NAME, re.VERBOSE)
_VALID_PATH = re.compile(rb"/ | (?: / %s )++" % _NAME, re.VERBOSE)


def check_path(path: bytes) -> bool:
    """Whether `path` may be the full path of a znode."""
    return _VALID_PATH.fullmatch(path) is not None


def check_name(name: bytes) -> bool:
    """Whether `name` may be the last part of a path."""
    return _VALID_NAME.fullmatch(name) is not None


def parent_of(path: bytes) -> bytes:
    """The path of the parent, `path` being valid; the root is its own."""
    return path[: path.rfind(b"/")] or b"/"


def name_bytes(path: bytes, parent: bytes) -> int:
    """The length of the last part of a path."""
    return len(path) - len(parent) - 1 if parent != b"/" else len(path) - 1


def names_bytes(parent: bytes, paths: Collection[bytes]) -> int:
    """The lengths of the names of a znode's children together."""
    return sum(map(len, paths)) - len(paths) * (len(parent) + 1 if parent != b"/" else 1)
