"""Whether the recorded reads and writes of one znode can have taken effect one after another, in the order of time.

Every value is written once, so the reads of a value belong to one write, and the check is that of Gibbons and Korach
("Testing Shared Memories", 1997). The operations on a value span a zone, from the first response among them to the
last invocation. Where the response comes first, the register must have held the value for the whole zone: no two such
zones overlap, and no zone of the other kind lies within one. A write of unknown outcome may take effect at any later
time; if nobody read its value, it need not have taken effect at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(slots=True)
class Operation:
    """One read or write. `responded_s` is infinite, and `version` None, while nobody knows the outcome."""

    is_write: bool
    value: bytes
    invoked_s: float
    responded_s: float = math.inf
    version: int | None = None


@dataclass(slots=True)
class _Zone:
    value: bytes
    first_response_s: float
    last_invocation_s: float


class NotLinearizable(AssertionError):
    """The history has no order that its clients could have seen."""


def check_register(initial: bytes, operations: Iterable[Operation]) -> None:
    """Raises NotLinearizable. `initial` was there before the first operation. Reads without a response are left out."""
    done = [operation for operation in operations if operation.is_write or operation.responded_s < math.inf]
    check_values(initial, done)
    check_versions(done)


def check_values(initial: bytes, operations: Sequence[Operation]) -> None:
    """The check of Gibbons and Korach, which believes nothing but values and times. Raises NotLinearizable."""
    writes = {initial: Operation(True, initial, -math.inf, -math.inf)}
    for operation in operations:
        if operation.is_write:
            if operation.value in writes:
                raise NotLinearizable(f"{operation.value!r} was written twice: the drill is wrong")
            writes[operation.value] = operation
    zones = {write.value: _Zone(write.value, write.responded_s, write.invoked_s) for write in writes.values()}
    for read in operations:
        if read.is_write:
            continue
        if read.value not in writes:
            raise NotLinearizable(f"{read.value!r} was read and never written")
        if read.responded_s < writes[read.value].invoked_s:
            raise NotLinearizable(f"{read.value!r} was read before it was written")
        zone = zones[read.value]
        zone.first_response_s = min(zone.first_response_s, read.responded_s)
        zone.last_invocation_s = max(zone.last_invocation_s, read.invoked_s)
    _check_zones([zone for zone in zones.values() if zone.first_response_s < math.inf])


def _check_zones(zones: list[_Zone]) -> None:
    held = sorted(
        (zone for zone in zones if zone.first_response_s < zone.last_invocation_s),
        key=lambda zone: zone.first_response_s,
    )
    for one, other in pairwise(held):
        if other.first_response_s < one.last_invocation_s:
            raise NotLinearizable(f"{one.value!r} and {other.value!r} must have been there at one time")
    passing = sorted(
        (zone for zone in zones if zone.first_response_s >= zone.last_invocation_s),
        key=lambda zone: zone.last_invocation_s,
    )
    position = 0
    for zone in held:
        while position < len(passing) and passing[position].last_invocation_s <= zone.first_response_s:
            position += 1
        for other in passing[position:]:
            if other.last_invocation_s >= zone.last_invocation_s:
                break
            if other.first_response_s < zone.last_invocation_s:
                raise NotLinearizable(f"{other.value!r} must have been there while {zone.value!r} was")


def check_versions(operations: Sequence[Operation]) -> None:
    """That the versions which the server told are the order of the writes. Raises NotLinearizable."""
    known = [operation for operation in operations if operation.version is not None]
    value_of: dict[int | None, bytes] = {}
    for operation in known:
        if value_of.setdefault(operation.version, operation.value) != operation.value:
            raise NotLinearizable(
                f"version {operation.version} was {value_of[operation.version]!r} and {operation.value!r}"
            )
    if len(set(value_of.values())) < len(value_of):
        raise NotLinearizable("a value has two versions: its write took effect twice")
    responses = sorted(known, key=lambda operation: operation.responded_s)
    newest, position = -1, 0
    for operation in sorted(known, key=lambda operation: operation.invoked_s):
        while responses[position].responded_s < operation.invoked_s:
            newest = max(newest, responses[position].version or 0)
            position += 1
        assert operation.version is not None
        if operation.version < newest or (operation.is_write and operation.version == newest):
            kind = "written" if operation.is_write else "read"
            raise NotLinearizable(
                f"{operation.value!r}, version {operation.version}, was {kind} after version {newest} was known"
            )
