"""POST /backup: a copy of what the member has now, made while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.http import INTERNAL_SERVER_ERROR, Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

#: Makes a backup beside the data directory; fires with its path.
BackUp = Callable[[], Deferred[str]]
Answer = dict[str, str | None]


class Backup(Resource):
    """Answers when the backup is there, with its path. Where it is put is not the asker's choice."""

    isLeaf = True

    def __init__(self, back_up: BackUp) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._back_up = back_up

    def render_POST(self, request: Request) -> int:
        request.setHeader(b"content-type", b"application/json")
        ended = request.notifyFinish().addErrback(lambda _gone: None)
        self._back_up().addCallbacks(_made, _failed).addCallback(
            lambda answer: None if ended.called else _finish(request, answer)
        )
        return NOT_DONE_YET


def _made(path: str) -> Answer:
    return {"path": path, "error": None}


def _failed(failure: Failure) -> Answer:
    return {"path": None, "error": failure.getErrorMessage()}


def _finish(request: Request, answer: Answer) -> None:
    if answer["error"] is not None:
        request.setResponseCode(INTERNAL_SERVER_ERROR)
    request.write(json.dumps(answer).encode() + b"\n")
    request.finish()
