"""Random trouble for a cell of whole replicas, from a seed; in the end it has to agree, and to have kept its word.

python -m tests.zab_raft.cell.trouble --seeds FIRST COUNT
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.zab_raft.cell.cell import Cell
from tests.zab_raft.cell.hand_over import hand_over
from tests.zab_raft.cell.journal import change_command, command, original
from znoded.zab_raft.core.errors import Refused

EVENTS = 120
RECOVERY_S = 60.0


class Read:
    """A read: when it is confirmed, its member has applied all that was acknowledged before it was asked."""

    def __init__(self, trouble: Trouble, number: int) -> None:
        self._expected = set(trouble.acknowledged())
        self._trouble = trouble
        self._journal = trouble.cell[number].journal

    def __call__(self, confirmed: bool) -> None:
        self._trouble.reads[confirmed] += 1
        if confirmed:
            missing = self._expected - set(map(original, self._journal.effects))
            assert not missing, f"a read does not see {sorted(missing)[:3]}"


class Trouble:
    """One run."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        members = self.chance.choice((1, 2, 3, 3, 3, 4, 5))
        self.cell = Cell(
            directory, members, segment_bytes=1 << 14, log_tail_bytes=self.chance.choice((1 << 10, 1 << 16))
        )
        self.cell.random_below = self._random_below  # type: ignore[method-assign]
        self.reads = {True: 0, False: 0}
        self._clients: dict[int, int] = {}  # of each member's process: its client, and how much that has asked for
        self._asked: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        self._acknowledged: set[bytes] = set()

    def _random_below(self, number: int) -> Callable[[int], int]:
        return self.chance.randrange

    def run(self) -> None:
        cell = self.cell
        for number in list(cell.members):
            self._start(number)
        cell.run_until(lambda: all(each.started.called for each in cell.running))
        events = [
            (self._propose, 12),
            (self._read, 4),
            (self._kill, self.chance.choice((0, 1, 3))),
            (self._start_one, 3),
            (self._cut, self.chance.choice((0, 1, 3))),
            (self._heal, 3),
            (self._hold, self.chance.choice((0, 2))),
            (self._release, 3),
            (self._checkpoint, 2),
            (self._hand_over, 1),
            (self._change, self.chance.choice((0, 0, 1))),
        ]
        happenings = [event for event, _ in events]
        weights = [weight for _, weight in events]
        for _ in range(EVENTS):
            self.chance.choices(happenings, weights)[0]()
            cell.run(self.chance.choice((0.0, 0.001, 0.003, 0.02, 0.3)))
            self.acknowledged()
        self._recover()

    def acknowledged(self) -> set[bytes]:
        """All commands that were applied where they were proposed: their clients have an answer."""
        for each in self.cell.members.values():
            client = self._client_of.get(each.number)
            own = b"%d " % client if client else b"-"
            self._acknowledged |= {
                done for effect in each.journal.effects if (done := original(effect)).startswith(own)
            }
        return self._acknowledged

    def _recover(self) -> None:
        cell = self.cell
        cell.network.heal()
        for each in list(cell.members.values()):
            if each.number not in cell.network.ends:
                self._start(each.number)
            if hasattr(each, "log_thread"):
                each.log_thread.release()
        cell.run_until(lambda: any(each.replica.leads for each in cell.running), RECOVERY_S)
        cell.run(5)
        members = cell.leader.replica.roster.members
        for each in cell.running:
            if not each.started.called or each.replica.directory.identity.raft_id not in members:
                each.kill()  # it was removed, and nobody tells it
        cell.run_until(lambda: all(not each.replica.outstanding for each in cell.running), RECOVERY_S)
        cell.check()
        effects = list(map(original, cell.running[0].journal.effects))
        missing = self.acknowledged() - set(effects)
        assert not missing, f"acknowledged and lost: {sorted(missing)[:3]}"

    # ---- events

    def _some(self) -> int:
        return self.chance.choice([each.number for each in self.cell.running] or [0])

    def _start(self, number: int) -> None:
        self.cell[number].start()
        self._client_of[number] = client = 1000 + len(self._asked)
        self._asked[client] = 0

    def _next(self, number: int) -> tuple[int, int]:
        client = self._client_of[number]
        self._asked[client] += 1
        return client, self._asked[client]

    def _propose(self) -> None:
        number = self._some()
        if number and self.cell[number].replica.writable:
            size_bytes = self.chance.choice((0, 10, 3_000))
            count = self.chance.choice((1, 3, 20))
            commands = [command(*self._next(number), size_bytes) for _ in range(count)]
            assert self.cell[number].replica.propose(commands)

    def _change(self) -> None:
        number = self._some()
        if number and self.cell[number].replica.writable:
            known = sorted(self.cell.members)
            members = [f"{each}{self.chance.choice(('', '', 'L'))}" for each in known if self.chance.random() < 0.8]
            if any(not each.endswith("L") for each in members):
                client, sequence = self._next(number)
                assert self.cell[number].replica.propose_change(change_command(client, sequence, *members))

    def _read(self) -> None:
        number = self._some()
        if number and self.cell[number].started.called:
            self.cell[number].replica.confirm_reads(Read(self, number))

    def _kill(self) -> None:
        number = self._some()
        if number and self.cell[number].started.called:
            self.acknowledged()
            member = self.cell[number]
            if self.chance.random() < 0.5:
                member.kill()
            else:
                member.cut_power()

    def _start_one(self) -> None:
        down = [number for number in self.cell.members if number not in self.cell.network.ends]
        if down:
            self._start(self.chance.choice(down))

    def _cut(self) -> None:
        numbers = list(self.cell.members)
        if self.chance.random() < 0.5:
            self.cell.network.cuts.add((self.chance.choice(numbers), self.chance.choice(numbers)))
        else:
            self.cell.network.cut(*self.chance.sample(numbers, len(numbers) // 2))

    def _heal(self) -> None:
        self.cell.network.heal()

    def _hold(self) -> None:
        number = self._some()
        if number:
            self.cell[number].log_thread.held = True

    def _release(self) -> None:
        for each in self.cell.running:
            if each.started.called:
                each.log_thread.release()

    def _checkpoint(self) -> None:
        number = self._some()
        if number and self.cell[number].started.called:
            self.cell[number].replica._checkpointer.begin()

    def _hand_over(self) -> None:
        number = self._some()
        if number and self.cell[number].replica.leads:
            try:
                hand_over(self.cell[number].replica, self._some())
            except Refused:
                return


def run(seed: int) -> Trouble:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        trouble = Trouble(Path(directory), seed)
        try:
            trouble.run()
        except BaseException as error:
            error.add_note(
                f"seed {seed}; again: python -m tests.zab_raft.cell.trouble --seeds {seed} 1; {trouble.cell}"
            )
            raise
        return trouble


def main() -> None:
    parser = argparse.ArgumentParser(description="Random trouble for cells of whole replicas.")
    parser.add_argument("--seeds", nargs=2, type=int, metavar=("FIRST", "COUNT"), required=True)
    first, count = parser.parse_args().seeds
    for seed in range(first, first + count):
        run(seed)
    print(f"{count} seeds from {first}: no fault found")


if __name__ == "__main__":
    main()
