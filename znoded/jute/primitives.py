"""The primitive encodings of jute, ZooKeeper's serialisation (protocol facts 1.1): all numbers big-endian and signed.

A string is its UTF-8 bytes and stays so; None is null, which the wire keeps apart from empty.
"""

from __future__ import annotations

import builtins
import struct
from collections.abc import Callable, Collection
from typing import Any, TypeVar

T = TypeVar("T")

INT = struct.Struct(">i")
LONG = struct.Struct(">q")
NULL = INT.pack(-1)


class JuteError(ValueError):
    """The bytes are no such record; nothing was allocated for what they only claim to hold."""


class Reader:
    """Takes values from the front of a byte string, never looking past its end.

    `position` and `end` bound the bytes in use and are offsets into `data`; `end` None means all of it.
    Every method raises JuteError when the bytes do not hold the value; `position` is then anywhere up to `end`.
    """

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: builtins.int = 0, end: builtins.int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        if not 0 <= position <= self.end <= len(data):
            raise JuteError(f"bytes {position} to {self.end} do not lie within the {len(data)} bytes given")

    @property
    def remaining(self) -> builtins.int:
        """The number of bytes not read yet."""
        return self.end - self.position

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The values of a fixed layout."""
        return layout.unpack_from(self.data, self._take(layout.size))

    def int(self) -> builtins.int:
        """A signed number of 4 bytes."""
        value: builtins.int = INT.unpack_from(self.data, self._take(4))[0]
        return value

    def long(self) -> builtins.int:
        """A signed number of 8 bytes."""
        value: builtins.int = LONG.unpack_from(self.data, self._take(8))[0]
        return value

    def boolean(self) -> bool:
        """One byte; anything but 0 is true."""
        return self.data[self._take(1)] != 0

    def buffer(self) -> bytes | None:
        """A length and that many bytes; length -1 is null, any other negative length an error."""
        size_bytes = self.int()
        if size_bytes >= 0:
            start = self._take(size_bytes)
            return self.data[start : self.position]
        if size_bytes == -1:
            return None
        raise JuteError(f"a length of {size_bytes} at byte {self.position - 4}: only -1 (null) may be negative")

    ustring = buffer  # A string is not checked to be UTF-8: its bytes are compared and given back as they came.

    def vector(self, read_item: Callable[[Reader], T], least_item_bytes: builtins.int) -> list[T] | None:
        """A count and that many items, each at least `least_item_bytes` long; a count that cannot fit is an error.

        Count -1 is null; ZooKeeper takes any other negative count as empty (protocol facts 18, 32), and so do we.
        """
        count = self.int()
        if count < 0:
            return None if count == -1 else []
        least_bytes = count * least_item_bytes
        if least_bytes > self.remaining:
            raise JuteError(f"a vector of {count} items needs at least {least_bytes} bytes, {self.remaining} are left")
        return [read_item(self) for _ in range(count)]

    def strings(self) -> list[bytes] | None:
        """A vector of strings, none of which may be null."""
        return self.vector(_string, least_item_bytes=4)

    def _take(self, size_bytes: builtins.int) -> builtins.int:
        """Step over the next bytes, if there are so many, and give the offset of the first."""
        start = self.position
        end = start + size_bytes
        if end > self.end:
            raise JuteError(f"{size_bytes} bytes are needed at byte {start}, {self.remaining} are left")
        self.position = end
        return start


def _string(reader: Reader) -> bytes:
    string = reader.ustring()
    if string is None:
        raise JuteError(f"a null string in a vector at byte {reader.position - 4}")
    return string


encode_int: Callable[[int], bytes] = INT.pack
encode_long: Callable[[int], bytes] = LONG.pack


def encode_boolean(value: bool) -> bytes:
    """One byte, 0 or 1."""
    return b"\x01" if value else b"\x00"


def encode_buffer(value: bytes | None) -> bytes:
    """The length and the bytes; None is null."""
    return NULL if value is None else INT.pack(len(value)) + value


encode_ustring = encode_buffer


def readable(string: bytes) -> bytes:
    """The string as ZooKeeper gives it back: what is no UTF-8 is replaced by U+FFFD."""
    return string.decode(errors="replace").encode()


def encode_vector(items: Collection[T] | None, encode_item: Callable[[T], bytes]) -> bytes:
    """The count and the items; None is null."""
    if items is None:
        return NULL
    return INT.pack(len(items)) + b"".join([encode_item(item) for item in items])


def encode_strings(strings: Collection[bytes] | None) -> bytes:
    """A vector of strings given as their UTF-8 bytes; None is null."""
    return encode_vector(strings, encode_buffer)
