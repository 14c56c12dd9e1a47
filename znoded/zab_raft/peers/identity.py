"""Who a member is towards the others."""

from __future__ import annotations

from dataclasses import dataclass

CELL_ID_BYTES = 16
INCARNATION_BYTES = 16
NO_CELL = bytes(CELL_ID_BYTES)
NO_RAFT_ID = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """`cell` and `incarnation` are 16 bytes, `number` is the member number, `raft_id` the id that is used once.

    A blank member, which has not heard of its cell yet, has `NO_CELL` and `NO_RAFT_ID`. The incarnation is drawn with
    the data directory: another one under the same raft id means that the directory was lost.
    """

    cell: bytes
    number: int
    raft_id: int
    incarnation: bytes

    @property
    def blank(self) -> bool:
        return self.cell == NO_CELL
