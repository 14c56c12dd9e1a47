"""The order in which Readies are written, and which of them are joined."""

from __future__ import annotations

from typing import cast

from znoded.zab_raft.cell.log import Readies
from znoded.zab_raft.cell.write_queue import WriteQueue
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Entry, EntryKind, HardState, Snapshot
from znoded.zab_raft.core.node import Ready
from znoded.zab_raft.log import Batch


class Disk:
    """What the writer gave away, and a writer."""

    def __init__(self) -> None:
        self.batches: list[Readies] = []
        self.installing: list[Ready] = []
        self.writer = WriteQueue(self._append, self.installing.append)
        self._numbers = 0

    def _append(self, batch: Batch) -> None:
        self.batches.append(cast(Readies, batch))

    def add(self, index: int = 0, term: int = 1, vote: int = 0, snapshot: int = 0) -> int:
        """A Ready with an entry of this index, with a snapshot, or with neither."""
        self._numbers += 1
        entries = [Entry(index, term, EntryKind.COMMAND, b"")] if index else []
        installed = Snapshot(snapshot, term, Configuration.of((1,))) if snapshot else None
        end = (index or snapshot or 9, term)
        self.writer.add(
            Ready(self._numbers, HardState(term, vote, 0), end, True, installed, entries, (), (), (), (), ())
        )
        return self._numbers

    @property
    def numbers(self) -> list[list[int]]:
        return [[ready.number for ready in batch.readies] for batch in self.batches]


def test_two_writes_are_under_way_and_the_rest_is_joined() -> None:
    disk = Disk()
    for index in range(1, 6):
        disk.add(index)
    assert disk.numbers == [[1], [2]]
    disk.writer.written(disk.batches[0])
    assert disk.numbers == [[1], [2], [3, 4, 5]]


def test_ready_that_changes_nothing_waits_for_the_write_before_it() -> None:
    disk = Disk()
    disk.add(1, term=2, vote=3)
    disk.add(term=2, vote=3)
    assert disk.numbers == [[1, 2]]


def test_ready_with_a_new_vote_is_written() -> None:
    disk = Disk()
    disk.add(1, term=2)
    disk.add(term=2, vote=3)
    disk.add(term=2, vote=3)
    assert disk.numbers == [[1], [2, 3]]
    disk.add(term=3, vote=1)
    assert disk.numbers == [[1], [2, 3]]
    disk.writer.written(disk.batches[0])
    assert disk.numbers == [[1], [2, 3], [4]]


def test_ready_that_changes_nothing_is_written_when_nothing_is_under_way() -> None:
    disk = Disk()
    disk.add()
    assert disk.numbers == [[1]]


def test_snapshot_waits_for_what_is_under_way_and_all_else_for_the_snapshot() -> None:
    disk = Disk()
    disk.add(1)
    disk.add(2)
    disk.add(snapshot=50)
    disk.add(51)
    assert disk.writer.holds_snapshot
    disk.writer.written(disk.batches[0])
    assert disk.installing == []
    disk.writer.written(disk.batches[1])
    assert [ready.number for ready in disk.installing] == [3]
    assert disk.writer.is_installing
    assert disk.numbers == [[1], [2]]
    disk.writer.installed()
    assert disk.numbers == [[1], [2], [4]]
    assert not disk.writer.holds_snapshot
