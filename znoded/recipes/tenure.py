"""How sure a holder can be of its lock: safe, in jeopardy, lost. No I/O: the time comes in as an argument.

The server ends a session that it has not heard for the session timeout, and then the lock is another's. The holder
knows only what was answered. So it counts from the moment at which it sent the last request that was answered: before
that moment plus the timeout nobody else can have the lock; behind it somebody may, and the lease is lost at the latest.
The grace is how long the holder hopes for contact when it has none; it can end a lease sooner than the session would,
not later.
"""

from __future__ import annotations

from enum import Enum

#: Silence for this part of the session timeout is jeopardy, even if no connection broke.
SILENCE = 1 / 2


class Standing(Enum):
    """What a holder is told."""

    #: The lock is held.
    SAFE = "safe"
    #: Contact is lost and the grace is running: hold still. SAFE or LOST follows.
    JEOPARDY = "jeopardy"
    #: The lock is not held any more. This is final.
    LOST = "lost"


class Tenure:
    """The standing of one lease over time. All times are in seconds of one clock."""

    def __init__(self, heard_s: float, session_timeout_s: float, grace_s: float) -> None:
        self._heard_s = heard_s
        self._session_timeout_s = session_timeout_s
        self._granted_s = session_timeout_s
        self._grace_s = grace_s
        self._contact_lost_s: float | None = None
        self._has_ended = False

    @property
    def ends_s(self) -> float:
        """When it is lost unless contact is made before."""
        session_s = self._heard_s + self._session_timeout_s
        return session_s if self._contact_lost_s is None else min(session_s, self._contact_lost_s + self._grace_s)

    def standing(self, now_s: float) -> Standing:
        """What holds now. Once this was LOST it stays so."""
        if self._has_ended or now_s >= self.ends_s:
            self._has_ended = True
            return Standing.LOST
        is_silent = now_s >= self._silent_s
        return Standing.JEOPARDY if self._contact_lost_s is not None or is_silent else Standing.SAFE

    def changes_in_s(self, now_s: float) -> float:
        """How long the standing stays what it is if nothing happens."""
        next_s = self.ends_s if now_s >= self._silent_s else min(self._silent_s, self.ends_s)
        return max(0.0, next_s - now_s)

    def contact_lost(self, now_s: float) -> None:
        """The connection broke."""
        if self._contact_lost_s is None:
            self._contact_lost_s = now_s

    def heard(self, sent_s: float, now_s: float) -> None:
        """A request sent at `sent_s` was answered: the lock was held then. Too late if the lease is lost."""
        if self.standing(now_s) is Standing.LOST:
            return
        self._heard_s = max(self._heard_s, sent_s)
        self._session_timeout_s = self._granted_s
        if self._contact_lost_s is not None and sent_s >= self._contact_lost_s:
            self._contact_lost_s = None

    def granted(self, session_timeout_s: float) -> None:
        """The connection was granted another timeout, which counts from what is answered there on."""
        self._granted_s = session_timeout_s

    def end(self) -> None:
        """The lock was released, or is known to be gone."""
        self._has_ended = True

    @property
    def _silent_s(self) -> float:
        return self._heard_s + self._session_timeout_s * SILENCE
