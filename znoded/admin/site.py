"""The pages of the admin listener put together."""

from __future__ import annotations

from twisted.web.http import Request
from twisted.web.pages import notFound
from twisted.web.resource import IResource, Resource
from twisted.web.server import Site

from znoded.admin.commands import Commands
from znoded.admin.health import Health, Readiness
from znoded.admin.metrics import Metrics
from znoded.admin.view import WordSource
from znoded.garbage_collection import GarbageCollection


class Pages(Resource):
    """The root; whatever has no page leads to the list of pages."""

    def getChild(self, path: bytes, request: Request) -> IResource:
        """What there is under a name that no page has."""
        return notFound("No such page", "There are /healthz, /readyz, /metrics and /commands.")


class AdminSite(Site):
    """Keeps no access log: probes ask every few seconds."""

    noisy = False
    displayTracebacks = False

    def log(self, request: Request) -> None:
        """Say nothing about a request."""


def admin_site(words: WordSource, garbage: GarbageCollection) -> AdminSite:
    """Every page of a member's admin listener."""
    root = Pages()  # type: ignore[no-untyped-call]
    root.putChild(b"healthz", Health())  # type: ignore[no-untyped-call]
    root.putChild(b"readyz", Readiness(words))
    root.putChild(b"metrics", Metrics(words, garbage))
    root.putChild(b"commands", Commands(words))
    return AdminSite(root)  # type: ignore[no-untyped-call]
