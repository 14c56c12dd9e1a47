"""How a member of a cell begins: blank, or from what is on its disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from znoded.zab_raft.cell.directory import CellDirectory
from znoded.zab_raft.cell.log import CellLog
from znoded.zab_raft.cell.machine import CellMachine
from znoded.zab_raft.cell.recovery import CellRecovery
from znoded.zab_raft.cell.renewals import look_for_renewal
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.state import CellState, read_cell
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.core.messages import NOBODY
from znoded.zab_raft.core.node import Node
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.errors import LogDamaged
from znoded.zab_raft.peers.founding import Found, Join
from znoded.zab_raft.peers.identity import CELL_ID_BYTES


class Recovered(NamedTuple):
    """What was on the disk. Everything of the log that counts is durable in a new segment of `log`.

    `writes` are what was written again: the last index of each, and its size in bytes.
    """

    cell: CellState
    node: Node
    log: CellLog
    writes: list[tuple[int, int]]


def enter(directory: CellDirectory, store: Checkpoint, decision: Found | Join, roster: Roster) -> None:
    """Make a blank member one of a cell, durably; a crash in between leaves it blank. `roster` founds a new cell."""
    if isinstance(decision, Found):
        cell_id, raft_id = os.urandom(CELL_ID_BYTES), roster.raft_id(directory.meta.member) or NOBODY
        cell = CellState.founding(roster)
    else:
        welcome = decision.welcome
        cell_id, raft_id = welcome.cell, welcome.raft_id
        if welcome.founding:
            cell = CellState.founding(Roster.decode(welcome.roster))
        else:
            cell = CellState.joining(welcome.members)
    store.write(cell.changes(), 0, 0)
    directory.enter_cell(cell_id, raft_id)


def recover(
    directory: CellDirectory,
    store: Checkpoint,
    machine: CellMachine,
    segment_bytes: int,
    log_tail_bytes: int,
    options: Options,
    random_below: Callable[[int], int],
) -> Recovered:
    """Bring the machine to the checkpoint, and the core to the log. Raises StorageError or OSError."""
    look_for_renewal(directory)
    with store.reading() as read_table:
        cell = read_cell(read_table)
        machine.found(cell.founding_roster)
        if store.index:
            machine.load(read_table)
    recovery = read_log(directory, store)
    recovery.cut_tail(log_tail_bytes)
    state = recovery.hard_state
    log = CellLog(directory.log_path, segment_bytes, directory.files)
    indexes = recovery.first_index, recovery.last_index
    tail = list(recovery.tail())
    log.begin(recovery.sequence + 1, state, *indexes, [payload for _, payload in tail], recovery.segments)
    directory.set_initialised()
    stored = recovery.stored(cell.configuration)
    node = Node(directory.meta.raft_id, stored, state, random_below, options)
    return Recovered(cell, node, log, [(last_index, len(payload)) for last_index, payload in tail])


def read_log(directory: CellDirectory, store: Checkpoint) -> CellRecovery:
    """What the log has beside the checkpoint. Raises LogDamaged, also if there is none and there was."""
    recovery = CellRecovery(directory.log_path, store.index, store.term)
    if recovery.empty and directory.meta.initialised:
        raise LogDamaged(
            f"{directory.log_path} has no segment; remove this member from the cell, empty its data directory and add "
            "it again"
        )
    recovery.read()
    return recovery
