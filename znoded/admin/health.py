"""/healthz: the process runs. /readyz: clients are answered. A probe reads the status, a person the text."""

from __future__ import annotations

from twisted.web.http import SERVICE_UNAVAILABLE
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource

from znoded.admin.view import WordSource, is_serving


class Health(Resource):
    """200 whenever it is asked: a reactor that hangs does not answer at all."""

    isLeaf = True

    def render_GET(self, request: IRequest) -> bytes:
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        return b"ok\n"


class Readiness(Resource):
    """200 while clients are answered, 503 while the member starts or stops."""

    isLeaf = True

    def __init__(self, words: WordSource) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._words = words

    def render_GET(self, request: IRequest) -> bytes:
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        if is_serving(self._words):
            return b"ready\n"
        request.setResponseCode(SERVICE_UNAVAILABLE)
        return b"not ready: the member is starting or stopping\n"
