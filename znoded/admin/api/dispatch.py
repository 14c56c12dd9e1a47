"""Which operation is asked for, by whom, and whether it may be; the answers and errors.

Paths, methods and the fields of requests are those of the OpenAPI document: what is not in it is not answered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from znoded.admin.api import errors
from znoded.admin.api.asked import asked_of, form_of, last_event_id
from znoded.admin.api.identity import identities_of
from znoded.admin.api.items import Fields
from znoded.admin.api.lines import Form
from znoded.admin.api.lock_operations import LockOperations
from znoded.admin.api.observers import LeaderStream
from znoded.admin.api.operations import Operations
from znoded.admin.api.schema import DOCUMENT, DOCUMENT_BYTES, Schema
from znoded.admin.api.sink import StreamSink
from znoded.admin.api.streams import Stream, WatchStream
from znoded.admin.hosts import is_known
from znoded.tree.acl import Identities

if TYPE_CHECKING:
    from znoded.admin.api.site import ApiSite

log = Logger()

#: What is counted as the result of a request beside the names of the errors, and as its operation if it has none.
SUCCESS, CLIENT_GONE, NO_OPERATION = "ok", "client_gone", "none"


class Api(Resource):
    """All paths of the document. Raises LookupError if nothing carries out one of its operations."""

    isLeaf = True

    def __init__(self, site: ApiSite) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._site = site
        self._backend = site.backend
        self._feed = site.feed
        self._locks = site.locks
        operations, lock_operations = Operations(self._backend), LockOperations(self._backend, self._locks)
        by_id = {"openapi": self._openapi, "watch": self._watch, "election_observe": self._observe}
        self._routes: dict[str, dict[str, tuple[Schema, Any]]] = {}
        for path, methods in DOCUMENT["paths"].items():
            for method, described in methods.items():
                name = described["operationId"]
                act = by_id.get(name) or getattr(operations, name, None) or getattr(lock_operations, name, None)
                if act is None:
                    raise LookupError(f"nothing carries out {name}, an operation of the document")
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
            if act == self._openapi:
                self._count(operation, SUCCESS)
                return self._openapi(request)
            host = request.channel.host
            identities = identities_of(request.getHeader(b"authorization"), host, config)
            asked = asked_of(request, described)
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

    def _openapi(self, request: Any) -> bytes:
        """The document, whoever asks for it."""
        return _reply(request, DOCUMENT_BYTES)

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
            error = errors.stopping()
        except Exception:
            log.failure("a request of the API failed")
            error = errors.internal()
        if request.is_gone:
            return CLIENT_GONE
        _finish(request, _reply_error(request, error))
        return error.code

    # ---- streams

    async def _watch(self, request: Any, asked: Fields, identities: Identities) -> None:
        if ("key" in asked) == ("prefix" in asked):
            raise errors.bad_request("give either key or prefix", "key")
        path = (asked["prefix"] if "prefix" in asked else asked["key"]).encode()
        # A browser goes on with the URL that it began with, so the header is what counts.
        after = asked.get("after") if (last := last_event_id(request)) is None else last
        await self._backend.fresh()
        if after is not None and after > self._backend.revision:
            raise errors.future_revision(self._backend.revision)
        if after is not None and after < self._backend.history.oldest:
            raise errors.compacted(self._backend.history.oldest)
        form = form_of(request)
        self._begin(request, form, WatchStream(self._feed, form, path, "prefix" in asked, after, identities))

    async def _observe(self, request: Any, asked: Fields, identities: Identities) -> None:
        election = asked["election"].encode()
        await self._backend.fresh()
        await self._locks.queues.of(election)  # so that it is known when the stream begins
        self._locks.require_readable(election, identities)
        form = form_of(request)
        self._begin(request, form, LeaderStream(self._feed, self._locks, form, election, identities))

    def _begin(self, request: Any, form: Form, stream: Stream) -> None:
        request.setHeader(b"content-type", form.value.encode())
        request.setHeader(b"cache-control", b"no-store")
        request.setHeader(b"connection", b"close")
        request.notifyFinish().addBoth(lambda _gone: stream.end())
        stream.open(StreamSink(request, stream, self._feed.unread))


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
