"""Makes frames for the tests from plain values, without the codec under test, so that a case reads as its fields."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def i4(value: int) -> bytes:
    """A 4-byte number."""
    return struct.pack(">i", value)


def i8(value: int) -> bytes:
    """An 8-byte number."""
    return struct.pack(">q", value)


def string(value: bytes | None) -> bytes:
    """A string or a buffer; None is null."""
    return i4(-1) if value is None else i4(len(value)) + value


def vector(*items: bytes) -> bytes:
    """A vector of items that are encoded already."""
    return i4(len(items)) + b"".join(items)


def strings(*values: bytes) -> bytes:
    """A vector of strings."""
    return vector(*[string(value) for value in values])


def acl(perms: int, scheme: bytes | None, id_: bytes | None) -> bytes:
    """One ACL entry."""
    return i4(perms) + string(scheme) + string(id_)


def stat(*fields: int) -> bytes:
    """A Stat from its eleven numbers; without any, that of a node at zxid 1."""
    return struct.pack(">qqqqiiiqiiq", *(fields or (1, 1, 1000, 1000, 0, 0, 0, 0, 0, 0, 1)))


def multi(*items: tuple[int, bytes], err: int = -1) -> bytes:
    """A multi body: each item's header with `err`, its bytes, and the end mark."""
    return b"".join([i4(op) + b"\0" + i4(err) + body for op, body in items]) + i4(-1) + b"\1" + i4(-1)


def frame(*parts: bytes) -> bytes:
    """The parts as one frame, length in front."""
    payload = b"".join(parts)
    return i4(len(payload)) + payload


def request(xid: int, op: int, *parts: bytes) -> bytes:
    """A request frame."""
    return frame(i4(xid), i4(op), *parts)


def reply(xid: int, zxid: int, err: int, *parts: bytes) -> bytes:
    """A reply frame."""
    return frame(i4(xid), i8(zxid), i4(err), *parts)


def in_pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The data cut at the offsets."""
    edges = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]
