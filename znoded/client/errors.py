"""What can go wrong, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Another member may do what this one could not, and nothing was done.
TRY_ELSEWHERE = frozenset(("not_leader", "stopping", "busy"))


class ApiError(Exception):
    """An answer that is no success: `code` is its name, `details` are all fields of the error."""

    def __init__(self, status: int, details: Mapping[str, Any]) -> None:
        super().__init__(f"{details['code']}: {details['message']}. {details['action']}")
        self.status = status
        self.code: str = details["code"]
        self.details = details


class Unavailable(Exception):
    """No member answered in time; the last failure is the cause. A write may have taken effect all the same."""


class LockLost(Exception):
    """The session in which a lock was held is over: somebody else may have it."""
