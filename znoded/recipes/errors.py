"""What the recipes raise of their own; Kazoo's exceptions pass through as they are."""

from __future__ import annotations


class AcquireTimeout(Exception):
    """The lock was not to be had in time."""


class AcquireCancelled(Exception):
    """Somebody called `cancel` while the lock was waited for."""


class LeaseLost(Exception):
    """The lock is not held any more, so nothing may be done under its token."""


class SessionTimeoutUnknown(Exception):
    """The server does not tell how long the session lasts, so that nobody can say how long a lock is held."""
