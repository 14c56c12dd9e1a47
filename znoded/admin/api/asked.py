"""Reading a request: its fields as the OpenAPI document has them, and how a stream is wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from znoded.admin.api import errors
from znoded.admin.api.items import Fields
from znoded.admin.api.lines import Form
from znoded.admin.api.schema import Schema, check

#: A body of many parts takes long to read, and everybody waits; base64, of which there may be much, has no commas.
COMMAS_MOST = 100_000


def asked_of(request: Any, described: Schema) -> Fields:
    """The fields of a request, checked. Raises bad_request."""
    if "requestBody" not in described:
        return _checked_query(request, described.get("parameters", ()))
    content_type = (request.getHeader(b"content-type") or b"").partition(b";")[0].strip().lower()
    if content_type != b"application/json":
        # Which a page in a browser cannot send to a strange host without asking.
        raise errors.bad_request("the Content-Type must be application/json", "Content-Type")
    body: bytes = request.content.read()
    if body.count(b",") > COMMAS_MOST:
        raise errors.bad_request("the body has too many parts")
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise errors.bad_request(f"the body is not JSON: {error}") from None
    fields: Fields = check(described["requestBody"]["content"]["application/json"]["schema"], content, "")
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _checked_query(request: Any, parameters: Any) -> Fields:
    schemas: Mapping[str, Schema] = {parameter["name"]: parameter for parameter in parameters}
    fields: Fields = {}
    for raw_name, values in request.args.items():
        name = raw_name.decode(errors="replace")
        if name not in schemas:
            raise errors.bad_request(f"there is no parameter {name[:80]}", name[:80])
        if len(values) != 1:
            raise errors.bad_request("it is given more than once", name)
        try:
            text = values[0].decode()
        except UnicodeDecodeError:
            raise errors.bad_request("it is not UTF-8", name) from None
        schema = schemas[name]["schema"]
        is_number = schema.get("type") == "integer" and text.isascii() and text.isdigit() and len(text) < 20
        fields[name] = check(schema, int(text) if is_number else text, name)
    for name, parameter in schemas.items():
        if parameter["required"] and name not in fields:
            raise errors.bad_request("the parameter is missing", name)
    return fields


def last_event_id(request: Any) -> int | None:
    """Where a browser goes on, by itself."""
    text: bytes = request.getHeader(b"last-event-id") or b""
    return int(text) if text.isdigit() and len(text) < 20 else None


def form_of(request: Any) -> Form:
    """NDJSON, or server-sent events for who asks for them. Raises bad_request for a client without chunks."""
    if request.clientproto != b"HTTP/1.1":
        raise errors.bad_request("a stream needs HTTP/1.1")
    accept: bytes = request.getHeader(b"accept") or b""
    return Form.SSE if Form.SSE.value.encode() in accept else Form.NDJSON
