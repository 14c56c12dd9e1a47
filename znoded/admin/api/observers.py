"""Observers: streams that are told who leads an election."""

from __future__ import annotations

from znoded.admin.api import errors
from znoded.admin.api.feed import Feed
from znoded.admin.api.groups import Group
from znoded.admin.api.lines import EncodedChange, EncodedRevision, Form, line
from znoded.admin.api.locks import Locks
from znoded.admin.api.queues import Contender
from znoded.admin.api.streams import Sink, Stream
from znoded.admin.api.waiting import RETRY_S
from znoded.tree.acl import Identities


class LeaderGroup(Group):
    """Watches who leads an election."""

    def __init__(self, feed: Feed, locks: Locks, path: bytes, form: Form, identities: Identities) -> None:
        super().__init__(feed, path, True, form, identities)
        self._locks = locks
        self._told: object = None
        self._is_looking = False
        self.current = self._line(locks.queues.first_now(path), feed.position)

    def queue(self, revision: EncodedRevision, changes: list[EncodedChange]) -> None:
        """What has changed is seen when all is applied."""

    def changed(self, position: int) -> None:
        """Tell of another leader, or another value of the same; where the line is long, when it is known."""
        try:
            self._locks.require_readable(self.path, self.identities)
        except errors.ApiError as refusal:
            for stream in list(self.streams):
                stream.end(refusal)
            return
        first = self._locks.queues.first_now(self.path)
        if first is not None or self._locks.queues.now(self.path) is not None:
            self._tell(first, position)
        elif not self._is_looking:
            self._is_looking = True
            self._feed.backend.waiting.spawn(self._look())

    async def _look(self) -> None:
        while self.streams:
            try:
                first = await self._locks.queues.first(self.path)
            except errors.ApiError:
                await self._feed.backend.waiting.sleep(RETRY_S)
                continue
            self._tell(first, self._feed.position)
            break
        self._is_looking = False

    def catch_up(self) -> None:
        """Only the present counts."""
        self.changed(self._feed.position)

    def _tell(self, first: Contender | None, position: int) -> None:
        before = self._told
        encoded = self._line(first, position)
        if self._told != before:
            self.current = encoded
            self.append(position, encoded)

    def _line(self, first: Contender | None, position: int) -> bytes:
        leader = None
        if first is not None and self._locks.is_held(first):
            leader = self._locks.told(first.path, self.identities)
        self._told = leader
        return line(self.form, "leader", {"revision": position, "leader": leader})


class LeaderStream(Stream):
    """Watches who leads an election."""

    def __init__(self, feed: Feed, locks: Locks, form: Form, path: bytes, identities: Identities) -> None:
        super().__init__(feed, form)
        self._key = ("leader", path, form, identities)
        group = feed.join(self, self._key, lambda: LeaderGroup(feed, locks, path, form, identities))
        assert isinstance(group, LeaderGroup)
        self._group = group
        self.next_line = group.end
        self._first_line = group.current

    def open(self, sink: Sink) -> None:
        sink.send(self._first_line)
        super().open(sink)
