"""What a replica drives: whatever its log is the log of."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.increment import Changes


class StateMachine(Protocol):
    """What the replica drives. All calls come in the reactor's thread."""

    @property
    def loose_tables(self) -> Collection[bytes]:
        """Tables whose items count only while an item of another table refers to them.

        Their new items may be stored before what refers to them. Nobody reads them all, so each has its own checksum.
        Their keys are short.
        """

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes `take_changes` would return."""

    def load(self, read_table: ReadTable) -> None:
        """Become the state that these tables hold."""

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        """Apply commands whose log indexes are `first_index`, `first_index + 1`, ..; never raises for any command."""

    def take_changes(self) -> Changes:
        """All that changed since the last call, as of the last applied command.

        Another thread reads it from here on, so the machine has to leave it as it is.
        """

    def restore_changes(self, changes: Changes) -> None:
        """Take back changes that could not be stored; newer ones win."""
