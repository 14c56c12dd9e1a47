"""The disk of a simulated member: real files in memory, a log thread and a checkpoint thread that the world drives.

What was given to the log and is not written yet is lost in a crash, but for the beginning of the record that was being
written, now and then.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from tests.simulation.world import Process
from znoded.zab_raft.files import Files
from znoded.zab_raft.log import Batch, Log


class TornRecord(Exception):
    """The machine stopped within a write. `is_whole`: what was missing is what was there before, as zeros may be."""

    def __init__(self, is_whole: bool) -> None:
        self.is_whole = is_whole


class QuickFiles(Files):
    """Files on a file system in memory: nothing there has to be synced. `torn_bytes` is what the next write leaves."""

    def __init__(self) -> None:
        self.torn_bytes: int | None = None

    def sync(self, descriptor: int) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def write_synced(self, descriptor: int, offset: int, pieces: Sequence[bytes]) -> None:
        if self.torn_bytes is not None:
            record = b"".join(pieces)
            self.write(descriptor, offset, [record[: self.torn_bytes]])
            raise TornRecord(os.pread(descriptor, len(record), offset) == record)
        self.write(descriptor, offset, pieces)


class Disk:
    """How one member's disk behaves just now."""

    def __init__(self) -> None:
        self.files = QuickFiles()
        self.write_s = 0.002
        self.is_full = False
        self.fails = False


class WorldLogThread:
    """The log thread of one process. `on_durable(batch)` is called as soon as a record is on the disk."""

    def __init__(
        self,
        process: Process,
        disk: Disk,
        on_durable: Callable[[Batch], None],
        log: Log,
        reactor: object,
        on_synced: Callable[[Batch], None],
        on_writable: Callable[[bool], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.on_writable = on_writable
        self.on_synced = on_synced
        self.log = log
        self._process = process
        self._disk = disk
        self._on_durable = on_durable
        self._on_fatal = on_fatal
        self._waiting: deque[Batch] = deque()
        self._is_writing = False
        self._is_over = False
        self._stopped: Deferred[None] | None = None

    def start(self) -> None:
        self.log.prepare()

    def append(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self.go_on()

    def forget(self, index: int) -> None:
        if not self._is_over:
            self.log.forget(index)

    def stop(self) -> Deferred[None]:
        if not self._waiting or self._disk.is_full or self._is_over:
            self._close()
            return succeed(None)
        self._stopped = Deferred()
        return self._stopped

    def crash(self, torn_share: float | None) -> None:
        """The process ends. The oldest record that waits may be on the disk by a part of it."""
        if self._is_over:
            return
        if self._waiting and torn_share is not None:
            batch = self._waiting[0]
            self._disk.files.torn_bytes = int((len(batch.payload) + 16) * torn_share)
            try:
                self.log.append(batch)
            except TornRecord as torn:
                if torn.is_whole:
                    self._on_durable(batch)
            self._disk.files.torn_bytes = None
        self._close()

    def go_on(self) -> None:
        """Write what waits, unless that is being done or there is no room."""
        if self._waiting and not self._is_writing and not self._disk.is_full:
            self._is_writing = True
            delay_s = self._disk.write_s * self._process.world.chance.uniform(0.2, 2.0)
            self._process.at(delay_s, self._write, f"{self._process.name} writes")

    def _write(self) -> None:
        self._is_writing = False
        if self._is_over or self._disk.is_full:
            return
        if self._disk.fails:
            self._is_over = True
            self.log.close()
            self._on_fatal(OSError(errno.EIO, "the disk fails"))
            return
        batch = self._waiting.popleft()
        self.log.append(batch)
        if not self.log.has_spare:
            self.log.prepare()
        self._on_durable(batch)
        self._process.at(0, partial(self._report, batch), f"{self._process.name} wrote")
        self.go_on()

    def _report(self, batch: Batch) -> None:
        self.on_synced(batch)
        if self._stopped and not self._waiting:
            self._close()
            stopped, self._stopped = self._stopped, None
            stopped.callback(None)

    def _close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.log.close()


class WorldPool:
    """The thread of one process that stores checkpoints: what it is to do is done a little later, all at once."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def callInThreadWithCallback(
        self, on_result: Callable[[bool, Any], None], call: Callable[..., Any], *arguments: Any
    ) -> None:
        delay_s = self._process.world.chance.uniform(0.001, 0.05)
        self._process.at(delay_s, partial(self._work, on_result, call, arguments), f"{self._process.name} pool")

    def _work(self, on_result: Callable[[bool, Any], None], call: Callable[..., Any], arguments: Any) -> None:
        try:
            result = call(*arguments)
        except Exception:
            on_result(False, Failure())
        else:
            on_result(True, result)
