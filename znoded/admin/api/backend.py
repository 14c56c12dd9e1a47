"""What the API asks of its member: fresh reads, and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, TimeoutError
from twisted.logger import Logger

from znoded.admin.api import errors
from znoded.admin.api.waiting import PATIENCE_S, RETRY_S, Waiting
from znoded.jute.primitives import Reader
from znoded.server.local_session import Busy, LocalSession, NotWritten, OutcomeUnknown
from znoded.server.member import Member
from znoded.tree.acl import Identities
from znoded.tree.commands import encode_identities
from znoded.tree.history import History
from znoded.tree.txn_records import NONE_FAILED, TxnReply, TxnRequest

log = Logger()

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
        self.waiting = Waiting(member, reactor)

    def start(self) -> None:
        """Begin to write, and to be woken."""
        self._session.start()
        self.waiting.start()

    def stop(self) -> None:
        """Leave the member alone."""
        self.waiting.stop()
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
            await self.waiting.sleep(RETRY_S)

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
