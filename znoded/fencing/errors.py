"""What a guard raises."""

from __future__ import annotations


class StaleToken(Exception):
    """A holder after this one has been here already. `object_name` is what was guarded, `highest` the token it had."""

    def __init__(self, object_name: str, token: int, highest: int) -> None:
        super().__init__(f"token {token} for {object_name!r} is stale: token {highest} has been here")
        self.object_name = object_name
        self.token = token
        self.highest = highest


class OutsideTransaction(Exception):
    """The token was checked outside of a transaction, so that the check would be over before the write."""
