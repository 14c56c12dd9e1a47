"""POST /backup: a copy of what the member has now, made while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.http import INTERNAL_SERVER_ERROR
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

BackUp = Callable[[], Deferred[str]]
"""Makes a backup beside the data directory; fires with its path."""


class Backup(Resource):
    """Answers when the backup is there, with its path. Where it is put is not the asker's choice."""

    isLeaf = True

    def __init__(self, back_up: BackUp) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._back_up = back_up

    def render_POST(self, request: IRequest) -> int:
        request.setHeader(b"content-type", b"application/json")
        self._back_up().addCallbacks(
            lambda path: _finish(request, {"path": path, "error": None}),
            lambda failure: self._failed(request, failure),
        )
        return NOT_DONE_YET

    def _failed(self, request: IRequest, failure: Failure) -> None:
        request.setResponseCode(INTERNAL_SERVER_ERROR)
        _finish(request, {"path": None, "error": failure.getErrorMessage()})


def _finish(request: IRequest, answer: dict[str, str | None]) -> None:
    request.write(json.dumps(answer).encode() + b"\n")
    request.finish()
