"""The number that the server appends to the name of a sequential znode."""

from __future__ import annotations

import re

#: Below 0 once its parent has counted beyond 2147483647. A single `-` in front of it ends the name, as in `lock-`.
_SEQUENCE = re.compile(rb"(?:(?<=[_-])-[0-9]{9,10}|[0-9]{10})\Z")


def sequence_of(path: bytes) -> int | None:
    """The sequence number at the end of a path, None if there is none."""
    found = _SEQUENCE.search(path)
    return int(found[0]) if found else None


def numbered(path: bytes, created: int) -> bytes:
    """The path with the number of the next child behind it: 10 digits, as ZooKeeper writes a signed int."""
    return path + b"%010d" % created
