"""The HTTP site of the API: which operation is asked for, by whom, and whether it may be; the answers and errors.

Paths, methods and the fields of requests are those of the OpenAPI document: what is not in it is not answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from znoded.admin.api import errors
from znoded.admin.api.backend import Backend
from znoded.admin.api.connections import REQUEST_TIMEOUT_S, ApiChannel, ApiRequest
from znoded.admin.api.feed import Feed
from znoded.admin.api.identity import identities_of
from znoded.admin.api.items import Fields
from znoded.admin.api.lines import Form
from znoded.admin.api.lock_operations import LockOperations
from znoded.admin.api.locks import Locks
from znoded.admin.api.operations import Operations
from znoded.admin.api.schema import DOCUMENT, DOCUMENT_BYTES, Schema, check
from znoded.admin.api.sink import StreamSink
from znoded.admin.api.streams import LeaderStream, Stream, WatchStream
from znoded.admin.api.unread import Unread
from znoded.admin.hosts import is_known
from znoded.server.member import Member
from znoded.tree.acl import Identities

log = Logger()

Answer = Callable[[Fields, Identities], Awaitable[Fields]]
#: Requests may be this many times as large as the command that they become: base64, escapes, names of fields.
BODY_FACTOR = 3
#: A body of many parts takes long to read, and everybody waits; base64, of which there may be much, has no commas.
COMMAS_MOST = 100_000
#: What is counted as the result of a request beside the names of the errors, and as its operation if it has none.
SUCCESS, CLIENT_GONE, NO_OPERATION = "ok", "client_gone", "none"
#: How long a member that stops waits for those in line to leave it.
STOP_PATIENCE_S = 3.0


class ApiSite(Site):
    """The API of one member. Keeps no access log, and knows no tracebacks."""

    noisy = False
    displayTracebacks = False
    protocol = ApiChannel  # type: ignore[assignment]

    def __init__(self, member: Member, reactor: Any) -> None:
        self.backend = Backend(member, reactor)
        self.unread = Unread(reactor, member.limits.api_unread_bytes)
        self.feed = Feed(self.backend, self.unread)
        self._member = member
        self.value_limit_bytes = self.backend.value_limit_bytes
        self.body_limit_bytes = BODY_FACTOR * member.limits.frame_bytes
        self._connections: dict[str, int] = {}
        self.connections_count = 0
        #: How many were answered, by the operation (`none` if there is none for them) and what came of it.
        self.requests: Counter[tuple[str, str]] = Counter()
        #: The size of the bodies that are being received.
        self.bodies_bytes = 0
        self.answering: dict[Deferred[Any], None] = {}
        root = Resource()
        self.locks = Locks(self.backend)
        root.putChild(b"v1", Api(self))
        super().__init__(  # type: ignore[no-untyped-call]
            root, ApiRequest, timeout=REQUEST_TIMEOUT_S, reactor=reactor, parsePOSTFormSubmission=False
        )

    def start(self) -> None:
        """Begin to serve; the member serves."""
        self.backend.start()
        self.feed.start()

    async def stop(self) -> None:
        """Send everybody elsewhere; who stood in line for a lock leaves it first."""
        self.feed.stop()
        for answering in list(self.answering):
            answering.cancel()
        await self.backend.idle(STOP_PATIENCE_S)
        self.backend.stop()

    def enter(self, host: str) -> bool:
        """Count a connection in, if there is room for it."""
        count = self._connections.get(host, 0)
        is_full = self.connections_count >= self._member.api_connections
        if is_full or 0 < self._member.limits.api_connections_per_address <= count:
            return False
        self.connections_count += 1
        self._connections[host] = count + 1
        return True

    def leave(self, host: str) -> None:
        """Count one out that was let in."""
        self.connections_count -= 1
        self._connections[host] -= 1
        if not self._connections[host]:
            del self._connections[host]

    def acceptableProtocols(self) -> list[bytes]:
        """No HTTP/2: a stream needs its connection for itself."""
        return [b"http/1.1"]

    def log(self, request: Any) -> None:
        """Say nothing about a request."""


class Api(Resource):
    """All paths of the document."""

    isLeaf = True

    def __init__(self, site: ApiSite) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._site = site
        self._backend = site.backend
        self._feed = site.feed
        self._locks = site.locks
        operations, lock_operations = Operations(self._backend), LockOperations(self._backend, self._locks)
        by_id = {"openapi": None, "watch": self._watch, "election_observe": self._observe}
        self._routes: dict[str, dict[str, tuple[Schema, Any]]] = {}
        for path, methods in DOCUMENT["paths"].items():
            for method, described in methods.items():
                name = described["operationId"]
                act = by_id.get(name) or getattr(operations, name, None) or getattr(lock_operations, name, None)
                self._routes.setdefault(path, {})[method.upper()] = (described, act)

    def render(self, request: Any) -> Any:
        """Answer any request, whatever its method."""
        config = self._backend.member.config
        operation = NO_OPERATION
        try:
            hosts = request.requestHeaders.getRawHeaders(b"host", ())
            if not is_known(hosts, config.api.hosts, request.getHost()):
                raise errors.wrong_host()
            described, act = self._route(request)
            operation = described["operationId"]
            if act is None:
                self._count(operation, SUCCESS)
                return _reply(request, DOCUMENT_BYTES)
            host = request.channel.host
            identities = identities_of(request.getHeader(b"authorization"), host, config)
            asked = _asked(request, described)
        except errors.ApiError as error:
            self._count(operation, error.code)
            return _reply_error(request, error)
        answering: Deferred[str] = Deferred.fromCoroutine(self._answer(request, act, asked, identities))
        self._site.answering[answering] = None
        answering.addCallback(self._answered, answering, operation)
        if not request.finished:
            request.notifyFinish().addErrback(lambda _lost: answering.cancel())
        return NOT_DONE_YET

    def _answered(self, result: str, answering: Deferred[Any], operation: str) -> None:
        del self._site.answering[answering]
        self._count(operation, result)

    def _count(self, operation: str, result: str) -> None:
        self._site.requests[operation, result] += 1

    def _route(self, request: Any) -> tuple[Schema, Any]:
        path = request.path.decode(errors="replace")
        methods = self._routes.get(path)
        if methods is None:
            raise errors.no_such_page(path)
        method = request.method.decode(errors="replace")
        if method not in methods:
            allowed = ", ".join(methods)
            request.setHeader(b"allow", allowed.encode())
            raise errors.no_such_method(method, allowed)
        return methods[method]

    async def _answer(self, request: Any, act: Any, asked: Fields, identities: Identities) -> str:
        """Carry it out and answer: what came of it. It is cancelled when its client is gone, or the member stops."""
        try:
            if act in (self._watch, self._observe):
                await act(request, asked, identities)
            else:
                answer = await act(asked, identities)
                _finish(request, _reply(request, json.dumps(answer).encode() + b"\n"))
            return SUCCESS
        except errors.ApiError as refusal:
            error = refusal
        except CancelledError:
            if request.is_gone:
                return CLIENT_GONE
            error = errors.stopping()
        except Exception:
            log.failure("a request of the API failed")
            error = errors.internal()
        _finish(request, _reply_error(request, error))
        return error.code

    # ---- streams

    async def _watch(self, request: Any, asked: Fields, identities: Identities) -> None:
        if ("key" in asked) == ("prefix" in asked):
            raise errors.bad_request("give either key or prefix", "key")
        path = (asked["prefix"] if "prefix" in asked else asked["key"]).encode()
        # A browser goes on with the URL that it began with, so the header is what counts.
        after = asked.get("after") if (last := _last_event_id(request)) is None else last
        await self._backend.fresh()
        if after is not None and after > self._backend.revision:
            raise errors.future_revision(self._backend.revision)
        if after is not None and after < self._backend.history.oldest:
            raise errors.compacted(self._backend.history.oldest)
        form = _form(request)
        self._begin(request, form, WatchStream(self._feed, form, path, "prefix" in asked, after, identities))

    async def _observe(self, request: Any, asked: Fields, identities: Identities) -> None:
        election = asked["election"].encode()
        await self._backend.fresh()
        await self._locks.queues.of(election)  # so that it is known when the stream begins
        self._locks.require_readable(election, identities)
        form = _form(request)
        self._begin(request, form, LeaderStream(self._feed, self._locks, form, election, identities))

    def _begin(self, request: Any, form: Form, stream: Stream) -> None:
        request.setHeader(b"content-type", form.value.encode())
        request.setHeader(b"cache-control", b"no-store")
        request.setHeader(b"connection", b"close")
        request.notifyFinish().addBoth(lambda _gone: stream.end())
        stream.open(StreamSink(request, stream, self._feed.unread))


def _asked(request: Any, described: Schema) -> Fields:
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


def _last_event_id(request: Any) -> int | None:
    text: bytes = request.getHeader(b"last-event-id") or b""
    return int(text) if text.isdigit() and len(text) < 20 else None


def _form(request: Any) -> Form:
    """NDJSON, or server-sent events for who asks for them. Raises bad_request for a client without chunks."""
    if request.clientproto != b"HTTP/1.1":
        raise errors.bad_request("a stream needs HTTP/1.1")
    accept: bytes = request.getHeader(b"accept") or b""
    return Form.SSE if Form.SSE.value.encode() in accept else Form.NDJSON


def _reply(request: Any, body: bytes) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    return body


def _reply_error(request: Any, error: errors.ApiError) -> bytes:
    request.setResponseCode(error.status)
    if error.status == 401:
        request.setHeader(b"www-authenticate", b'Basic realm="znoded"')
    return _reply(request, json.dumps({"error": error.body}).encode() + b"\n")


def _finish(request: Any, body: bytes) -> None:
    request.setHeader(b"content-length", str(len(body)).encode())
    request.write(body)
    request.finish()
