"""A stream: one client that is told of changes for as long as it likes and reads."""

from __future__ import annotations

from typing import Any, Protocol

from znoded.admin.api import errors
from znoded.admin.api.feed import Feed
from znoded.admin.api.groups import ChangeGroup, Group
from znoded.admin.api.lines import ADDRESS_SCHEME, LAST_CHUNK, Form, line
from znoded.admin.api.waiting import RETRY_S
from znoded.tree.acl import Identities


class Sink(Protocol):
    """Where a stream's bytes go."""

    @property
    def blocked(self) -> bool:
        """Whether the client has not read what was sent before."""

    def send(self, data: bytes) -> None:
        """Write, at once if that is possible."""

    def finish(self) -> None:
        """Close when all that was sent is read, or after a while."""

    def abort(self) -> None:
        """Close, whatever was not read."""


class Stream:
    """Tells one client of the changes after a revision."""

    def __init__(self, feed: Feed, form: Form) -> None:
        self._feed = feed
        self._form = form
        self._sink: Any = None
        self._group: Group | None = None
        self._key: object = None
        self.is_ready = False
        #: Where the client is: it has all lines of its group before this one, ..
        self.next_line = 0
        #: .. and all changes up to this revision, while it catches up.
        self.position = 0
        #: .. of which the client had read everything up to this one, when it had last read everything.
        self._read = 0
        #: Whether it follows the queue of its group; if not, it reads the history.
        self.is_live = True
        self.stalled_ticks = 0
        self._has_ended = False

    @property
    def reached(self) -> int:
        """The revision up to which its client has been told everything, as far as can be known."""
        if self.is_blocked:
            return self._read
        is_up_to_date = self.is_live and self._group is not None and self.next_line == self._group.end
        return self._feed.position if is_up_to_date else self.position

    @property
    def is_blocked(self) -> bool:
        """Whether there is no use in a turn now: `resumed` asks for one."""
        return self._sink is None or self._sink.blocked

    def open(self, sink: Sink) -> None:
        """Begin to write."""
        self._sink = sink
        self._feed.write_later(self)

    def resumed(self) -> None:
        """The client has read what was sent."""
        self._feed.write_later(self)

    def write(self) -> None:
        """Send what there is for this client."""
        if self._has_ended or self.is_blocked or self._group is None:
            return
        self._read = self.position
        if not self.is_live:
            self._catch_up(self._group)
            return
        lines = self._group.lines_from(self.next_line)
        if lines is None:
            self.end(self._group.too_slow(self))
            return
        data, self.next_line, revision = lines
        if data:
            self._sink.send(data)
            self.position = revision
        if self.next_line < self._group.end:
            self._feed.write_later(self)
        else:
            self.position = self._feed.position

    def end(self, error: errors.ApiError | None = None) -> None:
        """Tell why, if the client can be told, and close."""
        if self._has_ended:
            return
        self._has_ended = True
        self._feed.leave(self, self._key)
        if error is not None and self._sink is not None:
            self._sink.send(line(self._form, "error", {"error": error.body}) + LAST_CHUNK)
            self._sink.finish()

    def cut(self) -> int:
        """Break off, in the midst of a line, and with it those that keep the same lines waiting: how many those are."""
        cut = {self: None}
        if self._group is not None and self.is_live and not self._has_ended:
            cut |= dict.fromkeys(self._group.waiting(self.next_line))
        for stream in cut:
            stream.end()
            stream._sink.abort()
        if self._group is not None:
            self._group.forget_written()
        return len(cut)

    def fall_behind(self) -> None:
        """What comes next is not in the group's queue: look for it in the history."""
        raise NotImplementedError

    def _catch_up(self, group: Group) -> None:
        raise NotImplementedError


class WatchStream(Stream):
    """Watches a key or a prefix."""

    def __init__(
        self, feed: Feed, form: Form, path: bytes, is_prefix: bool, after: int | None, identities: Identities
    ) -> None:
        super().__init__(feed, form)
        self._identities = identities
        # With its address, each host would be a group of its own.
        shared = tuple(identity for identity in identities if identity[0] != ADDRESS_SCHEME)
        self._key = ("watch", path, is_prefix, form, shared)
        feed.advance()
        group = feed.join(self, self._key, lambda: ChangeGroup(feed, path, is_prefix, form, shared))
        self._group = group
        self.position = feed.position if after is None else after
        self.next_line = group.end
        self.is_live = False

    def fall_behind(self) -> None:
        """Read on in the history, as who it is."""
        self.is_live = False
        self._feed.write_later(self)

    def _catch_up(self, group: Group) -> None:
        """Read on in the history, up to where the feed is; there, go on with the others."""
        feed = self._feed
        if self.position < feed.position:
            try:
                data, self.position = feed.past.portion(group, self._identities, self.position, feed.position)
            except errors.ApiError as error:
                self.end(error)
                return
            if data:
                self._sink.send(data)
            feed.write_later(self)
            return
        if self.position > feed.position:  # which is on its way there
            feed.backend.reactor.callLater(RETRY_S, feed.write_later, self)
            return
        self.is_live = True
        self.next_line = group.end
        self._sink.send(line(self._form, "progress", {"revision": feed.position}))
