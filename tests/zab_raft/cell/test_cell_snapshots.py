"""Members that lag behind the log get a snapshot, whole and once, and go on behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from tests.zab_raft.cell.cell import Cell
from tests.zab_raft.cell.journal import CellJournal
from znoded.zab_raft.checkpointer import Checkpointer
from znoded.zab_raft.core.messages import InstallSnapshot


def lag_behind_the_log(cell: Cell, number: int = 3) -> None:
    """Kill the member, and let the others forget what it lacks."""
    cell[number].kill()
    for _ in range(8):
        cell.write(1, 3, size_bytes=9_000)
        for other in (1, 2):
            cell.checkpoint(other)


def test_member_that_lags_behind_the_log_gets_a_snapshot(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(3, 2)
    lag_behind_the_log(cell)
    cell[3].start()
    cell.settle()
    assert cell[3].journal.loads == 1
    cell.write(3, 2)
    cell.check()
    assert cell[3].replica._store.index > 20


def test_d10_crash_right_after_a_snapshot_is_in_place_leaves_it(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    cell[3].start()
    cell.run_until(lambda: cell[3].started.called)
    cell[3].log_thread.held = True
    cell.run_until(lambda: cell[3].journal.loads == 1)  # the log does not begin behind it yet
    index = cell[3].replica._store.index
    cell[3].cut_power()
    cell[3].start()
    cell.run_until(lambda: cell[3].started.called)
    assert cell[3].replica.applied_index >= index
    cell.settle()
    cell.write(3)
    cell.check()


def test_l8_snapshot_that_did_not_arrive_is_sent_again(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    cell.network.snapshots_work = False
    cell[3].start()
    cell.run(1)
    cell.network.snapshots_work = True
    cell.settle()
    assert cell[3].journal.loads == 1
    cell.check()


@pytest.mark.parametrize(("stream_s", "rounds"), [(0.5, 40), (5.0, 60)])
def test_member_gets_on_from_a_snapshot_although_much_is_written_while_it_is_on_its_way(
    quick_path: Path, stream_s: float, rounds: int
) -> None:
    """In 5 s more is written than the log keeps for members that lag a little."""
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    cell.network.snapshot_delay_s = stream_s
    cell[3].start()
    for _ in range(rounds):
        cell.write(1, 10, size_bytes=1_000)
        cell.run(0.5)
        cell.checkpoint(1)
    assert cell[3].journal.loads == 1
    cell.settle()
    cell.checkpoint(1)
    stored = cell[1].replica._running.raft.log.stored
    assert stored.last_index - stored.first_index < 100, "what was kept for member 3 is not forgotten"


def test_log_does_not_keep_all_for_a_member_whose_snapshot_does_not_get_on(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    cell.network.snapshot_delay_s = 1_000.0
    cell[3].start()
    cell.run_until(lambda: cell[3].started.called)
    with capturedLogs() as events:
        for _ in range(60):
            cell.write(1, 10, size_bytes=1_000)
            cell.run(0.01)
            cell.checkpoint(1)
    stored = cell[1].replica._running.raft.log.stored
    assert stored.last_index - stored.first_index < 8 * 75
    assert [formatEvent(event) for event in events].count(
        "Member 3 is too far behind for the log: it gets a snapshot"
    ) == 1


def test_own_commands_that_came_with_a_snapshot_are_done(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    written = cell.propose(3, 2)
    cell.run_until(lambda: set(written) <= set(cell[1].journal.effects))
    cell.network.cut(3)
    own = cell[3].replica._proposals.own
    own.add(written)  # as if they had not been applied yet
    own.take()
    for _ in range(8):
        cell.write(1, 3, size_bytes=9_000)
        for other in (1, 2):
            cell.checkpoint(other)
    assert cell[3].replica.leader == 1
    cell.network.cuts.clear()
    cell.run_until(lambda: cell[3].journal.loads == 1)
    cell.run_until(lambda: not cell[3].replica.outstanding)
    cell.check()


def test_l8_leader_that_never_heard_that_its_snapshot_arrived_goes_on_behind_it(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    cell[3].start()
    cell.run_until(lambda: cell[3].journal.loads == 1)
    cell.network.cuts.add((3, 1))  # the answer is lost
    cell.run_until(lambda: cell[3].replica.applied_index > 20)
    cell[1].replica.snapshot_finished(3, delivered=False)
    cell.network.heal()
    cell.settle()
    cell.check()


def read_ahead_slowly(monkeypatch: pytest.MonkeyPatch) -> Deferred[None]:
    """When to go on with what the thread reads of a snapshot."""
    released: Deferred[None] = Deferred()
    in_thread = Checkpointer.in_thread

    def slow_in_thread(checkpointer: Checkpointer, call: Callable[..., Any], *arguments: object) -> Deferred[Any]:
        if getattr(call, "__func__", None) is not CellJournal.read_ahead:
            return in_thread(checkpointer, call, *arguments)
        done: Deferred[Any] = Deferred()
        released.addCallback(lambda _none: in_thread(checkpointer, call, *arguments).chainDeferred(done))
        return done

    monkeypatch.setattr(Checkpointer, "in_thread", slow_in_thread)
    return released


def test_nothing_is_applied_while_the_machine_reads_a_snapshot(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    cell[3].start()
    released = read_ahead_slowly(monkeypatch)
    cell.run(1)
    written = cell.write(1, 3)
    cell.run(1)
    assert cell[3].journal.applied == []
    assert cell[3].journal.loads == 0
    assert cell[3].replica.leader == 1  # whose heartbeats it hears
    assert cell[1].replica.leads
    released.callback(None)
    cell.run_until(lambda: set(written) <= set(cell[3].journal.effects))
    cell.check()


def test_a_member_that_ends_while_it_reads_a_snapshot_loads_it_at_the_next_start(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell(quick_path).start()
    lag_behind_the_log(cell)
    written = list(cell[1].journal.effects)
    cell[3].start()
    released = read_ahead_slowly(monkeypatch)
    cell.run(1)
    journal = cell[3].journal
    cell[3].cut_power()
    released.callback(None)
    assert journal.loads == 0
    cell[3].start()
    cell.run_until(lambda: set(written) <= set(cell[3].journal.effects))
    cell.check()


def test_snapshot_that_is_of_no_use_is_not_taken(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1, 3)
    cell.settle()
    cell.checkpoint(1)
    snapshot = cell[1].replica._running.raft.log.stored.snapshot
    assert not cell[2].replica.wants_snapshot(InstallSnapshot(1, 2, 1, snapshot))
    cell[2].replica.snapshot_arrived(InstallSnapshot(1, 2, 1, snapshot), "nowhere")
    cell.run(0.1)
    cell.check()
