"""The pages of the admin listener put together."""

from __future__ import annotations

from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import Site

from znoded.admin.commands import Commands
from znoded.admin.health import Health, Readiness
from znoded.admin.metrics import Metrics
from znoded.admin.view import MemberView
from znoded.garbage_collection import GarbageCollection


class AdminSite(Site):
    """Keeps no access log: probes ask every few seconds."""

    noisy = False
    displayTracebacks = False

    def log(self, request: Request) -> None:
        """Say nothing about a request."""


def admin_site(member: MemberView, garbage: GarbageCollection) -> AdminSite:
    """Every page of a member's admin listener."""
    root = Resource()
    root.putChild(b"healthz", Health())  # type: ignore[no-untyped-call]
    root.putChild(b"readyz", Readiness(member))
    root.putChild(b"metrics", Metrics(member, garbage))
    root.putChild(b"commands", Commands(member))
    return AdminSite(root)  # type: ignore[no-untyped-call]
