"""Any bytes at all: a decoder gives a value or a JuteError, and never reads or keeps more than it was given."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jute.factory import i4
from tests.jute.strategies import ALL_RECORDS, any_record
from tests.jute.test_records_on_the_wire import CASES
from znoded.jute.fields import Record
from znoded.jute.frames import FrameSplitter, FrameTooLong
from znoded.jute.primitives import JuteError, Reader

ODD_NUMBERS = [0, 1, 2, 9, 15, 21, -1, -2, 2**31 - 1, -(2**31), 255, 65536, 1048575, 1048576]

many = settings(max_examples=200, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
any_class = st.sampled_from(ALL_RECORDS)
odd_numbers = st.sampled_from(ODD_NUMBERS)


def decode_or_refuse(cls: type[Record], data: bytes, start: int = 0, end: int | None = None) -> None:
    """Whatever the bytes, the outcome is a JuteError, or a value that stands for just the bytes that were taken."""
    reader = Reader(data, start, end)
    try:
        value = cls.decode(reader)
    except JuteError:
        assert reader.remaining >= 0
        return
    encoded = value.encode()
    assert len(encoded) == reader.position - start
    assert cls.decode(Reader(encoded)) == value


@many
@given(any_class, st.binary(max_size=200))
def test_any_bytes(cls: type[Record], data: bytes) -> None:
    decode_or_refuse(cls, data)


@many
@given(any_class, st.lists(odd_numbers | st.integers(0, 30), max_size=30), st.binary(max_size=3))
def test_any_odd_numbers(cls: type[Record], numbers: list[int], tail: bytes) -> None:
    decode_or_refuse(cls, b"".join([i4(number) for number in numbers]) + tail)


@pytest.mark.parametrize("seed", range(4))
def test_valid_records_with_bytes_changed(seed: int) -> None:
    random = Random(seed)
    for _ in range(5000):
        value, encoded = random.choice(CASES)
        damaged = bytearray(encoded + bytes(4))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(damaged))
            damaged[at : at + 4] = i4(random.choice(ODD_NUMBERS)) if random.random() < 0.5 else random.randbytes(2)
        decode_or_refuse(type(value), bytes(damaged))


@many
@given(any_record, st.binary(max_size=9), st.binary(max_size=9), st.data())
def test_a_record_in_the_midst_of_other_bytes(value: Record, before: bytes, behind: bytes, data: st.DataObject) -> None:
    encoded = value.encode()
    end = len(before) + data.draw(st.integers(0, len(encoded)))
    decode_or_refuse(type(value), before + encoded + behind, len(before), end)


@many
@given(st.lists(st.binary(max_size=40) | odd_numbers.map(i4), max_size=12))
def test_any_stream(pieces: list[bytes]) -> None:
    splitter = FrameSplitter(64)
    payload_bytes = 0
    for piece in pieces:
        try:
            payloads = splitter.feed(piece)
        except FrameTooLong as error:
            payloads = error.payloads
        payload_bytes += sum([4 + len(payload) for payload in payloads])
    assert payload_bytes <= sum([len(piece) for piece in pieces])
