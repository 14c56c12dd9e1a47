"""Hypothesis strategies for every record, made from the declared field types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from hypothesis import strategies as st

from znoded.jute import fields, multi, records
from znoded.jute.fields import Record
from znoded.jute.ops import Op
from znoded.jute.records import Acl, ClientInfo, ErrorReply
from znoded.jute.stat import Stat

ALL_RECORDS: list[type[Record]] = [
    value
    for value in (vars(records) | vars(multi)).values()
    if isinstance(value, type) and issubclass(value, Record) and value is not Record
]

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
byte_strings = st.none() | st.binary(max_size=40)
string_vectors = st.none() | st.lists(st.binary(max_size=12), max_size=5).map(tuple)
acls = st.builds(Acl, ints, byte_strings, byte_strings)
stats = st.builds(Stat, longs, longs, longs, longs, ints, ints, ints, longs, ints, ints, longs)
client_infos = st.builds(ClientInfo, byte_strings, byte_strings)

_FIELDS: list[tuple[object, st.SearchStrategy[Any]]] = [
    (fields.Int, ints),
    (fields.Long, longs),
    (fields.Boolean, st.booleans()),
    (fields.TrailingBoolean, st.none() | st.booleans()),
    (fields.Buffer, byte_strings),
    (fields.UString, byte_strings),
    (fields.Strings, string_vectors),
    (fields.StatField, stats),
    (records.Acls, st.none() | st.lists(acls, max_size=4).map(tuple)),
    (records.ClientInfos, st.none() | st.lists(client_infos, max_size=4).map(tuple)),
]

MULTI_WRITES: Mapping[Op, str] = {
    Op.CREATE: "CreateRequest",
    Op.DELETE: "DeleteRequest",
    Op.SET_DATA: "SetDataRequest",
    Op.CHECK: "CheckRequest",
    Op.CREATE2: "CreateRequest",
    Op.CREATE_CONTAINER: "CreateRequest",
    Op.CREATE_TTL: "CreateTtlRequest",
}
MULTI_WRITE_RESULTS: Mapping[Op, str] = {
    Op.CREATE: "CreateReply",
    Op.DELETE: "EmptyRecord",
    Op.SET_DATA: "StatReply",
    Op.CHECK: "EmptyRecord",
    Op.CREATE2: "Create2Reply",
    Op.ERROR: "ErrorReply",
}
MULTI_READS: Mapping[Op, str] = {Op.GET_DATA: "PathWatchRequest", Op.GET_CHILDREN: "PathWatchRequest"}
MULTI_READ_RESULTS: Mapping[Op, str] = {
    Op.GET_DATA: "GetDataReply",
    Op.GET_CHILDREN: "GetChildrenReply",
    Op.ERROR: "ErrorReply",
}
_MULTIS: Mapping[str, Mapping[Op, str]] = {
    "MultiRequest": MULTI_WRITES,
    "MultiReply": MULTI_WRITE_RESULTS,
    "MultiReadRequest": MULTI_READS,
    "MultiReadReply": MULTI_READ_RESULTS,
}


def records_of(cls: type[Record]) -> st.SearchStrategy[Record]:
    """Any valid record of the class."""
    if cls.__name__ in _MULTIS:
        return st.builds(cls, _multi_items(_MULTIS[cls.__name__]))
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, *[_values_of(hints[name]) for name in cls.__annotations__])


def _values_of(hint: object) -> st.SearchStrategy[Any]:
    return next(strategy for declared, strategy in _FIELDS if declared == hint)


def _multi_items(allowed: Mapping[Op, str]) -> st.SearchStrategy[Any]:
    pairs = [st.tuples(st.just(op), _multi_item(getattr(records, name))) for op, name in allowed.items()]
    return st.lists(st.one_of(pairs), max_size=5).map(tuple)


def _multi_item(cls: type[Record]) -> st.SearchStrategy[Record]:
    if cls is records.CreateRequest:
        acl_vectors = st.none() | st.lists(acls, max_size=2).map(tuple)
        return st.builds(cls, byte_strings, byte_strings, acl_vectors, st.integers(0, 4))
    if cls is ErrorReply:
        return st.builds(cls, ints)
    return records_of(cls)


any_record = st.sampled_from(ALL_RECORDS).flatmap(records_of)
