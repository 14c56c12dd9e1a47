"""GET /members: who the members of the cell are, how far each one is, and what it lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from twisted.web.http import SERVICE_UNAVAILABLE
from twisted.web.iweb import IRequest
from twisted.web.resource import Resource

#: The numbers of the member that is asked and of the leader (0: none is known), the term, a mapping for each member.
#: Or an `error`, why there is nothing to tell yet.
AskMembers = Callable[[], Mapping[str, object]]


class Members(Resource):
    """What the member that is asked knows; how far the others are, only the leader does."""

    isLeaf = True

    def __init__(self, members: AskMembers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._members = members

    def render_GET(self, request: IRequest) -> bytes:
        request.setHeader(b"content-type", b"application/json")
        told = self._members()
        if "error" in told:
            request.setResponseCode(SERVICE_UNAVAILABLE)
        return json.dumps(told, indent=2).encode() + b"\n"
