"""How a record class is declared: a class body of field types, from which its encoder and decoder follow.

For example, `@record class DeleteRequest(Record)` with the body `path: UString` and `version: Int`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, dataclass_transform, get_type_hints

from znoded.jute.primitives import (
    Reader,
    encode_boolean,
    encode_buffer,
    encode_int,
    encode_long,
    encode_strings,
    encode_ustring,
    encode_vector,
)
from znoded.jute.stat import STAT, Stat

T = TypeVar("T")


class Codec(NamedTuple, Generic[T]):
    """How the values of one field type are read and written, and the fewest bytes that one can take."""

    read: Callable[[Reader], T]
    encode: Callable[[T], bytes]
    least_bytes: int


def vector_of(item: Codec[T]) -> Codec[tuple[T, ...] | None]:
    """The codec of a vector; its values are tuples."""

    def read(reader: Reader) -> tuple[T, ...] | None:
        items = reader.vector(item.read, item.least_bytes)
        return None if items is None else tuple(items)

    def encode(items: tuple[T, ...] | None) -> bytes:
        return encode_vector(items, item.encode)

    return Codec(read, encode, least_bytes=4)


def _read_strings(reader: Reader) -> tuple[bytes, ...] | None:
    strings = reader.strings()
    return None if strings is None else tuple(strings)


def _read_trailing_boolean(reader: Reader) -> bool | None:
    return reader.boolean() if reader.remaining else None


def _encode_trailing_boolean(value: bool | None) -> bytes:
    return b"" if value is None else encode_boolean(value)


Int = Annotated[int, Codec(Reader.int, encode_int, 4)]
Long = Annotated[int, Codec(Reader.long, encode_long, 8)]
Boolean = Annotated[bool, Codec(Reader.boolean, encode_boolean, 1)]
TrailingBoolean = Annotated[bool | None, Codec(_read_trailing_boolean, _encode_trailing_boolean, 0)]
Buffer = Annotated[bytes | None, Codec(Reader.buffer, encode_buffer, 4)]
UString = Annotated[bytes | None, Codec(Reader.ustring, encode_ustring, 4)]
Strings = Annotated[tuple[bytes, ...] | None, Codec(_read_strings, encode_strings, 4)]
StatField = Annotated[Stat, Codec(Stat.decode, Stat.encode, STAT.size)]


class Record:
    """Base of all declared records: the fields in their order, no tags and no padding."""

    __slots__ = ()
    _readers: ClassVar[tuple[Callable[[Reader], Any], ...]]
    _encoders: ClassVar[tuple[tuple[str, Callable[[Any], bytes]], ...]]

    def encode(self) -> bytes:
        """The bytes of the record. Numbers that do not fit their field raise struct.error."""
        return b"".join([encode(getattr(self, name)) for name, encode in self._encoders])

    @classmethod
    def decode(cls, reader: Reader) -> Self:
        """Read a record; bytes behind it are left in the reader. Raises JuteError."""
        make: Callable[..., Self] = cls
        return make(*[read(reader) for read in cls._readers])


R = TypeVar("R", bound=Record)


@dataclass_transform(frozen_default=True)
def record(cls: type[R]) -> type[R]:
    """Make a Record subclass a frozen, slotted dataclass that can encode and decode itself."""
    made = dataclass(frozen=True, slots=True)(cls)
    hints = get_type_hints(made, include_extras=True)
    codecs: list[tuple[str, Codec[Any]]] = [(name, hints[name].__metadata__[0]) for name in cls.__annotations__]
    made._readers = tuple([codec.read for _, codec in codecs])
    made._encoders = tuple([(name, codec.encode) for name, codec in codecs])
    return made
