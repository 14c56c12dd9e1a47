"""Going on after the loss of a quorum: what a stopped member has, and a new cell of that member alone made out of it.

Whatever its log holds is taken as committed, known or not. The new cell has an id of its own, so that members of the
old one and of the new one refuse each other. It begins with one entry, which says who the members are, in a term of its
own and far behind the last index: no zxid that the lost members may have given out is given out again.

The steps, each of which is durable before the next begins:

    the record of it in DATA/renewals
    the new cell's id in DATA/meta: from here on the directory is none of the old cell, and refused until all is done
    the checkpoint: the state, the configuration and the roster of the new cell, in one
    DATA/peers removed: whom the old cell knew
    the record again, as finished

Run again, it goes on where it was cut short. The log stays as it is: the next start finds that it does not lead to the
checkpoint, and drops it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, Protocol

from znoded.zab_raft.cell.directory import CellDirectory
from znoded.zab_raft.cell.renewals import Renewal, Renewals
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Role
from znoded.zab_raft.cell.start import read_log
from znoded.zab_raft.cell.state import CellState, read_cell
from znoded.zab_raft.checkpoint import Checkpoint, ReadTable
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Entry, EntryKind, HardState
from znoded.zab_raft.directory import Meta
from znoded.zab_raft.errors import DirectoryError
from znoded.zab_raft.files import Files
from znoded.zab_raft.increment import Changes
from znoded.zab_raft.peers.identity import CELL_ID_BYTES

#: More entries than the survivor can have missed: 250 days of 50,000 a second.
INDEX_LEAP = 1 << 40


class SurvivingMachine(Protocol):
    """The part of a cell's state machine that is needed here; see `CellMachine`."""

    @property
    def roster(self) -> Roster: ...

    @property
    def loose_tables(self) -> Collection[bytes]: ...

    def found(self, roster: Roster) -> None: ...

    def load(self, read_table: ReadTable) -> None: ...

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None: ...

    def take_changes(self) -> Changes: ...


class By(NamedTuple):
    """Who begins a new cell, when (ISO 8601, UTC), and with which version of the program."""

    time: str
    host: str
    user: str
    version: str


class Survivor:
    """The data directory of a stopped member, open, with everything that is in it applied to the machine.

    `hard_state.commit` is how far the log is known to be committed; (`last_index`, `last_term`) is the last entry.
    """

    def __init__(self, path: str, machine: SurvivingMachine, files: Files | None = None) -> None:
        """Raises StorageError, or OSError. Nothing is changed that a start would not change too."""
        self._machine = machine
        self._files = files or Files()
        self.directory = CellDirectory(path, _member_of(path), self._files)
        try:
            if self.directory.identity.blank:
                raise DirectoryError(f"{path} is in no cell yet: there is nothing to go on with")
            self._renewals = Renewals(self.directory.path, self._files)
            self._store = Checkpoint(self.directory.state_path, self._files, machine.loose_tables)
        except BaseException:
            self.directory.close()
            raise
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def meta(self) -> Meta:
        """Whose directory it is."""
        return self.directory.meta

    @property
    def unfinished(self) -> Renewal | None:
        """What an earlier run has begun and not finished."""
        record = self._renewals.of(self.meta.cell)
        return record if record and not record.finished else None

    @property
    def roster(self) -> Roster:
        """The members, as of the last entry."""
        return self._machine.roster

    def begin_new_cell(self, by: By, roster_command: Callable[[Roster], bytes]) -> Renewal:
        """Make this member the only one of a new cell, or finish that. The command has the machine know a roster.

        Raises StorageError or OSError: then run it again.
        """
        record = self.unfinished
        if record is None:
            record = self._record(by)
            self._renewals.put(record)
            self.directory.enter_cell(bytes.fromhex(record.new_cell), record.raft_id)
        if self._store.index != record.first_index:
            self._store_beginning(record, roster_command)
        self._forget_peers()
        finished = replace(record, finished=by.time)
        self._renewals.put(finished)
        return finished

    def close(self) -> None:
        """Let a member start on the directory."""
        self._store.close()
        self.directory.close()

    def _read(self) -> None:
        """As a start does, but for what is not known committed: that is applied too."""
        with self._store.reading() as read_table:
            self._cell = read_cell(read_table)
            self._machine.found(self._cell.founding_roster)
            if self._store.index:
                self._machine.load(read_table)
        recovery = read_log(self.directory, self._store)
        self.hard_state: HardState = recovery.hard_state
        self.last_index, self.last_term = recovery.last_index, recovery.last_term
        self.last_command = next(
            (entry.data for entry in reversed(recovery.entries) if entry.kind is EntryKind.COMMAND), b""
        )
        self._highest_id = self._cell.configuration.highest_id
        for first_index, commands in self._runs(recovery.entries):
            self._machine.apply_batch(first_index, commands)

    def _runs(self, entries: list[Entry]) -> Iterator[tuple[int, list[bytes]]]:
        """The commands behind the checkpoint, those of changes of the members too, and the index of each first one."""
        commands = []
        for entry in entries:
            data = entry.data
            if entry.kind is EntryKind.CONFIGURATION:
                change = ConfChange.decode(data)
                data = change.context
                self._highest_id = max(self._highest_id, *(step.member for step in change.steps), 0)
            if data and entry.index > self._store.index:
                commands.append((entry.index, data))
        for _, run in groupby(enumerate(commands), lambda placed: placed[1][0] - placed[0]):
            numbered = [command for _, command in run]
            yield numbered[0][0], [data for _, data in numbered]

    def _record(self, by: By) -> Renewal:
        member = self.meta.member
        if self.meta.raft_id not in self.roster.members:
            raise DirectoryError(f"{self.directory.path}: member {member} was removed from the cell")
        return Renewal(
            by.time, "", by.host, by.user, by.version, member, self.meta.raft_id, self.meta.cell,
            new_cell=os.urandom(CELL_ID_BYTES).hex(),
            old_members=self.roster.text.splitlines(),
            last_index=self.last_index,
            last_term=self.last_term,
            commit_index=self.hard_state.commit,
            first_index=self.last_index + INDEX_LEAP,
            term=self.hard_state.term + 1,
        )  # fmt: skip

    def _store_beginning(self, record: Renewal, roster_command: Callable[[Roster], bytes]) -> None:
        """The state that the new cell begins with. It has no founding members: who joins takes a snapshot."""
        raft_id = record.raft_id
        alone = Roster({raft_id: replace(self.roster.members[raft_id], role=Role.VOTER)})
        self._machine.apply_batch(record.first_index, [roster_command(alone)])
        configuration = Configuration(frozenset({raft_id}), highest_id=max(self._highest_id, raft_id))
        changes = {**self._machine.take_changes(), **CellState(configuration, Roster(), {}).changes()}
        self._store.write(changes, record.first_index, record.term)

    def _forget_peers(self) -> None:
        path = os.path.join(self.directory.path, "peers")
        if os.path.exists(path):
            self._files.remove(path)
            self._files.sync_directory(self.directory.path)


def _member_of(path: str) -> int:
    """Whose directory it is; unlike a start, nothing is made where there is none."""
    meta_path = os.path.join(path, "meta")
    try:
        with open(meta_path, "rb") as file:
            return Meta.decode(file.read(), meta_path).member
    except FileNotFoundError:
        raise DirectoryError(f"{path} is no data directory: it has no file `meta`") from None
