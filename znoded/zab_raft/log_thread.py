"""The one thread that writes the log: batches in, completions out, so that the reactor never waits for a disk.

Both threads want the interpreter's lock, and each time one has to wait for the other costs as much as several requests.
So a busy reactor is not told that a batch is durable: it looks at every turn. Only when it found nothing, and may be
asleep, the thread wakes it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from znoded.zab_raft.errors import DiskFull
from znoded.zab_raft.log import Batch, Log

_log = Logger()

#: How long to wait at a full disk before the next segment is tried again.
RETRY_INTERVAL_S = 1.0


class Reactor(Protocol):
    """The part of a Twisted reactor that a replica needs."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> Any: ...

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> Any: ...


class LogThread:
    """Owns the log from `start` until `stop` has fired.

    Its callbacks run in the reactor's thread: `on_synced(batch)` for each batch, in order, once it is durable;
    `on_writable(flag)` when the disk is full, and when it has room again; `on_fatal(error)` when the log cannot be
    trusted any more. After that nothing is written and no batch is acknowledged: a failed sync may have lost pages, and
    the next one would report success without them.
    """

    def __init__(
        self,
        log: Log,
        reactor: Reactor,
        on_synced: Callable[[Batch], None],
        on_writable: Callable[[bool], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._reactor = reactor
        self._call_in_reactor = reactor.callFromThread
        self._on_synced = on_synced
        self._on_writable = on_writable
        self._on_fatal = on_fatal
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._under_way = 0  # batches appended and not reported
        self._durable: deque[Batch] = deque()  # batches not reported yet
        self._looks_again = False
        self._forgettable = 0
        self._may_sleep = False  # the reactor found nothing, and has to be woken
        self._stopping = threading.Event()
        self._writable = True
        self._abandoned = False
        self._stopped: Deferred[None] = Deferred()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    def start(self) -> None:
        """Begin to write; the log must not be used by anybody else from here on."""
        self._thread.start()

    def append(self, batch: Batch) -> None:
        """Have the batch made durable."""
        self._under_way += 1
        self._queue.put(partial(self._append, batch))
        self._look_again()

    def forget(self, index: int) -> None:
        """Have the segments removed that hold nothing behind `index`."""
        self._forgettable = index
        self._queue.put(self._forget)

    def stop(self) -> Deferred[None]:
        """Fires when all that was asked for is done, or given up at a full disk, and the log is closed."""
        self._stopping.set()
        self._queue.put(None)
        return self._stopped

    def _look_again(self) -> None:
        if not self._looks_again:
            self._looks_again = True
            self._reactor.callLater(0, self._look)

    def _look(self) -> None:
        """Report what is durable, in the reactor's thread; look again at its next turn, or be woken."""
        self._looks_again = self._may_sleep = False
        if not self._durable:
            self._may_sleep = self._under_way > 0
            if not self._durable:  # looked at once more: the thread may have been done just before
                return
        while self._durable:
            self._under_way -= 1
            self._on_synced(self._durable.popleft())
        if self._under_way:
            self._look_again()

    def _run(self) -> None:
        try:
            self._prepare()
            while not self._abandoned and (task := self._next()) is not None:
                task()
            self._log.close()
        except BaseException as error:
            self._call_in_reactor(self._failed, error)
        finally:
            self._call_in_reactor(self._ended)

    def _failed(self, error: BaseException) -> None:
        self._look()
        self._on_fatal(error)

    def _ended(self) -> None:
        self._look()
        self._stopped.callback(None)

    def _next(self) -> Callable[[], None] | None:
        """The next thing to do. While nothing else is, the next segment is made ready; at a full disk, now and then."""
        fills = self._log.has_unfilled_spare
        try:
            return self._queue.get(block=not fills, timeout=None if self._writable else RETRY_INTERVAL_S)
        except queue.Empty:
            return self._log.fill_spare if fills else self._prepare

    def _append(self, batch: Batch) -> None:
        while True:
            try:
                self._log.append(batch)
                break
            except DiskFull:
                self._report(False)
                self._forget()  # what stands behind this in the queue may be what makes room
                if self._stopping.wait(RETRY_INTERVAL_S):
                    self._abandoned = True  # a later batch might fit, and must not be there without this one
                    return
        self._durable.append(batch)
        if self._may_sleep:
            self._may_sleep = False
            self._call_in_reactor(self._look)
        if not self._log.has_spare:
            self._prepare()

    def _forget(self) -> None:
        self._log.forget(self._forgettable)

    def _prepare(self) -> None:
        try:
            self._log.prepare()
        except DiskFull:
            self._report(False)
        else:
            self._report(True)

    def _report(self, writable: bool) -> None:
        if writable != self._writable:
            self._writable = writable
            self._call_in_reactor(self._on_writable, writable)


def tell_room(has_room: bool, path: str) -> None:
    """Tell the operator that the disk with the log in `path` is full, or that it has room again."""
    if has_room:
        _log.info("The log has room again: writes are accepted")
    else:
        _log.error("The disk is full, {path} has no room: writes are refused", path=path)
