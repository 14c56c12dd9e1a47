"""How contenders are named, so that Kazoo, Curator and these recipes queue in one line; and who is ahead of whom.

A contender of ours makes two znodes in one transaction, with neighbouring sequence numbers and one czxid:

    fenced-ID__lock__0000000007           which Kazoo's locks look for (`__rlock__` when it is shared)
    fenced-ID__lock__lock-0000000008      which Curator's InterProcessMutex sorts by what follows the last `lock-`

Kazoo takes no notice of the second, whose number does not follow `__lock__`. Curator sorts the first by its whole name,
behind every number, since it begins with a letter. So for each of them there is one znode, in the right place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: What stands in a name in front of the sequence number, as in Kazoo's recipes.
EXCLUSIVE, SHARED = "__lock__", "__rlock__"
#: What Curator looks for.
FOR_CURATOR = "lock-"

#: As the server writes it; a single `-` in front of it is the end of a name of Curator's.
_SEQUENCE = re.compile(r"(?:(?<=[_-])-\d{9,10}|\d{10})$")
_SEQUENCES = 1 << 32


class Contender(NamedTuple):
    """A znode in the queue of a lock: its sequence number, its name, and whether it shares the lock."""

    sequence: int
    name: str
    is_shared: bool


def prefixes(own_id: str, is_shared: bool) -> tuple[str, str]:
    """The names of the two znodes of a contender, without the numbers that the server gives them."""
    first = f"fenced-{own_id}{SHARED if is_shared else EXCLUSIVE}"
    return first, first + FOR_CURATOR


def parse(name: str) -> Contender | None:
    """The contender with this name; None if it is none, having no sequence number."""
    sequence = _SEQUENCE.search(name)
    return Contender(int(sequence[0]), name, SHARED in name) if sequence else None


def queue(children: Iterable[str]) -> list[Contender]:
    """All contenders in order, one znode of each: those of ours that Curator looks for are left out."""
    found = [each for each in map(parse, children) if each and f"__{FOR_CURATOR}" not in each.name]
    return _in_order(found)


def own(children: Iterable[str], own_id: str) -> list[Contender]:
    """The znodes of the contender with this id, in order; none if it is not in the queue."""
    return _in_order(found for found in map(parse, children) if found and own_id in found.name)


def predecessor(children: Iterable[str], own_id: str, mine: Contender) -> str | None:
    """The name of the last znode before `mine` that has to be gone first; None if `mine` has the lock.

    One that is exclusive waits for everybody, whatever recipe made them, one that is shared for those that are not.
    """
    nearest: tuple[int, str] | None = None
    for other in map(parse, children):
        if other is None or own_id in other.name or (mine.is_shared and other.is_shared):
            continue
        distance = ahead_by(other.sequence, mine.sequence)
        if distance and (nearest is None or distance < nearest[0]):
            nearest = distance, other.name
    return nearest[1] if nearest else None


def ahead_by(sequence: int, mine: int) -> int:
    """How far a sequence number is ahead of `mine`, 0 if it is not; behind 2147483647 comes -2147483648."""
    distance = (mine - sequence) % _SEQUENCES
    return distance if distance < _SEQUENCES // 2 else 0


def _in_order(contenders: Iterable[Contender]) -> list[Contender]:
    """In the order in which the numbers were given, which go on below 0 behind the greatest."""
    found = sorted(contenders)
    if not found:
        return found
    least = found[0].sequence
    return sorted(found, key=lambda each: ahead_by(least, each.sequence) - ahead_by(each.sequence, least))
