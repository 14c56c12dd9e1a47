"""`twistd znoded`: the command line, and the service made of it."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from znoded.admin.api.site import ApiSite
from znoded.admin.site import admin_site
from znoded.config import Config, ConfigError, load_toml, load_zoo_cfg, parse
from znoded.exit import exit_in_failure
from znoded.garbage_collection import GarbageCollection
from znoded.server.cell_member import CellMember
from znoded.server.listeners import with_backlog
from znoded.server.member import Member
from znoded.server.membership import told_members

if TYPE_CHECKING:
    from twisted.internet.interfaces import IListeningPort

log = Logger()

SWITCH_INTERVAL_S = 0.0005


class Options(usage.Options):
    """The command line of `twistd znoded`; what is given there wins over the configuration file.

    After parsing, `config` is the whole checked configuration and `notes` are lines to tell the operator at start.
    """

    synopsis = "[options]"
    longdesc = "A coordination service for ZooKeeper clients. Without options: one member, ./znoded-data, tcp:2181."
    optParameters = [
        ["config", "c", None, "TOML file with the configuration."],
        ["zoo-cfg", None, None, "A ZooKeeper's zoo.cfg, instead of a TOML file."],
        ["data-dir", "d", None, "Directory that holds all that is kept. [default: ./znoded-data]"],
        ["admin", None, None, "Endpoint for health, metrics and commands over HTTP, '' for none."],
        ["api", None, None, "Endpoint for the native API over HTTP."],
    ]
    config: Config

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.notes: list[str] = []
        self._client_endpoints: list[str] = []

    def opt_client(self, endpoint: str) -> None:
        """Endpoint for clients, such as tcp:2181:interface=127.0.0.1. May be given several times."""
        self._client_endpoints.append(endpoint)

    def postOptions(self) -> None:
        """Read and check the configuration; a bad one ends the process with its message, before anything starts."""
        if self["config"] and self["zoo-cfg"]:
            sys.exit("--config and --zoo-cfg are both given: give one of them")
        try:
            self._load()
        except ConfigError as error:
            sys.exit(str(error))

    def _load(self) -> None:
        overrides: dict[str, object] = {}
        if self["data-dir"] is not None:
            overrides["data_dir"] = self["data-dir"]
        if self._client_endpoints:
            overrides["client.listen"] = self._client_endpoints
        if self["admin"] is not None:
            overrides["admin.listen"] = self["admin"]
        if self["api"] is not None:
            overrides["api.listen"] = self["api"]
        if self["zoo-cfg"]:
            self.config, self.notes = load_zoo_cfg(self["zoo-cfg"], overrides)
        elif self["config"]:
            self.config = load_toml(self["config"], overrides)
        else:
            self.config = parse({}, overrides)


def makeService(options: Options) -> MultiService:
    """The service that runs one member and its admin listener."""
    from twisted.internet import reactor  # not at import: twistd may yet choose which

    # Twisted's timers follow the wall clock: they would stand still when it is set back, all fire when it is set on.
    reactor.seconds = time.monotonic  # type: ignore[method-assign]
    # A thread that comes back from a disk waits this long, at most, for a reactor that is busy.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    for note in options.notes:
        log.warn("{note}", note=note)
    service = MultiService()
    MemberService(options.config, reactor).setServiceParent(service)  # type: ignore[no-untyped-call]
    return service


class MemberService(Service):
    """Runs a member with its admin listener, and ends the process when the member cannot start."""

    def __init__(self, config: Config, reactor: Any) -> None:
        self._config = config
        self._reactor = reactor
        self._garbage = GarbageCollection(reactor)
        self._member: Member = CellMember(config, reactor) if config.cell.members else Member(config, reactor)
        self._admin_port: IListeningPort | None = None
        self._api: ApiSite | None = None
        self._api_port: IListeningPort | None = None
        self._starting: Deferred[None] | None = None

    def startService(self) -> None:
        """Begin to start; the reactor has to run before a failure can stop it."""
        super().startService()  # type: ignore[no-untyped-call]
        self._garbage.start()
        self._reactor.callWhenRunning(self._begin)

    def _begin(self) -> None:
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._failed)

    async def _start(self) -> None:
        """Health first, so that a long recovery can be watched; then the member."""
        if self._config.admin.listen:
            endpoint = serverFromString(self._reactor, self._config.admin.listen)
            member = self._member
            members = (
                partial(told_members, self._config.member, member.cell) if isinstance(member, CellMember) else None
            )
            site = admin_site(
                member.words, self._garbage, member.look_at_readiness, member.back_up, members, lambda: self._api
            )
            self._admin_port = await endpoint.listen(site)
        await self._member.start()
        if self._config.api.listen:
            self._api = ApiSite(self._member, self._reactor)
            self._api.start()
            endpoint = serverFromString(self._reactor, with_backlog(self._config.api.listen))
            self._api_port = await endpoint.listen(self._api)
        self._garbage.freeze()

    def _failed(self, failure: Failure) -> None:
        """Errors of the system and those with a class of their own say what is wrong; any other needs its traceback."""
        if failure.type.__module__ == "builtins" and not failure.check(OSError):
            log.failure("the member cannot start", failure)
        exit_in_failure(self._reactor, f"the member cannot start: {failure.getErrorMessage()}")

    async def _stop(self) -> None:
        if self._starting:
            await self._starting
        if self._api_port:
            await maybeDeferred(self._api_port.stopListening)
        if self._api:
            await self._api.stop()
        await maybeDeferred(self._member.stop)
        if self._admin_port:
            await maybeDeferred(self._admin_port.stopListening)
        self._garbage.stop()

    def stopService(self) -> Deferred[None]:
        """Send the API's clients elsewhere, let the member finish what it has begun, then close the admin listener."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())
