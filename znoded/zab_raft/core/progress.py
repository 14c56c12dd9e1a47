"""What a leader knows of one other member's log, and how it sends to it."""

from __future__ import annotations

from enum import Enum

from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.inflights import Inflights


class Mode(Enum):
    #: One append at a time, to find the place where the logs match.
    PROBE = "probe"
    #: Appends follow each other unasked, as far as the window allows.
    REPLICATE = "replicate"
    #: Nothing is sent: a snapshot is under way.
    SNAPSHOT = "snapshot"


class Progress:
    """One member as its leader sees it. Always `match_index < next_index`, and `match_index` never goes back.

    `match_index` is known to be stored there, `next_index` is to be sent next, `sent_commit` is the greatest commit
    index that was told.
    """

    def __init__(self, next_index: int, window: Inflights, recently_active: bool) -> None:
        self.match_index = 0
        self.next_index = next_index
        self.sent_commit = 0
        self.mode = Mode.PROBE
        self.paused = False
        #: A heartbeat of the clock went out, and nothing was sent again yet because one was answered.
        self.may_retry = True
        self.pending_snapshot = 0
        self.snapshot_ticks = 0
        self.recently_active = recently_active
        self.window = window

    @property
    def needed_index(self) -> int:
        """The first entry that may still have to be sent, for all that is known."""
        return self.match_index + 1 if self.mode is Mode.REPLICATE else self.next_index

    @property
    def may_send(self) -> bool:
        return self.mode is not Mode.SNAPSHOT and not self.paused

    def heartbeat_answered(self) -> None:
        """What was sent before may be lost, so that something may be sent again: once for a heartbeat of the clock.

        A member that slept answers at once all that waited for it, and must not get an append for each.
        """
        if self.may_retry:
            self.may_retry = False
            self.paused = False

    def become_probe(self) -> None:
        """Look for the match again; behind a snapshot that was sent, if it may have arrived."""
        arrived = self.pending_snapshot if self.mode is Mode.SNAPSHOT else 0
        self._become(Mode.PROBE, max(self.match_index, arrived) + 1)

    def become_replicate(self) -> None:
        self._become(Mode.REPLICATE, self.match_index + 1)

    def become_snapshot(self, index: int) -> None:
        self._become(Mode.SNAPSHOT, index + 1)
        self.pending_snapshot = index

    def snapshot_failed(self) -> None:
        """The snapshot under way did not arrive, as far as is known."""
        self.pending_snapshot = 0
        self.become_probe()

    def sent(self, last_index: int, size_bytes: int, commit: int) -> None:
        """An append up to `last_index` left; `size_bytes` is 0 for one without entries."""
        if self.mode is Mode.SNAPSHOT:
            raise InvariantBroken("an append was sent while a snapshot is under way")
        if self.mode is Mode.PROBE:
            self.paused = True
        else:
            if size_bytes:
                self.next_index = last_index + 1
                self.window.add(last_index, size_bytes)
            self.paused = self.window.full
        self.sent_commit = max(self.sent_commit, min(commit, last_index))

    def acknowledged(self, index: int) -> bool:
        """The log there matches up to `index`. False if that is no news."""
        if index <= self.match_index:
            return False
        self.match_index = index
        self.next_index = max(self.next_index, index + 1)
        self.paused = False
        return True

    def rejected(self, index: int, hint_index: int) -> bool:
        """The log there does not match at `index`, but may at `hint_index`. False if the answer is stale."""
        if self.mode is Mode.REPLICATE:
            if index <= self.match_index:
                return False
            self.next_index = self.match_index + 1
        else:
            if self.mode is Mode.SNAPSHOT or self.next_index - 1 != index:
                return False
            self.next_index = max(min(index, hint_index + 1), self.match_index + 1)
            self.paused = False
        self.sent_commit = min(self.sent_commit, self.next_index - 1)
        return True

    def lacks_commit(self, commit: int) -> bool:
        """An append, even an empty one, would tell the member of more that is committed."""
        return self.sent_commit < min(commit, self.next_index - 1)

    def check(self) -> None:
        if self.match_index >= self.next_index:
            raise InvariantBroken(f"matched up to {self.match_index}, but {self.next_index} is to be sent next")

    def _become(self, mode: Mode, next_index: int) -> None:
        self.mode = mode
        self.next_index = next_index
        self.paused = False
        self.pending_snapshot = 0
        self.snapshot_ticks = 0
        self.window.clear()
        self.sent_commit = min(self.sent_commit, next_index - 1)

    def __str__(self) -> str:
        paused = " paused" if self.paused else ""
        return f"{self.mode.value}{paused} match={self.match_index} next={self.next_index} in_flight={len(self.window)}"
