"""What a record encodes, it decodes again, for any values."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.jute.strategies import any_record
from znoded.jute.fields import Record
from znoded.jute.primitives import Reader
from znoded.jute.records import CheckRequest, ConnectRequest, ConnectResponse, DeleteRequest

many = settings(max_examples=300, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


@many
@given(any_record)
def test_a_record_decodes_to_itself_and_takes_no_byte_more(value: Record) -> None:
    encoded = value.encode()
    has_optional_end = isinstance(value, ConnectRequest | ConnectResponse)
    reader = Reader(encoded if has_optional_end else encoded + b"trailing")
    assert type(value).decode(reader) == value
    assert reader.position == len(encoded)


@many
@given(any_record)
def test_a_record_is_a_value(value: Record) -> None:
    again = type(value).decode(Reader(value.encode()))
    assert hash(again) == hash(value)
    assert not hasattr(value, "__dict__")


def test_records_of_different_kinds_are_never_equal() -> None:
    deletion: Record = DeleteRequest(b"/a", 1)
    check: Record = CheckRequest(b"/a", 1)
    assert deletion != check
