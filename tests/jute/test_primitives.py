"""The primitive encodings, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jute.factory import i4, i8, string, strings
from tests.jute.strategies import byte_strings, ints, longs, string_vectors
from znoded.jute.primitives import (
    JuteError,
    Reader,
    encode_boolean,
    encode_buffer,
    encode_int,
    encode_long,
    encode_strings,
    encode_ustring,
    encode_vector,
    readable,
)
from znoded.jute.stat import STAT, Stat


@given(ints)
def test_an_int_is_four_big_endian_bytes(value: int) -> None:
    assert encode_int(value) == i4(value)
    assert Reader(i4(value)).int() == value


@given(longs)
def test_a_long_is_eight_big_endian_bytes(value: int) -> None:
    assert encode_long(value) == i8(value)
    assert Reader(i8(value)).long() == value


def test_a_boolean_is_written_as_0_or_1_and_any_other_byte_reads_as_true() -> None:
    assert encode_boolean(False) + encode_boolean(True) == b"\0\1"
    reader = Reader(b"\0\1\2\xff")
    assert [reader.boolean() for _ in range(4)] == [False, True, True, True]


@given(byte_strings)
def test_buffers_and_strings_are_a_length_and_bytes(value: bytes | None) -> None:
    assert encode_buffer(value) == encode_ustring(value) == string(value)
    assert Reader(string(value)).buffer() == Reader(string(value)).ustring() == value


def test_null_and_empty_are_different_values() -> None:
    assert Reader(i4(-1)).buffer() is None
    assert Reader(i4(0)).buffer() == b""
    assert Reader(i4(-1)).strings() is None
    assert Reader(i4(0)).strings() == []


@given(string_vectors)
def test_a_vector_of_strings_is_a_count_and_strings(values: tuple[bytes, ...] | None) -> None:
    encoded = i4(-1) if values is None else strings(*values)
    assert encode_strings(values) == encoded
    assert Reader(encoded).strings() == (None if values is None else list(values))


@given(st.lists(longs))
def test_a_vector_takes_any_item_codec(values: list[int]) -> None:
    encoded = encode_vector(values, encode_long)
    assert encoded == i4(len(values)) + b"".join([i8(value) for value in values])
    assert Reader(encoded).vector(Reader.long, least_item_bytes=8) == values


def test_a_vector_count_below_minus_one_is_empty() -> None:
    for count in (-2, -3, -(2**31)):
        assert Reader(i4(count)).vector(Reader.int, least_item_bytes=4) == []


def test_what_is_no_utf8_is_given_back_as_u_fffd() -> None:
    assert readable("/é".encode()) == "/é".encode()
    assert readable(b"/\xff\xc3") == "/\ufffd\ufffd".encode()


def test_a_reader_moves_through_its_bytes() -> None:
    reader = Reader(i4(7) + i8(-9) + b"\1" + string(b"abc") + b"rest")
    assert (reader.int(), reader.long(), reader.boolean(), reader.buffer()) == (7, -9, True, b"abc")
    assert (reader.position, reader.remaining) == (20, 4)


def test_a_reader_can_be_given_a_part_of_the_bytes() -> None:
    reader = Reader(b"xxxx" + i4(5) + b"yyyy", 4, 8)
    assert (reader.int(), reader.remaining) == (5, 0)
    with pytest.raises(JuteError):
        reader.boolean()


@pytest.mark.parametrize(("position", "end"), [(-1, None), (5, None), (3, 2), (0, 5)])
def test_a_reader_refuses_a_part_that_is_not_there(position: int, end: int | None) -> None:
    with pytest.raises(JuteError, match="do not lie within the 4 bytes given"):
        Reader(b"abcd", position, end)


def test_a_stat_is_its_eleven_fields_in_order() -> None:
    stat = Stat(*range(1, 12))
    assert stat.encode() == b"".join(
        [i8(1), i8(2), i8(3), i8(4), i4(5), i4(6), i4(7), i8(8), i4(9), i4(10), i8(11)],
    )
    assert STAT.size == 68
    assert Stat.decode(Reader(stat.encode())) == stat
