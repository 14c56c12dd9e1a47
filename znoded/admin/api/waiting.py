"""Waiting for time to go by, and for what commands bring about; and work that goes on whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from znoded.admin.api import errors
from znoded.server.member import Member
from znoded.tree.tree import Tree

log = Logger()

#: How long a member tries before it says that it can't.
PATIENCE_S = 10.0
#: How soon it asks again for a leader that was not there.
RETRY_S = 0.05


class Waiting:
    """Those that wait for something at one member."""

    def __init__(self, member: Member, reactor: Any) -> None:
        self._member = member
        self._tree: Tree = member.tree
        self._reactor = reactor
        self._is_waking = False
        self._until: dict[Deferred[None], Callable[[], bool]] = {}
        self._gone: dict[bytes, dict[Deferred[None], None]] = {}
        self._work: dict[Deferred[Any], None] = {}
        #: Called when something was applied, at most once in a turn of the reactor.
        self.woken: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to be woken by what is applied."""
        self._member.delivery.applied = self._applied

    def stop(self) -> None:
        """Sleep on."""
        self._member.delivery.applied = None

    async def sleep(self, time_s: float) -> None:
        """Return after so long."""
        await deferLater(self._reactor, time_s)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when this holds after some command was applied. Raises outcome_unknown if that takes too long."""
        if holds():
            return
        done: Deferred[None] = Deferred()
        self._until[done] = holds
        done.addTimeout(PATIENCE_S, self._reactor)
        try:
            await done
        except TimeoutError:
            raise errors.outcome_unknown() from None
        finally:
            self._until.pop(done, None)

    async def until_any_gone(self, paths: tuple[bytes, ...], timeout_s: float) -> bool:
        """Wait until one of these znodes is deleted: whether one is."""
        if any(path not in self._tree.nodes for path in paths):
            return True
        done: Deferred[None] = Deferred()
        for path in paths:
            self._gone.setdefault(path, {})[done] = None
        done.addTimeout(max(timeout_s, 0), self._reactor)
        try:
            await done
        except TimeoutError:
            return False
        finally:
            for path in paths:
                self._leave(path, done)
        return True

    def _leave(self, path: bytes, done: Deferred[None]) -> None:
        waiters = self._gone.get(path, {})
        waiters.pop(done, None)
        if not waiters:
            self._gone.pop(path, None)

    def spawn(self, work: Coroutine[Any, Any, object]) -> Deferred[Any]:
        """Have it done, whoever asked for it."""
        working: Deferred[Any] = Deferred.fromCoroutine(work)
        self._work[working] = None
        working.addBoth(self._worked, working)
        return working

    def _worked(self, result: Any, working: Deferred[Any]) -> None:
        del self._work[working]
        if isinstance(result, Failure) and not result.check(CancelledError, errors.ApiError):
            log.failure("work of the API failed", result)

    async def for_work(self, working: Deferred[Any], timeout_s: float) -> bool:
        """Wait for what was spawned, not longer than this: whether it ended. If not, or if cancelled, it goes on."""
        done: Deferred[None] = Deferred()
        working.addBoth(lambda _result: None if done.called else done.callback(None))
        done.addTimeout(timeout_s, self._reactor)
        try:
            await done
        except TimeoutError:
            return False
        return True

    async def idle(self, timeout_s: float) -> None:
        """Wait until all that was spawned is done, but not longer than this."""
        deadline_s = self._reactor.seconds() + timeout_s
        while self._work and self._reactor.seconds() < deadline_s:
            await self.sleep(RETRY_S)

    def _applied(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._reactor.callLater(0, self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        for done, holds in list(self._until.items()):
            if holds() and self._until.pop(done, None) is not None:
                done.callback(None)
        nodes = self._tree.nodes
        for path in [path for path in self._gone if path not in nodes]:
            for done in list(self._gone.get(path, ())):
                if not done.called:
                    done.callback(None)
        for wake in self.woken:
            wake()
