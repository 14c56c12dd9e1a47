"""Live sessions: who was heard when, and whose time is up.

The tracker decides when a session has been silent too long. Ending it is a command like any other, so the decision
takes effect only through the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection


class LiveSession:
    """What a member knows of a session beyond the replicated state."""

    __slots__ = (
        "attach", "attach_asked", "bucket_ms", "closing", "connection", "former", "heard_ms", "session_id",
        "timeout_ms",
    )  # fmt: skip

    def __init__(self, session_id: int, timeout_ms: int, heard_ms: int, attach: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.heard_ms = heard_ms
        self.attach = attach
        self.attach_asked = attach  # the greatest that a connection here asked for
        self.connection: ClientConnection | None = None
        self.former: ClientConnection | None = None  # one that reads on, although another member has the session
        self.closing = False
        self.bucket_ms = 0  # the one bucket whose entry for this session counts


class SessionTracker:
    """Expires silent sessions. Times are milliseconds of a monotonic clock and come in as arguments.

    A session ends at the first tick boundary strictly after its timeout, as ZooKeeper rounds it. A touch only moves
    `heard_ms`; a session is put into its next bucket when its old one comes due, so a touch costs one assignment.
    """

    def __init__(self, tick_ms: int, now_ms: int) -> None:
        self._tick_ms = tick_ms
        self._sessions: dict[int, LiveSession] = {}
        #: The live session of an id, or None: the dictionary's own method, since every write looks one up.
        self.get = self._sessions.get
        self._buckets: dict[int, list[LiveSession]] = {}
        self._next_bucket_ms = self._boundary_after(now_ms)
        self._overdue: list[LiveSession] = []
        #: How many ended because this member decided so.
        self.expired_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(self._sessions.values())

    def add(self, session_id: int, timeout_ms: int, now_ms: int, attach: int) -> LiveSession:
        """Start to watch over a session, with its full timeout ahead of it."""
        live = LiveSession(session_id, timeout_ms, now_ms, attach)
        self._sessions[session_id] = live
        self._put(live, now_ms)
        return live

    def renew(self, live: LiveSession, timeout_ms: int, now_ms: int) -> None:
        """A client came back for its session, with a timeout negotiated anew."""
        live.heard_ms = now_ms
        if timeout_ms < live.timeout_ms:
            live.timeout_ms = timeout_ms
            self._put(live, now_ms)  # its old bucket would be too late
        live.timeout_ms = timeout_ms

    def remove(self, session_id: int) -> LiveSession | None:
        """Forget a session that ended; its entry in a bucket is dropped when that comes due."""
        return self._sessions.pop(session_id, None)

    def forget_all(self) -> None:
        """The state they belong to was replaced by another."""
        self._sessions.clear()
        self._buckets.clear()
        self._overdue.clear()

    def due(self, now_ms: int, limit: int) -> list[LiveSession]:
        """At most `limit` sessions whose time is up at `now_ms`. Each is marked closing and given out once."""
        self._empty_buckets(now_ms)
        ended: list[LiveSession] = []
        while self._overdue and len(ended) < limit:
            live = self._overdue.pop()
            if live.closing or self._sessions.get(live.session_id) is not live:
                continue
            if self._deadline_ms(live) > now_ms:
                self._put(live, live.heard_ms)
                continue
            live.closing = True
            ended.append(live)
        return ended

    def pass_over(self, now_ms: int) -> None:
        """Another member ends sessions: look at those whose time may be up after another timeout, and end none."""
        self._empty_buckets(now_ms)
        overdue, self._overdue = self._overdue, []
        for live in overdue:
            if not live.closing and self._sessions.get(live.session_id) is live:
                self._put(live, now_ms)

    def _empty_buckets(self, now_ms: int) -> None:
        while self._next_bucket_ms <= now_ms:
            bucket_ms = self._next_bucket_ms
            self._overdue += [live for live in self._buckets.pop(bucket_ms, ()) if live.bucket_ms == bucket_ms]
            self._next_bucket_ms += self._tick_ms

    def reopen(self, ended: Iterable[LiveSession]) -> None:
        """The end of these sessions could not be proposed: they come due again."""
        for live in ended:
            live.closing = False
            self._overdue.append(live)

    def grant_all(self, now_ms: int) -> None:
        """Give every session its full timeout again, as after a pause of this process."""
        for live in self._sessions.values():
            live.heard_ms = now_ms

    def expiry_buckets(self) -> dict[int, list[int]]:
        """Deadline in ms to the ids that end then, for the word `dump`."""
        buckets: dict[int, list[int]] = {}
        for live in self._sessions.values():
            buckets.setdefault(self._deadline_ms(live), []).append(live.session_id)
        return buckets

    def _boundary_after(self, time_ms: int) -> int:
        return (time_ms // self._tick_ms + 1) * self._tick_ms

    def _deadline_ms(self, live: LiveSession) -> int:
        return self._boundary_after(live.heard_ms + live.timeout_ms)

    def _put(self, live: LiveSession, silent_since_ms: int) -> None:
        live.bucket_ms = max(self._boundary_after(silent_since_ms + live.timeout_ms), self._next_bucket_ms)
        self._buckets.setdefault(live.bucket_ms, []).append(live)
