"""Streaming a checkpoint to a member that lags: read in a thread, in small slices, and sent as the member takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from znoded.jute.primitives import JuteError
from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.increment import give_way
from znoded.zab_raft.peers.connection import DelayedCall
from znoded.zab_raft.peers.dialler import Dialled
from znoded.zab_raft.peers.link import Backoff
from znoded.zab_raft.peers.snapshot_wire import (
    Part,
    decode_position,
    decode_stored,
    encode_chunk,
    encode_header,
    encode_part,
    part_of,
)

#: About so much is in a chunk.
CHUNK_BYTES = 256 << 10
#: So many chunks may be on their way and not stored yet.
WINDOW_CHUNKS = 16
SLICE_ITEMS = 128
ANSWER_BYTES_LIMIT = 4096
QUEUE_BYTES_LIMIT = 64 << 20
#: Without a sign of progress.
GIVE_UP_S = 20.0

log = Logger()


class SnapshotSource(Protocol):
    """A read transaction of a checkpoint. Used by one thread at a time, and closed by whom it was given to."""

    index: int
    term: int

    def tables(self) -> list[bytes]:
        """The names of all stored tables."""

    def items(self, table: bytes, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next items of a table, at most `count`, in the order of their keys, behind the key `after`."""

    def close(self) -> None:
        """End the transaction."""


class StreamEvents(Protocol):
    """What a stream tells."""

    def snapshot_progressed(self, raft_id: int) -> None: ...

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None: ...


class ChunkReader:
    """Reads a source from behind a key of a table on, table by table. Blocks, and runs in a thread."""

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source
        self._tables = sorted(source.tables())
        self._count = 1
        self.seek(b"", b"")

    def seek(self, table: bytes, key: bytes) -> None:
        """Go on behind this key; the beginning is two empty ones."""
        self._left = [each for each in self._tables if each >= table]
        self._key = key

    def next(self) -> bytes | None:
        """The next chunk as a frame; None behind the last one."""
        while self._left:
            items = self._items()
            if items:
                self._key = items[-1][0]
                return encode_chunk(self._left[0], items)
            self._left.pop(0)
            self._key = b""
        return None

    def _items(self) -> list[tuple[bytes, bytes]]:
        """About a chunk's worth; a slice's size follows that of the items before it, which are alike in a table."""
        items: list[tuple[bytes, bytes]] = []
        size_bytes, key = 0, self._key
        while size_bytes < CHUNK_BYTES:
            slice_ = self._source.items(self._left[0], key, self._count)
            if not slice_:
                break
            slice_bytes = sum([len(key) + len(value) for key, value in slice_])
            self._count = max(1, min(2 * self._count, SLICE_ITEMS, CHUNK_BYTES * len(slice_) // (slice_bytes + 1)))
            items += slice_
            size_bytes += slice_bytes
            key = slice_[-1][0]
            give_way()
        return items


class SnapshotStream:
    """One checkpoint on its way to one member. A lost connection is made again, and the stream goes on.

    `dial` makes a connection for it. `source` is closed here. `bytes_per_second` 0 is as fast as it goes.
    """

    def __init__(
        self,
        reactor: Any,
        pool: ThreadPool,
        dial: Callable[[], Deferred[Dialled]],
        message: InstallSnapshot,
        source: SnapshotSource,
        bytes_per_second: int,
        events: StreamEvents,
        random: Callable[[], float],
    ) -> None:
        self._reactor = reactor
        self._pool = pool
        self._dial = dial
        self._message = message
        self._source = source
        self._bytes_per_second = bytes_per_second
        self._events = events
        self._backoff = Backoff(random)
        self._reader: ChunkReader | None = None
        self._connection: Dialled | None = None
        self._dialling: Deferred[Any] | None = None
        self._pause: DelayedCall | None = None
        self._position = (b"", b"")  # where the member had come to when it was connected last
        self._seek: tuple[bytes, bytes] | None = None
        self._reading = False
        self._read_all = False
        self._sent = self._stored = 0
        self._next_send_s = 0.0
        self._over = False
        self._deadline = reactor.callLater(GIVE_UP_S, self._give_up)

    def start(self) -> None:
        """Dial, and stream until it is there."""
        self._pause = None
        self._dialling = self._dial()
        self._dialling.addCallbacks(self._opened, self._try_again)

    def stop(self) -> None:
        """Give it up; nothing is told."""
        if self._over:
            return
        self._over = True
        for call in (self._pause, self._deadline):
            if call is not None and call.active():
                call.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            self._connection.close()
        if not self._reading:
            self._source.close()

    def _opened(self, connection: Dialled) -> None:
        self._dialling = None
        self._connection = connection
        self._seek, self._read_all = None, True  # nothing is read before the member has said from where on
        connection.open(QUEUE_BYTES_LIMIT, ANSWER_BYTES_LIMIT, self._answered)
        connection.on_ended = lambda by_other: self._lost()
        connection.send(encode_header(self._message))

    def _answered(self, payload: bytes) -> None:
        part = part_of(payload)
        if part is Part.POSITION:
            self._seek, self._read_all = decode_position(payload), False
            self._sent = self._stored = 0
            if self._seek != self._position:  # a member that can store nothing gives the same one each time
                self._position = self._seek
                self._progressed()
            else:
                self._events.snapshot_progressed(self._message.to)
                self._pump()
        elif part is Part.STORED:
            self._stored = decode_stored(payload)
            self._progressed()
        elif part is Part.DONE:
            self._finish(True)
        elif part is Part.REFUSED:
            log.info("member {raft_id} takes no snapshot: {why}", raft_id=self._message.to, why=payload[1:])
            self._finish(False)
        else:
            raise JuteError(f"{part.name} where it does not belong in a snapshot")

    def _progressed(self) -> None:
        self._backoff.reset()
        self._deadline.reset(GIVE_UP_S)
        self._events.snapshot_progressed(self._message.to)
        self._pump()

    def _pump(self) -> None:
        """Read the next chunk, if the member takes it already and the rate allows it."""
        if self._connection is None or self._over or self._reading or self._read_all:
            return
        if self._sent - self._stored >= WINDOW_CHUNKS:
            return
        if self._pause is not None and self._pause.active():
            return
        wait_s = self._next_send_s - self._reactor.seconds()
        if wait_s > 0:
            self._pause = self._reactor.callLater(wait_s, self._pump)
            return
        self._reading = True
        seek, self._seek = self._seek, None
        reading = deferToThreadPool(self._reactor, self._pool, self._read, seek)
        reading.addCallbacks(self._was_read, self._read_failed)

    def _read(self, seek: tuple[bytes, bytes] | None) -> bytes | None:
        if self._reader is None:
            self._reader = ChunkReader(self._source)
        if seek is not None:
            self._reader.seek(*seek)
        return self._reader.next()

    def _was_read(self, chunk: bytes | None) -> None:
        self._reading = False
        if self._over:
            self._source.close()
            return
        if self._connection is None or self._read_all or self._seek is not None:
            self._pump()  # it was for a connection that is lost
        elif chunk is None:
            self._read_all = True
            self._connection.send(encode_part(Part.END))
        else:
            self._sent += 1
            self._connection.send(chunk)
            if self._bytes_per_second:
                now_s = self._reactor.seconds()
                self._next_send_s = max(now_s, self._next_send_s) + len(chunk) / self._bytes_per_second
            self._pump()

    def _read_failed(self, failure: Failure) -> None:
        self._reading = False
        if self._over:
            self._source.close()
            return
        log.failure("the checkpoint for member {raft_id} cannot be read", failure, raft_id=self._message.to)
        self._finish(False)

    def _lost(self) -> None:
        self._connection = None
        if not self._over:
            self._try_again()

    def _try_again(self, failure: Failure | None = None) -> None:
        self._dialling = None
        if self._over:
            return
        if self._pause is not None and self._pause.active():
            self._pause.cancel()
        self._pause = self._reactor.callLater(self._backoff.next_s(), self.start)

    def _give_up(self) -> None:
        log.warn("the snapshot for member {raft_id} makes no progress: given up", raft_id=self._message.to)
        self._finish(False)

    def _finish(self, delivered: bool) -> None:
        self.stop()
        self._events.snapshot_finished(self._message.to, delivered)
