"""What the names of sequential znodes below one parent have to be: unique, and growing with time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Named(NamedTuple):
    """A sequential znode whose creation was acknowledged."""

    name: bytes
    invoked_s: float
    responded_s: float

    @property
    def number(self) -> int:
        return int(self.name[-10:])


def check_names(created: Sequence[Named]) -> None:
    """Raises AssertionError when a name was given twice, or a later creation got the lower number."""
    twice = [number for number, times in Counter(each.number for each in created).items() if times > 1]
    assert not twice, f"sequential names were given twice: {twice}"
    by_response = sorted(created, key=lambda each: each.responded_s)
    newest, position = -1, 0
    for each in sorted(created, key=lambda each: each.invoked_s):
        while by_response[position].responded_s < each.invoked_s:
            newest = max(newest, by_response[position].number)
            position += 1
        assert each.number > newest, f"{each.name!r} was created after number {newest} was known"
