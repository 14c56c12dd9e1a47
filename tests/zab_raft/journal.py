"""A state machine whose state is the list of all commands, so that a test sees exactly what was applied."""

from __future__ import annotations

from collections.abc import Callable

from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.increment import Changes


class Journal:
    """Fails when an index is applied twice or left out. `on_applied` is called after each batch."""

    def __init__(self, on_applied: Callable[[list[bytes]], None] = lambda commands: None) -> None:
        self.commands: list[bytes] = []
        self.batches: list[list[bytes]] = []
        self.on_applied = on_applied
        self._changed: dict[bytes, bytes | None] = {}

    loose_tables = ()

    @property
    def dirty_bytes(self) -> int:
        return sum(len(value or b"") for value in self._changed.values())

    def load(self, read_table: ReadTable) -> None:
        items = sorted(read_table(b"commands"))
        assert [key for key, _command in items] == [_key(index) for index in range(1, len(items) + 1)]
        self.commands = [command for _key, command in items]

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        assert first_index == len(self.commands) + 1
        for index, command in enumerate(commands, first_index):
            self._changed[_key(index)] = command
        self.commands += commands
        self.batches.append(commands)
        self.on_applied(commands)

    def take_changes(self) -> Changes:
        taken, self._changed = self._changed, {}
        return {b"commands": taken}

    def restore_changes(self, changes: Changes) -> None:
        self._changed = {**changes[b"commands"], **self._changed}


def _key(index: int) -> bytes:
    return index.to_bytes(8)
