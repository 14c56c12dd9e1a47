"""The feed: what is applied, once in order, to all who watch.

Streams that watch the same are a group. A change is looked up by its path and the paths above it, encoded once for each
form in which somebody wants it, and the bytes are shared by the streams of a group: each has only a place in the
group's queue. They are written to in turns, so that ten thousand of them do not stand before everybody else.

However much is applied at a time, a client that reads is not cut: before the queue of a group is full, all its streams
have a turn. A stream that asks for the past, or whose member took over another's state, first catches up from the
history, up to where the feed is, and then joins its group: no change is told twice and none is left out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from znoded.admin.api import errors
from znoded.admin.api.backend import Backend
from znoded.admin.api.groups import Group
from znoded.admin.api.lines import EncodedChange, EncodedRevision
from znoded.admin.api.past import Past
from znoded.admin.api.unread import Unread
from znoded.admin.api.waiting import RETRY_S
from znoded.tree.history import Change, Compacted
from znoded.tree.history_segment import Unreadable

if TYPE_CHECKING:
    from znoded.admin.api.streams import Stream

log = Logger()

#: What one turn may take before everybody else has theirs.
TURN_S = 0.005
#: Changes read from the history at a time.
CHANGES = 500
TICK_S = 1.0
#: Ticks between progress lines.
PROGRESS_TICKS = 10


class Feed:
    """Drives the streams of one member."""

    def __init__(self, backend: Backend, unread: Unread) -> None:
        self.backend = backend
        self.unread = unread
        self.past = Past(backend.history, unread)
        #: Up to this revision, all changes are in the queues of the groups.
        self.position = 0
        self._groups: dict[object, Group] = {}
        self._by_path: dict[bytes, dict[Group, None]] = {}
        #: The groups with lines in their queues.
        self.unwritten: dict[Group, None] = {}
        self._ready: deque[Stream] = deque()
        self._is_running = False
        #: Whether the streams have their turn before more is put into the queues.
        self._is_held_up = False
        self._is_advancing_later = False
        self._ticks = 0
        self._timer = LoopingCall(self._tick)
        self._timer.clock = backend.reactor

    def start(self) -> None:
        """Begin with what is applied from now on."""
        self.position = self.backend.revision
        self.backend.waiting.woken.append(self.advance)
        self._timer.start(TICK_S, now=False)

    def stop(self) -> None:
        """End all streams."""
        if self._timer.running:
            self._timer.stop()
        self._end_all(errors.stopping())

    def __len__(self) -> int:
        return sum(len(group.streams) for group in self._groups.values())

    @property
    def lag(self) -> int:
        """How many revisions the stream that is furthest behind has yet to be told of."""
        positions = (stream.reached for group in self._groups.values() for stream in group.streams)
        return self.backend.revision - min(positions, default=self.backend.revision)

    # ---- streams and their groups

    def join(self, stream: Stream, key: object, make: Callable[[], Group]) -> Group:
        """Add a stream to the group of this key, which `make` makes if there is none."""
        group = self._groups.get(key)
        if group is None:
            self.advance()
            group = self._groups[key] = make()
            self._by_path.setdefault(group.path, {})[group] = None
        group.streams[stream] = None
        return group

    def leave(self, stream: Stream, key: object) -> None:
        """A stream ended; a group without streams is forgotten."""
        group = self._groups.get(key)
        if group is None or stream not in group.streams:
            return
        del group.streams[stream]
        if not group.streams:
            group.forget_written()
            self.unwritten.pop(group, None)
            del self._groups[key]
            del self._by_path[group.path][group]
            if not self._by_path[group.path]:
                del self._by_path[group.path]

    def write_later(self, stream: Stream) -> None:
        """Give a stream its turn."""
        if not stream.is_ready:
            stream.is_ready = True
            self._ready.append(stream)
            self._run_later()

    def _run_later(self) -> None:
        if not self._is_running:
            self._is_running = True
            self.backend.reactor.callLater(0, self._run)

    def _run(self) -> None:
        """One turn: write to the streams that stand in front."""
        self._is_running = False
        end_s = time.monotonic() + TURN_S
        while self._ready:
            stream = self._ready.popleft()
            stream.is_ready = False
            try:
                stream.write()
            except Exception:
                log.failure("a stream is closed because writing to it failed")
                stream.end(errors.internal())
            if time.monotonic() > end_s:
                break
        if self._ready:
            self._run_later()
        else:
            self.unwritten = {group: None for group in self.unwritten if not group.forget_written()}
            if self._is_held_up:
                self._is_held_up = False
                self.advance()

    # ---- changes

    def advance(self) -> None:
        """Put what was applied into the queues; the rest in the next turn, if it is much."""
        if not self._groups:
            self.position = self.backend.revision
            return
        if self._is_held_up:
            return
        end_s = time.monotonic() + TURN_S
        touched: dict[Group, None] = {}
        wait_s = 0.0
        while self.position < self.backend.revision:
            try:
                changes = self.backend.history.changes(self.position, self.backend.revision, CHANGES)
            except Compacted:
                # The state was replaced by a newer one, with a shorter history.
                self.position = self.backend.revision
                for group in list(self._groups.values()):  # some of whose streams may end
                    group.catch_up()
                break
            except Unreadable:
                wait_s = RETRY_S
                break
            self.position = self._queue(changes, touched, end_s) if changes else self.backend.revision
            if self._is_held_up or time.monotonic() > end_s:
                break
        for group in touched:
            group.changed(self.position)
        if self.position < self.backend.revision and not (self._is_held_up or self._is_advancing_later):
            self._is_advancing_later = True
            self.backend.reactor.callLater(wait_s, self._go_on)

    def _go_on(self) -> None:
        self._is_advancing_later = False
        self.advance()

    def _queue(self, changes: list[Change], touched: dict[Group, None], end_s: float) -> int:
        """Queue changes, as long as there is time: the last revision that was."""
        revision = 0
        for revision, of_revision in groupby(changes, attrgetter("revision")):
            encoded = EncodedRevision(revision, of_revision)
            hits: dict[Group, list[EncodedChange]] = {}
            for change in encoded.changes:
                for group in self._watching(change.path):
                    hits.setdefault(group, []).append(change)
            for group, encoded_changes in hits.items():
                group.queue(encoded, encoded_changes)
                touched[group] = None
            self._is_held_up = bool(self._ready) and any(group.is_half_full for group in hits)
            if self._is_held_up or time.monotonic() > end_s:
                break
        return revision

    def _watching(self, path: bytes) -> Iterator[Group]:
        """The groups that watch a path, or all below one above it."""
        yield from self._by_path.get(path, ())
        end = path.rfind(b"/")
        while end > 0:
            yield from (group for group in self._by_path.get(path[:end], ()) if group.is_prefix)
            end = path.rfind(b"/", 0, end)
        if path != b"/":
            yield from (group for group in self._by_path.get(b"/", ()) if group.is_prefix)

    # ---- the clock

    def _tick(self) -> None:
        member = self.backend.member
        if member.turns_clients_away:
            self._end_all(errors.not_leader())
            return
        self.advance()
        self.past.forget_unused()
        self._ticks += 1
        for group in list(self._groups.values()):
            if self._ticks % PROGRESS_TICKS == 0:
                group.progress(self.position)
            group.cut_slow()

    def _end_all(self, error: errors.ApiError) -> None:
        for group in list(self._groups.values()):
            for stream in list(group.streams):
                stream.end(error)
