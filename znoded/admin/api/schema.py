"""Checks requests by the OpenAPI document that is served. So what is documented and what is taken cannot drift apart.

Of JSON Schema it knows what the document uses; a test sees to that. Every value is bounded by the document.

It is no library because `jsonschema` fills in no defaults, says of a wrong op in a transaction only that no alternative
takes it, and not which field is wrong, and would hold the reactor for more than a millisecond to check a transaction of
three writes, where this takes some tens of microseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from znoded.admin.api.errors import bad_request

Schema = Mapping[str, Any]

#: Keywords that say nothing about what is valid.
ANNOTATIONS = frozenset(("description", "default", "contentEncoding"))
CHECKED = frozenset(
    (
        "$ref", "additionalProperties", "anyOf", "enum", "items", "maxItems", "maxLength", "maximum", "minItems",
        "minLength", "minimum", "oneOf", "pattern", "properties", "required", "type",
    )
)  # fmt: skip
_PYTHON_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}

DOCUMENT_BYTES = files(__package__).joinpath("openapi.json").read_bytes()
DOCUMENT: Schema = json.loads(DOCUMENT_BYTES)


def resolved(schema: Schema) -> Schema:
    """The schema that a $ref leads to."""
    while "$ref" in schema:
        node: Any = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        schema = node
    return schema


def check(schema: Schema, value: Any, at: str) -> Any:
    """The value with its defaults, if the schema takes it. `at` says where it is. Raises bad_request."""
    schema = resolved(schema)
    if "oneOf" in schema:
        return check(_chosen(schema["oneOf"], value, at), value, at)
    kind: type[Any] = _PYTHON_TYPES[schema["type"]]
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # to JSON Schema, 1.0 is an integer
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(at, value, f"of type {schema['type']}")
    if "enum" in schema and value not in schema["enum"]:
        raise _wrong(at, value, f"one of {', '.join(schema['enum'])}")
    if kind is dict:
        return _checked_object(schema, value, at)
    if kind is list:
        _check_length(schema, len(value), "Items", at)
        return [check(schema["items"], item, f"{at}[{index}]") for index, item in enumerate(value)]
    if kind is str:
        _check_text(schema, value, at)
    elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise _wrong(at, value, f"a number from {schema['minimum']} to {schema['maximum']}")
    return value


def _checked_object(schema: Schema, value: dict[str, Any], at: str) -> dict[str, Any]:
    properties = schema["properties"]
    for name in value:
        if name not in properties:
            raise bad_request(f"there is no field {shown(name)}; there are {', '.join(properties)}", at)
    for name in schema["required"]:
        if name not in value:
            raise bad_request(f"the field {name} is missing", at)
    prefix = f"{at}." if at else ""
    checked = {}
    for name, property_schema in properties.items():
        if name in value:
            checked[name] = check(property_schema, value[name], prefix + name)
        elif "default" in (full := resolved(property_schema)):
            checked[name] = full["default"]
    return checked


def _chosen(alternatives: list[Schema], value: Any, at: str) -> Schema:
    """The alternative that a value's first field names; all of them have an enum of one there."""
    name = next(iter(alternatives[0]["properties"]))
    choices = {alternative["properties"][name]["enum"][0]: alternative for alternative in alternatives}
    chosen = value.get(name) if isinstance(value, dict) else None
    if not isinstance(chosen, str) or chosen not in choices:
        raise bad_request(f"it must be an object whose field {name} is one of {', '.join(choices)}", at)
    return choices[chosen]


def _check_text(schema: Schema, value: str, at: str) -> None:
    _check_length(schema, len(value), "Length", at)
    if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        raise _wrong(at, value, f"a text that matches {schema['pattern']}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(at, ascii(value), "a text without lone surrogates") from None


def _check_length(schema: Schema, length: int, what: str, at: str) -> None:
    least, most = schema.get("min" + what, 0), schema.get("max" + what, length)
    if not least <= length <= most:
        raise bad_request(f"its length is {length}, and must be from {least} to {most}", at)


@lru_cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # As JSON Schema means it: $ is the end, and not also before a line feed at the end.
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))


def _wrong(at: str, value: object, expected: str) -> Exception:
    return bad_request(f"{shown(value)} is not right: it must be {expected}", at)


def shown(value: object) -> str:
    """A value as JSON, and not too long."""
    if isinstance(value, str):
        value = value[:80]
    elif isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)[:80]
