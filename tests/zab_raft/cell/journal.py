"""A state machine of a cell's member for tests: per client, it takes the commands in order and refuses all others."""

from __future__ import annotations

import struct
from collections.abc import Callable

from znoded.zab_raft.cell.machine import Refusal
from znoded.zab_raft.cell.membership import change
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Member, Role
from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.increment import Changes

MADE, REFUSED = b"made ", b"refused "
_LENGTH = struct.Struct(">I")


def member(number: int, role: Role = Role.VOTER) -> Member:
    return Member(number, f"127.0.0.1:{3000 + number}", f"127.0.0.1:{2000 + number}", role)


def command(client: int, sequence: int, size_bytes: int = 0) -> bytes:
    """The client's command of this number, counted from 1; it may be made long."""
    return b"%d %d " % (client, sequence) + b"x" * size_bytes


def change_command(client: int, sequence: int, *numbers: str) -> bytes:
    """Let these be the members; "4L" is a learner."""
    return b"%d %d members %s" % (client, sequence, " ".join(numbers).encode())


class CellJournal:
    """`effects` are the commands that were taken, `applied` is (index, command) of all that came."""

    def __init__(self, configuration: Callable[[], Configuration]) -> None:
        self.effects: list[bytes] = []
        self.applied: list[tuple[int, bytes]] = []
        self.leaders: list[tuple[int, int]] = []
        self.led: list[int] = []
        self.told_by: list[tuple[int, bytes]] = []
        self.loads = 0
        self.reached = 0
        self._configuration = configuration
        self._founding_roster = Roster()
        self._roster: Roster | None = None
        self._last: dict[bytes, int] = {}
        self._last_index = 0
        self._changed: dict[bytes, bytes | None] = {}

    # ---- as any state machine

    loose_tables = ()

    @property
    def dirty_bytes(self) -> int:
        return sum(len(value or b"") for value in self._changed.values())

    def load(self, read_table: ReadTable) -> None:
        stored = dict(read_table(b"effects"))
        roster = dict(read_table(b"roster")).get(b"roster")
        self._roster = Roster.decode(roster) if roster else None
        self.effects = [stored[key] for key in sorted(stored)]
        self._last_index = max((int.from_bytes(key) for key in stored), default=0)
        self._last = {}
        for effect in self.effects:
            client, sequence = original(effect).split(b" ")[:2]
            self._last[client] = int(sequence)
        self._changed = {}
        self.loads += 1

    def read_ahead(self, read_table: ReadTable) -> ReadTable:
        return read_table

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        for index, each in enumerate(commands, first_index):
            assert index > self._last_index, (index, self._last_index)
            self._last_index = index
            self.applied.append((index, each))
            self._apply(index, each)

    def take_changes(self) -> Changes:
        tables: dict[bytes, dict[bytes, bytes | None]] = {b"effects": self._changed}
        self._changed = {}
        if self._roster:
            tables[b"roster"] = {b"roster": self._roster.encode()}
        return tables

    def restore_changes(self, changes: Changes) -> None:
        self._changed = {**changes[b"effects"], **self._changed}

    # ---- as that of a cell

    @property
    def roster(self) -> Roster:
        return self._roster or self._founding_roster

    def found(self, roster: Roster) -> None:
        self._founding_roster = roster

    def lead(self, term: int) -> list[bytes]:
        self.led.append(term)
        return [b"term%d 1 begins" % term]

    def leader_changed(self, leader: int, term: int) -> None:
        self.leaders.append((leader, term))

    def leader_reached(self) -> None:
        self.reached += 1

    def told(self, member: int, payload: bytes) -> None:
        self.told_by.append((member, payload))

    def plan_change(self, command: bytes) -> ConfChange | bytes:
        client, sequence, _, *numbers = command.split(b" ")
        if int(sequence) != self._last.get(client, 0) + 1:
            return REFUSED + b"REPEATED " + command
        members = [
            member(int(number.rstrip(b"L")), Role.LEARNER if number.endswith(b"L") else Role.VOTER)
            for number in numbers
        ]
        configuration = self._configuration()
        roster = self.roster.after(members, configuration.highest_id)
        encoded = roster.encode()
        return change(roster, configuration, MADE + _LENGTH.pack(len(encoded)) + encoded + command)

    def refused_change(self, command: bytes, refusal: Refusal) -> bytes:
        return REFUSED + refusal.name.encode() + b" " + command

    def original(self, command: bytes) -> bytes:
        return original(command)

    def _apply(self, index: int, command: bytes) -> None:
        client, sequence = original(command).split(b" ")[:2]
        if int(sequence) != self._last.get(client, 0) + 1:
            return
        self._last[client] = int(sequence)
        self.effects.append(command)
        self._changed[index.to_bytes(8)] = command
        if command.startswith(MADE):
            (length,) = _LENGTH.unpack_from(command, len(MADE))
            start = len(MADE) + _LENGTH.size
            self._roster = Roster.decode(command[start : start + length])


def original(command: bytes) -> bytes:
    if command.startswith(MADE):
        (length,) = _LENGTH.unpack_from(command, len(MADE))
        return command[len(MADE) + _LENGTH.size + length :]
    if command.startswith(REFUSED):
        return command.split(b" ", 2)[2]
    return command
