"""/healthz: the process runs. /readyz: clients are answered. A probe reads the status, a person the text."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.web.http import SERVICE_UNAVAILABLE, Request
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

#: Fires soon, with what keeps the member from answering clients; empty if nothing does.
LookAtReadiness = Callable[[], Deferred[str]]


class Health(Resource):
    """200 whenever it is asked: a reactor that hangs does not answer at all."""

    isLeaf = True

    def render_GET(self, request: IRequest) -> bytes:
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        return b"ok\n"


class Readiness(Resource):
    """200 while clients are answered, 503 while something is missing for that."""

    isLeaf = True

    def __init__(self, look: LookAtReadiness) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._look = look

    def render_GET(self, request: Request) -> int:
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        ended = request.notifyFinish().addErrback(lambda _gone: None)
        self._look().addCallback(lambda missing: None if ended.called else _answer(request, missing))
        return NOT_DONE_YET


def _answer(request: Request, missing: str) -> None:
    if missing:
        request.setResponseCode(SERVICE_UNAVAILABLE)
    request.write(f"not ready: {missing}\n".encode() if missing else b"ready\n")
    request.finish()
