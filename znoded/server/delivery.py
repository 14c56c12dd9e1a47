"""What becomes of committed commands: apply each to the tree, answer its client, tell the watchers.

Notifications of a change are queued before the reply of the write that caused it, and before any reply that could show
the new state; each connection touched by a batch is flushed once, at its end.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.server.connection import OPEN, ClientConnection
from znoded.server.replies import REPLY, REPLY_HEADER_BYTES, notification_frame, reply_frame
from znoded.tree.acl import Identity, allowed
from znoded.tree.commands import ATTACH, DECIDED_RECONFIG, EXPIRY_SEQUENCE, HEAD, TXN

if TYPE_CHECKING:
    from znoded.server.member import Member

log = Logger()

REPLY_BYTES = REPLY.size
SESSION_MOVED = int(ErrorCode.SESSION_MOVED)
#: Where the op of a command begins: its first byte is 0xFF for the internal ones, which are negative.
OP_OFFSET = struct.calcsize(">qqqq")
#: Those of them that answer a connection's request.
ANSWERS = (DECIDED_RECONFIG, TXN)


class Delivery:
    """Applies batches of commands for one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._to_flush: list[ClientConnection] = []
        #: By session, the connections whose clients were too slow to be told all that their last write let be answered.
        self.lagging: dict[int, ClientConnection] = {}
        #: Called after each batch, where somebody follows what is applied.
        self.applied: Callable[[], None] | None = None

    def apply_batch(self, first_zxid: int, commands: list[bytes]) -> None:
        """Apply commands that follow each other in the log, and send what comes of them."""
        member = self._member
        tree = member.tree
        apply = tree.apply
        events = tree.events
        watchers = member.watches.watchers
        find = member.sessions.get
        answer_waiting = member.pipeline.answer_waiting
        to_flush = self._to_flush
        pack = REPLY.pack
        lagging = self.lagging
        for zxid, command in enumerate(commands, first_zxid):
            if lagging:
                self._catch_up(command)
            session_id, attach, sequence, error, body = apply(zxid, command)
            if watchers:
                self._notify(zxid)
            events.clear()
            if command[OP_OFFSET] == 0xFF and self._changed_session(command, session_id, attach, sequence, error):
                continue
            live = find(session_id)
            if live is None or live.attach != attach:
                continue  # its connection is gone, and with it whoever waits for the answer
            connection = live.connection
            if connection is None or connection.state is not OPEN:
                continue
            if error == SESSION_MOVED:
                if sequence > connection.answered_sequence:
                    connection.abort()
                continue  # or a repetition: a command goes to the next leader again until it is applied here
            pending = connection.pending
            if not pending:
                continue
            # The oldest write of this connection was applied: answer it, and what waited for it.
            xid, _, connection.last_received = pending.popleft()
            connection.out.append(pack(REPLY_HEADER_BYTES + len(body), xid, zxid, error) + body)
            connection.out_bytes += REPLY_BYTES + len(body)
            connection.answered_sequence = sequence
            connection.writes_answered += 1
            if not connection.touched:
                connection.touched = True
                to_flush.append(connection)
            if pending and pending[0][1] is not None:
                try:
                    answer_waiting(connection)
                except Exception:
                    self._failed(connection)
        self.flush()
        if self.applied is not None:
            self.applied()

    def _catch_up(self, command: bytes) -> None:
        """Answer the reads that its session sent before this command: they must not see what it does."""
        connection = self.lagging.get(HEAD.unpack_from(command)[1]) if len(command) >= HEAD.size else None
        if connection is None:
            return
        try:
            self._member.pipeline.answer_waiting(connection, despite_block=True)
        except Exception:
            self._failed(connection)

    def _failed(self, connection: ClientConnection) -> None:
        """An error while one client was answered, which is ours, ends its connection and touches nobody else."""
        log.failure("a connection is closed because answering it failed")
        connection.abort()

    def flush_later(self, connection: ClientConnection) -> None:
        """Have the connection flushed, and read from again if it waited for this, at the end of the batch."""
        if not connection.touched:
            connection.touched = True
            self._to_flush.append(connection)

    def flush(self) -> None:
        """Send what the batch made."""
        touched, self._to_flush = self._to_flush, []
        now = time.monotonic()
        zxid = self._member.tree.zxid
        count_answers = self._member.stats.answered
        for connection in touched:
            connection.touched = False
            answered = connection.writes_answered
            if answered:
                connection.writes_answered = 0
                latency_ms = (now - connection.last_received) * 1000
                connection.last_zxid = zxid
                connection.stats.answered(answered, latency_ms)
                count_answers(answered, latency_ms)
            if not connection.pending and connection.waits_for_writes:
                connection.waits_for_writes = False
                self._member.turns.wait(connection)
            try:
                connection.flush()
                connection.forget_waiting_bytes()
                if not connection.is_reading:
                    connection.go_on()
            except Exception:
                self._failed(connection)

    def _notify(self, zxid: int) -> None:
        """Queue the notifications of one change: one per event and watcher, if the watcher may read the node."""
        watches = self._member.watches
        tree = self._member.tree
        for event_type, path, acl in tree.events:
            told = watches.fire(event_type, path)
            if not told:
                continue
            frame = notification_frame(zxid, event_type, path)
            verdicts: dict[tuple[Identity, ...], bool] = {}  # an ACL can be long, and most watchers are alike
            for watcher in told:
                if acl is not None:
                    identities = watcher.identities
                    if identities not in verdicts:
                        verdicts[identities] = allowed(acl, Perm.READ, identities)
                    if not verdicts[identities]:
                        continue
                watcher.notify(frame)
                if not watcher.touched:
                    self.flush_later(watcher)

    def _changed_session(self, command: bytes, session_id: int, attach: int, sequence: int, error: int) -> bool:
        """Whether this was about a session, and not about znodes."""
        op: int = HEAD.unpack_from(command)[4]
        if op == Op.CREATE_SESSION:
            self._member.handshake.session_created(session_id, attach, error)
        elif op == ATTACH:
            self._member.handshake.session_attached(session_id, attach, error)
        elif op == Op.CLOSE_SESSION and session_id in self._member.tree.sessions:
            # The decision to expire it was overtaken: somebody had come back for it.
            live = self._member.sessions.get(session_id)
            if live is not None and live.closing:
                self._member.sessions.reopen([live])
                for connection in (live.connection, live.former):
                    if connection is not None:
                        self.flush_later(connection)  # which reads on
        elif op == Op.CLOSE_SESSION:
            self._session_ended(session_id, attach, sequence, error)
        return op not in ANSWERS

    def _session_ended(self, session_id: int, attach: int, sequence: int, error: int) -> None:
        """Answer the client that closed its session; one whose session expired is closed mutely, as ZooKeeper does."""
        member = self._member
        live = member.sessions.remove(session_id)
        if live is not None and live.closing and sequence == EXPIRY_SEQUENCE:
            member.sessions.expired_count += 1
        if live is not None and live.former is not None:
            live.former.abort()
        if live is None or live.connection is None:
            return
        connection = live.connection
        if sequence == EXPIRY_SEQUENCE or connection.attach != attach:
            connection.abort()
        elif not connection.has_ended:
            if connection.pending:
                xid, _, _ = connection.pending.popleft()
                connection.put(reply_frame(xid, member.zxid, error))
            connection.finish()
