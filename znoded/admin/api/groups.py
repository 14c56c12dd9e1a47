"""Groups of streams that watch the same: one queue of encoded lines, and a place in it for each stream."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from znoded.admin.api import errors
from znoded.admin.api.lines import EncodedChange, EncodedRevision, Form, line
from znoded.tree.acl import Identities

if TYPE_CHECKING:
    from znoded.admin.api.feed import Feed
    from znoded.admin.api.streams import Stream

#: What is written to a stream at a time, but for a longer line, which is sent alone: so it is not copied.
SLICE_BYTES = 128 * 1024
#: A stream that reads nothing for so many ticks of the feed is cut; there is something to read every ten of them.
STALLED_TICKS = 60
_NOTHING = (0, 0, 0, 0, b"")


class Group:
    """A queue, bounded in bytes: a stream that is so far behind that its next line is gone is cut."""

    def __init__(self, feed: Feed, path: bytes, is_prefix: bool, form: Form, identities: Identities) -> None:
        self.path = path
        self.is_prefix = is_prefix
        self._below = path.rstrip(b"/") + b"/"
        self.form = form
        self.identities = identities
        self.streams: dict[Stream, None] = {}
        self._feed = feed
        self._limit_bytes = feed.backend.member.limits.queued_bytes_per_connection
        #: Each with the revision up to which all is told with it.
        self._lines: deque[tuple[int, bytes]] = deque()
        self._lines_bytes = 0
        self._first = 0  # the number of the first line in the queue
        self._joined = _NOTHING

    @property
    def watched(self) -> tuple[bytes, bool, Form]:
        """What its streams watch, and how they want it told: without who they are."""
        return self.path, self.is_prefix, self.form

    def watches(self, path: bytes) -> bool:
        """Whether a change of this path is one of those that are watched."""
        return path == self.path or (self.is_prefix and path.startswith(self._below))

    @property
    def is_half_full(self) -> bool:
        """Whether streams that have not had their turn should have it before more is queued."""
        return self._lines_bytes > self._limit_bytes // 2

    @property
    def end(self) -> int:
        """The number of the line that comes next."""
        return self._first + len(self._lines)

    def lines_from(self, number: int) -> tuple[bytes, int, int] | None:
        """The lines from this one on, at most a slice of them, the number of the next and the revision of the last.

        None if they are gone. Streams are mostly at the same place, and share the bytes.
        """
        if number < self._first:
            return None
        begin, following, end, revision, joined = self._joined
        if (begin, end) != (number, self.end):
            lines: list[bytes] = []
            size_bytes = revision = 0
            for reached, encoded in islice(self._lines, number - self._first, None):
                size_bytes += len(encoded)
                if lines and size_bytes > SLICE_BYTES:
                    break
                lines.append(encoded)
                revision = reached
            joined, following = b"".join(lines), number + len(lines)
            self._joined = (number, following, self.end, revision, joined)
        return joined, following, revision

    def append(self, revision: int, encoded: bytes) -> None:
        """Queue a line, with which all is told up to this revision, and have it written to all."""
        if not any(stream.is_live for stream in self.streams):
            return  # they read it in the history
        self._feed.unread.hold(encoded)
        self._lines.append((revision, encoded))
        self._lines_bytes += len(encoded)
        while self._lines_bytes > self._limit_bytes and len(self._lines) > 1:
            self._drop_first()
        self._feed.unwritten[self] = None
        write_later = self._feed.write_later
        for stream in self.streams:
            if not stream.is_blocked:
                write_later(stream)

    def _drop_first(self) -> None:
        _, encoded = self._lines.popleft()
        self._feed.unread.release(encoded)
        self._lines_bytes -= len(encoded)
        self._first += 1

    def forget_written(self) -> bool:
        """Drop the lines that all streams have: whether none is left."""
        least = min((stream.next_line for stream in self.streams if stream.is_live), default=self.end)
        while self._lines and self._first < least:
            self._drop_first()
        self._joined = _NOTHING
        return not self._lines

    def waiting(self, number: int) -> list[Stream]:
        """The streams whose clients do not read, and that keep the lines from this one on, or earlier ones, waiting."""
        blocked = [stream for stream in self.streams if stream.is_live and stream.is_blocked]
        return [stream for stream in blocked if stream.next_line <= number]

    def cut_slow(self) -> None:
        """End the streams whose next line is gone, and those that have not read anything for long. Once a tick."""
        for stream in list(self.streams):
            stream.stalled_ticks = stream.stalled_ticks + 1 if stream.is_blocked else 0
            is_behind = stream.is_live and stream.next_line < self._first
            if is_behind or stream.stalled_ticks > STALLED_TICKS:
                stream.end(self.too_slow(stream))

    def too_slow(self, stream: Stream) -> errors.ApiError:
        """Why such a stream ends."""
        return errors.slow_reader(stream.position, self._limit_bytes)

    def progress(self, revision: int) -> None:
        """Say that all up to this revision was told."""
        self.append(revision, line(self.form, "progress", {"revision": revision}))

    # ---- what is different between them

    def queue(self, revision: EncodedRevision, changes: list[EncodedChange]) -> None:
        """Those of the changes of one revision that are on paths that the group watches."""
        raise NotImplementedError

    def changed(self, position: int) -> None:
        """All changes up to this one were queued, and there were some."""

    def catch_up(self) -> None:
        """Changes were left out."""
        raise NotImplementedError


class ChangeGroup(Group):
    """Watches a key, or a key and all below it."""

    def queue(self, revision: EncodedRevision, changes: list[EncodedChange]) -> None:
        """Those that may be read become a line. It is the same for all addresses, unless an ACL names one."""
        if any(change.is_by_address for change in changes):
            self.catch_up()
            return
        encoded = revision.line(self.form, changes, self.identities)
        if encoded is not None:
            self.append(revision.revision, encoded)

    def catch_up(self) -> None:
        """Each stream looks for itself what it missed; or hears that it is not known any more."""
        for stream in self.streams:
            stream.fall_behind()
