"""The pages of the admin listener put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.web.http import FORBIDDEN, NOT_FOUND, Request
from twisted.web.resource import Resource
from twisted.web.server import Site

from znoded.admin.api.metrics import ApiCollector
from znoded.admin.backup import BackUp, Backup
from znoded.admin.commands import Commands
from znoded.admin.health import Health, LookAtReadiness, Readiness
from znoded.admin.hosts import is_known
from znoded.admin.members import AskMembers, Members
from znoded.admin.metrics import Metrics
from znoded.admin.view import WordSource
from znoded.garbage_collection import GarbageCollection

if TYPE_CHECKING:
    from znoded.admin.api.site import ApiSite


class Pages(Resource):
    """The root; what has no page leads to the list of pages."""

    def getChild(self, path: bytes, request: Request) -> Resource:
        """What there is under a name that no page has."""
        return self

    def render(self, request: Request) -> bytes:
        """Name the pages there are."""
        request.setResponseCode(NOT_FOUND)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        names = ", ".join(f"/{name.decode()}" for name in self.listStaticNames())  # type: ignore[no-untyped-call]
        return f"No such page. There are {names}; POST to /backup.\n".encode()


class ForbiddenPage(Resource):
    """Answers what a page in a browser had its browser ask."""

    isLeaf = True

    def render(self, request: Request) -> bytes:
        """Say why, to whoever is no page."""
        request.setResponseCode(FORBIDDEN)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        return b"Use the address of this listener, or localhost, and no page of a browser to POST.\n"


class AdminSite(Site):
    """Keeps no access log: probes ask every few seconds. As it asks for no password, it answers no strange page."""

    noisy = False
    displayTracebacks = False

    def getResourceFor(self, request: Any) -> Resource:
        """The page that is asked for, unless it is another page that has its reader's browser ask."""
        hosts = request.requestHeaders.getRawHeaders(b"host", ())
        is_posted_by_page = request.method == b"POST" and request.requestHeaders.hasHeader(b"origin")
        if is_posted_by_page or not is_known(hosts, (), request.getHost()):
            return ForbiddenPage()  # type: ignore[no-untyped-call]
        found: Resource = super().getResourceFor(request)  # type: ignore[no-untyped-call]
        return found

    def log(self, request: Request) -> None:
        """Say nothing about a request."""


def admin_site(
    words: WordSource,
    garbage: GarbageCollection,
    readiness: LookAtReadiness,
    back_up: BackUp,
    members: AskMembers | None = None,
    api: Callable[[], ApiSite | None] = lambda: None,
) -> AdminSite:
    """Every page of a member's admin listener. `members` is None for a member that stands alone.

    `api` gives the native API, None as long as it is not served.
    """
    root = Pages()  # type: ignore[no-untyped-call]
    root.putChild(b"healthz", Health())  # type: ignore[no-untyped-call]
    root.putChild(b"readyz", Readiness(readiness))
    root.putChild(b"metrics", Metrics(words, garbage, ApiCollector(api)))
    root.putChild(b"commands", Commands(words))
    root.putChild(b"backup", Backup(back_up))
    if members is not None:
        root.putChild(b"members", Members(members))
    return AdminSite(root)  # type: ignore[no-untyped-call]
