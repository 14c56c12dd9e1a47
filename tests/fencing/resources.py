"""A number that workers read and write back one greater: with a guard, and without."""

from __future__ import annotations

from znoded.fencing import InProcessGuard, StaleToken


class Violation(AssertionError):
    """What must not happen did."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


class PlainNumber:
    """Whoever comes may write."""

    def __init__(self) -> None:
        self.value = 0
        self.writes = 0

    @property
    def lost(self) -> int:
        """How many writes were overwritten by somebody who had not seen them."""
        return self.writes - self.value

    def read(self) -> int:
        return self.value

    def write(self, seen: int) -> None:
        self.value = seen + 1
        self.writes += 1


class GuardedNumber:
    """Who reads or writes shows a token."""

    def __init__(self) -> None:
        self.value = 0
        self.accepted: list[int] = []
        self._guard = InProcessGuard()

    def read(self, token: int) -> int:
        with self._guard.holding("number", token):
            return self.value

    def write(self, token: int, seen: int) -> None:
        with self._guard.holding("number", token):
            self.value = seen + 1
            self.accepted.append(token)

    def check(self) -> None:
        """No token was accepted behind a greater one, and no write was lost."""
        require(self.accepted == sorted(set(self.accepted)), f"tokens were accepted out of order: {self.accepted}")
        require(
            self.value == len(self.accepted), f"{len(self.accepted)} writes were accepted, the number is {self.value}"
        )
        try:
            self.read(max(self.accepted, default=1) - 1)
        except StaleToken:
            return
        require(not self.accepted, "an old token is let in")
