"""Taking a snapshot from the leader: chunks in, from the reactor; into the incoming state, in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import lmdb
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from znoded.jute.primitives import JuteError
from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.peers.acceptor import Incoming
from znoded.zab_raft.peers.incoming_state import IncomingState
from znoded.zab_raft.peers.snapshot_wire import (
    Part,
    decode_header,
    encode_part,
    encode_position,
    encode_stored,
    part_of,
)
from znoded.zab_raft.peers.wire import FRAME_BYTES_LIMIT

ANSWERS_BYTES_LIMIT = 1 << 20
WAITING_BYTES_LIMIT = 4 * FRAME_BYTES_LIMIT

log = Logger()


class SnapshotTaker(Protocol):
    """The part of a `PeerHandler` that is about snapshots from the leader."""

    def wants_snapshot(self, message: InstallSnapshot) -> bool: ...

    def snapshot_arrived(self, message: InstallSnapshot, path: str) -> None: ...


class SnapshotReceiver:
    """One connection with a snapshot. The pool has one thread, which a receiver leaves before the next one enters."""

    def __init__(
        self,
        reactor: Any,
        pool: ThreadPool,
        connection: Incoming,
        raft_id: int,
        path: str,
        handler: SnapshotTaker,
    ) -> None:
        """`raft_id` is this member's, `path` the directory for what comes in."""
        self._reactor = reactor
        self._pool = pool
        self._connection = connection
        self._raft_id = raft_id
        self._path = path
        self._handler = handler
        self._message: InstallSnapshot | None = None
        self._state: IncomingState | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._stored = 0
        self._working = False
        self._at_end = False
        self._over = False
        connection.open(ANSWERS_BYTES_LIMIT, FRAME_BYTES_LIMIT, self._received)

    def stop(self) -> None:
        """Take no more; what is durable is kept for the next try."""
        if not self._over:
            self._over = True
            self._waiting.clear()
            self._connection.close()
            self._pool.callInThread(self._close)

    def _received(self, payload: bytes) -> None:
        part = part_of(payload)
        if self._message is None and part is Part.HEADER:
            self._begin(decode_header(payload))
        elif self._state is not None and not self._at_end and part is Part.CHUNK:
            self._waiting.append(payload)
            self._waiting_bytes += len(payload)
            if self._waiting_bytes > WAITING_BYTES_LIMIT:
                raise JuteError("more of a snapshot than was asked for")
            self._write()
        elif self._state is not None and not self._at_end and part is Part.END:
            self._at_end = True
            self._write()
        else:
            raise JuteError(f"{part.name} where it does not belong in a snapshot")

    def _begin(self, message: InstallSnapshot) -> None:
        sender = self._connection.hello.identity
        if (message.sender, message.to) != (sender.raft_id, self._raft_id):
            raise JuteError(f"a snapshot from {message.sender} for {message.to} came from {sender.raft_id}")
        self._message = message
        if not self._handler.wants_snapshot(message):
            self._connection.send(encode_part(Part.REFUSED, b"it is not wanted"))
            self._over = True
            self._connection.close_when_sent()
            return
        snapshot = message.snapshot
        log.info("member {number} sends the state as of index {index}", number=sender.number, index=snapshot.index)
        self._work(lambda: self._open(snapshot.index, snapshot.term, sender.incarnation), self._opened)

    def _opened(self) -> None:
        assert self._state is not None
        self._connection.send(encode_position(self._state.table, self._state.key))

    def _write(self) -> None:
        """Write all that waits, in one transaction, and then what came meanwhile."""
        if self._working or self._over:
            return
        if self._waiting:
            payloads, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._stored += len(payloads)
            state = cast(IncomingState, self._state)
            self._work(lambda: state.write(payloads), self._written)
        elif self._at_end:
            self._work(cast(IncomingState, self._state).finish, self._finished)

    def _written(self) -> None:
        self._connection.send(encode_stored(self._stored))
        self._write()

    def _finished(self) -> None:
        assert self._message is not None
        self._over = True
        self._connection.send(encode_part(Part.DONE))
        self._handler.snapshot_arrived(self._message, self._path)

    def _work(self, task: Callable[[], None], then: Callable[[], None]) -> None:
        self._working = True
        done = deferToThreadPool(self._reactor, self._pool, task)
        done.addCallbacks(lambda _: self._done(then), self._failed)

    def _done(self, then: Callable[[], None]) -> None:
        self._working = False
        if not self._over:
            then()

    def _failed(self, failure: Failure) -> None:
        self._working = False
        if self._over:
            return
        if failure.check(JuteError):
            self._connection.refuse(failure.getErrorMessage())
        elif failure.check(lmdb.Error, OSError):
            log.error("the snapshot cannot be stored in {path}: {error}", path=self._path, error=failure.value)
        else:
            log.failure("taking a snapshot failed", failure)
        self.stop()

    def _open(self, index: int, term: int, incarnation: bytes) -> None:
        self._state = IncomingState(self._path, index, term, incarnation)

    def _close(self) -> None:
        if self._state is not None:
            self._state.close()
