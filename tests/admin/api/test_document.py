"""The OpenAPI document, and that requests are taken exactly as it says."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admin.api.house import ApiHouse
from znoded.admin.api import dispatch, errors, schema
from znoded.admin.api.errors import ApiError
from znoded.jute.errors import ErrorCode

Fields = dict[str, Any]


def schemas(node: Any) -> Iterator[Fields]:
    """Every schema of the document."""
    for path in node["paths"].values():
        for described in path.values():
            for content in described.get("requestBody", {}).get("content", {}).values():
                yield from parts(content["schema"])
            for parameter in described.get("parameters", ()):
                yield from parts(parameter["schema"])
    for each in node["components"]["schemas"].values():
        yield from parts(each)


def parts(node: Fields) -> Iterator[Fields]:
    yield node
    for name in ("oneOf", "anyOf"):
        for each in node.get(name, ()):
            yield from parts(each)
    for each in node.get("properties", {}).values():
        yield from parts(each)
    if "items" in node:
        yield from parts(node["items"])


def test_it_uses_only_what_the_checks_know() -> None:
    for each in schemas(schema.DOCUMENT):
        assert set(each) <= schema.CHECKED | schema.ANNOTATIONS


def test_every_input_has_a_bound() -> None:
    for path in schema.DOCUMENT["paths"].values():
        for described in path.values():
            for content in described.get("requestBody", {}).get("content", {}).values():
                for each in parts(content["schema"]):
                    assert_bounded(each)
            for parameter in described.get("parameters", ()):
                assert_bounded(parameter["schema"])


def assert_bounded(each: Fields) -> None:
    if "$ref" in each:
        for part in parts(schema.resolved(each)):  # type: ignore[arg-type]
            assert_bounded(part)
    elif each.get("type") == "string":
        assert {"maxLength", "enum"} & set(each) or "{" in each.get("pattern", "")
    elif each.get("type") == "integer":
        assert {"minimum", "maximum"} <= set(each)
    elif each.get("type") == "array":
        assert "maxItems" in each


def test_every_error_is_in_it() -> None:
    named = set(schema.DOCUMENT["components"]["schemas"]["ErrorBody"]["properties"]["code"]["enum"])
    source = inspect.getsource(errors)
    assert named == set(re.findall(r'(?:ApiError|_conflict)\(\s*"(\w+)"', source))


def test_every_refusal_of_the_tree_has_a_name() -> None:
    for error in ErrorCode:
        assert errors.of_refusal(error, "/a").body["action"]


def test_it_is_served(house: ApiHouse) -> None:
    assert house.done("openapi.json") == json.loads(schema.DOCUMENT_BYTES)


def test_an_operation_that_nothing_carries_out_is_found_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DOCUMENT", {"paths": {"/v1/new": {"get": {"operationId": "brand_new"}}}})
    with pytest.raises(LookupError, match="nothing carries out brand_new"):
        ApiHouse()


def test_what_it_does_not_have_is_not_answered(house: ApiHouse) -> None:
    assert house.refused("nothing") == "no_such_page"
    assert house.refused("get/", {}) == "no_such_page"
    assert house.refused("/") == house.refused("/healthz") == "no_such_page"
    client = house.dial()
    client.send("get", {"key": "/"}, method="PUT")
    house.settle()
    assert b"\r\nAllow: POST\r\n" in client.transport.value()
    assert client.answer()[1]["error"]["code"] == "no_such_method"


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({}, ""),
        ({"key": 1}, "key"),
        ({"key": None}, "key"),
        ({"key": ""}, "key"),
        ({"key": "a"}, "key"),
        ({"key": "/" * 2049}, "key"),
        ({"key": "/\ud800"}, "key"),
        ({"key": "/", "revision": 0}, "revision"),
        ({"key": "/", "revision": True}, "revision"),
        ({"key": "/", "revision": 1.5}, "revision"),
        ({"key": "/", "revision": 1 << 63}, "revision"),
        ({"key": "/", "consistency": "past"}, "consistency"),
        ({"key": "/", "other": 1}, ""),
    ],
)
def test_a_field_that_is_wrong_is_named(house: ApiHouse, fields: Fields, at: str) -> None:
    status, content = house.ask("get", fields)
    assert (status, content["error"]["code"], content["error"]["field"]) == (400, "bad_request", at)


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"then": [{"op": "put", "key": "/a", "value": "x"}]}, "then[0].value"),
        ({"then": [{"op": "put", "key": "/a", "value": "QQ==\n"}]}, "then[0].value"),
        ({"then": [{"op": "fly", "key": "/a"}]}, "then[0]"),
        ({"then": [{"op": ["put"]}]}, "then[0]"),
        ({"then": ["put"]}, "then[0]"),
        ({"then": [{"op": "get", "key": "/a"}] * 129}, "then"),
        ({"then": {}}, "then"),
        ({"compare": [{"target": "version", "key": "/", "is": "~", "number": 0}]}, "compare[0].is"),
        ({"session": "x" * 31}, "session"),
    ],
)  # fmt: skip
def test_a_field_deep_inside_is_named(house: ApiHouse, fields: Fields, at: str) -> None:
    content = house.ask("txn", fields)[1]
    assert content["error"]["field"] == at


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"NaN", b'{"key": NaN}', b"\xff", b"[" * 100_000,
        b'{"key": "/", "revision": 1' + b"0" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_refused(house: ApiHouse, body: bytes) -> None:
    assert house.refused("get", body=body) == "bad_request"


def test_a_body_of_very_many_parts_is_not_read(house: ApiHouse) -> None:
    status, content = house.ask("get", body=b"[" + b"[]," * 100_001 + b"[]]")
    assert (status, content["error"]["message"]) == (400, "the body has too many parts")


def test_a_body_of_another_type_is_refused(house: ApiHouse) -> None:
    assert house.refused("get", body=b'{"key": "/"}', headers={"Content-Type": "text/plain"}) == "bad_request"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_taken_or_refused(value: Any) -> None:
    described = schema.DOCUMENT["paths"]["/v1/txn"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    with suppress(ApiError):
        schema.check(described, value, "")
