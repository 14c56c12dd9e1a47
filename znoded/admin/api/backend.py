"""What the API asks of its member: fresh reads, writes, sessions without a connection, and to be woken by changes."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.logger import Logger
from twisted.python.failure import Failure

from znoded.admin.api import errors
from znoded.jute.primitives import LONG, Reader
from znoded.server.local_session import Busy, LocalSession, NotWritten, OutcomeUnknown
from znoded.server.member import Member
from znoded.tree.acl import Identities
from znoded.tree.commands import encode_identities
from znoded.tree.history import History
from znoded.tree.proposals import close_unconnected
from znoded.tree.sessions import Session
from znoded.tree.txn_records import NONE_FAILED, TxnReply, TxnRequest

log = Logger()

#: How long a member tries before it says that it can't.
PATIENCE_S = 10.0
#: How soon it asks again for a leader that was not there.
RETRY_S = 0.05
#: A transaction has these bytes, and the identities, beside its record.
COMMAND_BYTES = 64


class Committed(NamedTuple):
    """A transaction that was carried out: its reply, and its revision."""

    reply: TxnReply
    revision: int


class Backend:
    """One member, as its API sees it."""

    def __init__(self, member: Member, reactor: Any) -> None:
        self.member = member
        self.tree = member.tree
        self.reactor = reactor
        self._session = LocalSession(member, reactor, int(PATIENCE_S * 1000))
        self._is_waking = False
        self._waiting: dict[Deferred[None], Callable[[], bool]] = {}
        self._work: dict[Deferred[Any], None] = {}
        self._gone: dict[bytes, dict[Deferred[None], None]] = {}
        #: Called when something was applied, at most once in a turn of the reactor.
        self.woken: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to write, and to be woken."""
        self._session.start()
        self.member.delivery.applied = self._applied

    def stop(self) -> None:
        """Leave the member alone."""
        self.member.delivery.applied = None
        self._session.stop()

    @property
    def revision(self) -> int:
        """The last one that is applied here."""
        return self.tree.zxid

    @property
    def value_limit_bytes(self) -> int:
        """What the keys and values of one transaction may have together."""
        return self.member.limits.frame_bytes - COMMAND_BYTES

    @property
    def history(self) -> History:
        """The changes that are kept."""
        return self.tree.history

    # ---- reads

    async def fresh(self) -> None:
        """Return when all that was committed before is applied here. Raises not_leader."""
        if not self.member.serving or self.member.turns_clients_away:
            raise errors.not_leader()
        gate = self.member.gate
        if gate is None:
            return
        deadline_s = self.reactor.seconds() + PATIENCE_S
        while not await self._confirmed(gate.confirm, deadline_s):
            if self.reactor.seconds() >= deadline_s:
                raise errors.not_leader()
            await self.sleep(RETRY_S)

    async def _confirmed(self, confirm: Callable[[Callable[[bool], None]], None], deadline_s: float) -> bool:
        done: Deferred[bool] = Deferred()
        confirm(lambda is_confirmed: None if done.called else done.callback(is_confirmed))
        done.addTimeout(max(deadline_s - self.reactor.seconds(), 0), self.reactor)
        try:
            return await done
        except TimeoutError:
            return False

    # ---- writes

    async def write(self, request: TxnRequest, identities: Identities) -> Committed:
        """Have a transaction carried out for who has these identities.

        Raises value_too_large, busy, not_leader, outcome_unknown, and what the tree refuses it for.
        """
        record = request.encode()
        encoded = encode_identities(identities)
        if len(record) > self.value_limit_bytes:
            raise errors.value_too_large(self.value_limit_bytes)
        if not self.member.replica.writable:
            raise errors.disk_full() if self.member.serving else errors.stopping()
        try:
            written = await self._session.write(record, encoded)
        except Busy:
            raise errors.busy() from None
        except NotWritten:
            raise errors.not_leader() from None
        except OutcomeUnknown:
            raise errors.outcome_unknown() from None
        if written.error:
            raise errors.of_refusal(written.error)
        reply = TxnReply.decode(Reader(written.body))
        if reply.failed != NONE_FAILED:
            ops = (request.then if reply.holds else request.otherwise) or ()
            key = (ops[reply.failed].path or b"").decode(errors="replace")
            raise errors.of_refusal(reply.err, key, reply.failed)
        return Committed(reply, written.zxid)

    # ---- sessions

    async def open_session(self, timeout_ms: int) -> Session:
        """A new session, kept alive by what is asked for in it."""
        config = self.member.config
        timeout_ms = min(max(timeout_ms, config.session_timeout_min_ms), config.session_timeout_max_ms)
        if not self.member.serving or self.member.turns_clients_away:
            raise errors.not_leader()
        if len(self.member.sessions) >= self.member.limits.sessions:
            raise errors.busy()
        session_id = self.member.handshake.open_unconnected(timeout_ms)
        if session_id is None:
            raise errors.disk_full()
        await self.until(lambda: session_id in self.tree.sessions)
        return self.tree.sessions[session_id]

    async def session(self, secret: str) -> Session:
        """The session that a secret opens; it was heard of just now. Raises session_expired."""
        session_id, password = _parse_secret(secret)
        if session_id not in self.tree.sessions:
            await self.fresh()
        session = self.tree.sessions.get(session_id)
        live = self.member.sessions.get(session_id)
        if session is None or live is None or not hmac.compare_digest(session.password, password):
            raise errors.session_expired()
        self.member.heard(live)
        return session

    async def close_session(self, session: Session) -> None:
        """End it; what it held is free then."""
        time_ms = int(time.time() * 1000)
        attach, sequence = session.attach, session.sequence
        if not self.member.propose(close_unconnected(time_ms, session.id, attach, sequence + 1)):
            raise errors.disk_full()
        # A socket client may have had it, and written: then the command was refused, and another is needed.
        await self.until(lambda: session.id not in self.tree.sessions or session.attach != attach)
        if session.id in self.tree.sessions:
            raise errors.outcome_unknown()

    # ---- time

    async def sleep(self, time_s: float) -> None:
        """Return after so long."""
        done: Deferred[None] = Deferred(lambda _done: timer.cancel())
        timer = self.reactor.callLater(time_s, done.callback, None)
        await done

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when this holds after some command was applied. Raises outcome_unknown if that takes too long."""
        if holds():
            return
        done: Deferred[None] = Deferred()
        self._waiting[done] = holds
        done.addTimeout(PATIENCE_S, self.reactor)
        try:
            await done
        except TimeoutError:
            raise errors.outcome_unknown() from None
        finally:
            self._waiting.pop(done, None)

    async def until_any_gone(self, paths: tuple[bytes, ...], timeout_s: float) -> bool:
        """Wait until one of these znodes is deleted: whether one is."""
        if any(path not in self.tree.nodes for path in paths):
            return True
        done: Deferred[None] = Deferred()
        for path in paths:
            self._gone.setdefault(path, {})[done] = None
        done.addTimeout(max(timeout_s, 0), self.reactor)
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

    async def idle(self, timeout_s: float) -> None:
        """Wait until all that was spawned is done, but not longer than this."""
        deadline_s = self.reactor.seconds() + timeout_s
        while self._work and self.reactor.seconds() < deadline_s:
            await self.sleep(RETRY_S)

    # ---- changes

    def _applied(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self.reactor.callLater(0, self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        for done, holds in list(self._waiting.items()):
            if holds() and self._waiting.pop(done, None) is not None:
                done.callback(None)
        nodes = self.tree.nodes
        for path in [path for path in self._gone if path not in nodes]:
            for done in list(self._gone.get(path, ())):
                if not done.called:
                    done.callback(None)
        for wake in self.woken:
            wake()


async def shielded(work: Deferred[Any]) -> None:
    """Wait for work that goes on if the wait is cancelled."""
    done: Deferred[None] = Deferred()
    work.addBoth(lambda _result: None if done.called else done.callback(None))
    await done


def secret_of(session: Session) -> str:
    """The secret that opens a session: its id and its password, which nobody can guess."""
    return base64.urlsafe_b64encode(LONG.pack(session.id) + session.password).decode()


def _parse_secret(secret: str) -> tuple[int, bytes]:
    content = base64.urlsafe_b64decode(secret)
    session_id: int = LONG.unpack(content[:8])[0]
    return session_id, content[8:]
