"""A cell of whole replicas on real disks, driven by hand. Nothing here waits for the time of day."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from tests.zab_raft.cell.hand_over import hand_over
from tests.zab_raft.cell.journal import CellJournal, command, member
from tests.zab_raft.cell.network import Network, SimulatedPeers
from tests.zab_raft.pump import PumpReactor
from znoded.zab_raft.cell.options import CellOptions
from znoded.zab_raft.cell.replica import CellReplica
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.files import Files
from znoded.zab_raft.log import Batch, Log
from znoded.zab_raft.peers.founding import Table
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler
from znoded.zab_raft.storage_options import StorageOptions

STEP_S = 0.001
PATIENCE_S = 30.0
NEVER_MS = 10**9


class Pool:
    """A thread pool that works at once, in the caller's thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def callInThreadWithCallback(
        self, on_result: Callable[[bool, Any], None], call: Callable[..., Any], *arguments: Any
    ) -> None:
        try:
            result = call(*arguments)
        except Exception:
            on_result(False, Failure())
        else:
            on_result(True, result)


class HandLogThread:
    """Writes when the test lets it: `held`, nothing becomes durable, and a crash loses all that waits."""

    def __init__(
        self,
        log: Log,
        reactor: PumpReactor,
        on_synced: Callable[[Batch], None],
        on_writable: Callable[[bool], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.held = False
        self.dead = False
        self.waiting: deque[Batch] = deque()
        self.on_writable = on_writable
        self.on_fatal = on_fatal
        self._reactor = reactor
        self._on_synced = on_synced

    def start(self) -> None:
        self.log.prepare()

    def append(self, batch: Batch) -> None:
        self.waiting.append(batch)
        self._reactor.callLater(0, self._work)

    def forget(self, index: int) -> None:
        if not self.dead:
            self.log.forget(index)

    def release(self) -> None:
        self.held = False
        self._work()

    def write_one(self) -> None:
        """Make the oldest write durable."""
        batch = self.waiting.popleft()
        self.log.append(batch)
        if not self.log.has_spare:
            self.log.prepare()
        self._reactor.callLater(0, self._report, batch)

    def _report(self, batch: Batch) -> None:
        if not self.dead:
            self._on_synced(batch)

    def _work(self) -> None:
        while self.waiting and not self.held and not self.dead:
            self.write_one()

    def stop(self) -> Deferred[None]:
        self.release()
        self.dead = True
        self.log.close()
        return succeed(None)


class TestMember:
    """One member: its disk, and its process as long as that runs."""

    __test__ = False

    def __init__(self, cell: Cell, number: int) -> None:
        self.number = number
        self.directory = cell.directory / f"member-{number}"
        self.errors: list[BaseException] = []
        self.replica: CellReplica
        self.journal: CellJournal
        self.log_thread: HandLogThread
        self.started: Deferred[None]
        self._cell = cell

    def start(self) -> TestMember:
        cell = self._cell
        self.journal = CellJournal(self._configuration)
        self.errors = []
        options = CellOptions(
            StorageOptions(str(self.directory), self.number, cell.segment_bytes, NEVER_MS, cell.checkpoint_bytes),
            cell.roster,
            cell.table,
            log_tail_bytes=cell.log_tail_bytes,
        )
        self.replica = CellReplica(
            cell.reactor,
            options,
            self.journal,
            self.errors.append,
            self._make_peers,
            Files(),
            self._make_log_thread,
            cast(Any, Pool),
            cell.random_below(self.number),
        )
        self.started = self.replica.start()
        self.started.addErrback(self._failed)
        return self

    def _failed(self, failure: Failure) -> None:
        self.errors.append(cast(BaseException, failure.value))

    def kill(self) -> None:
        """End the process: what was not durable is lost, the others see its connections closed."""
        self._end()
        self._cell.network.die(self.number)

    def cut_power(self) -> None:
        """End the machine: as `kill`, but nobody hears of it."""
        self._end()
        del self._cell.network.ends[self.number]

    def _end(self) -> None:
        self.log_thread.dead = True
        self.replica._failed = True
        self.replica._store.close()
        self.replica.directory.close()
        self._peers.is_open = False
        self.log_thread.log.close()

    def stop(self) -> None:
        self._cell.result_of(self.replica.stop())

    def _configuration(self) -> Configuration:
        return self.replica.configuration

    def _make_peers(self, identity: Identity, path: str, handler: PeerHandler) -> Any:
        self._peers = SimulatedPeers(self._cell.network, identity, handler)
        return self._peers

    def _make_log_thread(self, *arguments: Any) -> Any:
        self.log_thread = HandLogThread(*arguments)
        return self.log_thread


class Cell:
    """`start` founds it. Member 1 is the first to stand, if the test does not say otherwise."""

    def __init__(
        self,
        directory: Path,
        members: int = 3,
        segment_bytes: int = 1 << 16,
        checkpoint_bytes: int = 1 << 40,
        log_tail_bytes: int = 1 << 16,
    ) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.checkpoint_bytes = checkpoint_bytes
        self.log_tail_bytes = log_tail_bytes
        self.reactor = PumpReactor()
        self.network = Network(self.reactor, directory)
        self.roster = Roster.founding(member(number) for number in range(1, members + 1))
        self.table = Table(
            b"table",
            frozenset(range(1, members + 1)),
            {each.number: each.peer for each in self.roster.members.values()},
        )
        self.members = {number: TestMember(self, number) for number in range(1, members + 1)}
        self._sequences: dict[int, int] = {}

    def __getitem__(self, number: int) -> TestMember:
        return self.members[number]

    def start(self, leader: int = 1) -> Cell:
        """Found the cell and let this member lead it."""
        for each in self.members.values():
            each.start()
        self.run_until(lambda: all(each.started.called for each in self.members.values()))
        self.elect(leader)
        return self

    def elect(self, number: int) -> None:
        """Let this member lead: the first one to, or by the hand of the present leader."""
        if self[number].replica.has_leader:
            hand_over(self.leader.replica, number)
        else:
            self[number].replica._stand()
        self.run_until(lambda: all(each.replica.leader == number for each in self.running))
        self.run_until(lambda: self[number].replica.leads)

    def join(self, number: int) -> TestMember:
        """Start a member that is not among the founding ones; it is in no roster yet."""
        joining = self.members[number] = TestMember(self, number)
        return joining.start()

    @property
    def running(self) -> list[TestMember]:
        return [each for each in self.members.values() if each.number in self.network.ends]

    @property
    def leader(self) -> TestMember:
        """The one that leads, in the highest term if there are two."""
        leaders = [each for each in self.running if each.replica.leads]
        return max(leaders, key=lambda each: each.replica.term)

    def random_below(self, number: int) -> Callable[[int], int]:
        """Members' election timeouts differ, in the order of their numbers; the first has the shortest."""
        return lambda limit: min(limit - 1, 3 * (number - 1))

    def run(self, seconds: float) -> None:
        """Let this much time pass."""
        for _ in range(round(seconds / STEP_S)):
            self._step()

    def run_until(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Let time pass until the condition holds."""
        for _ in range(round(seconds / STEP_S)):
            if condition():
                return
            self._step()
        raise AssertionError(f"it did not come to that: {self}")

    def _step(self) -> None:
        self.reactor.run_calls()
        self.reactor.advance(STEP_S)
        for each in self.running:
            assert not each.errors, each.errors

    def result_of(self, deferred: Deferred[Any]) -> Any:
        results: list[Any] = []
        deferred.addBoth(results.append)
        self.run_until(lambda: bool(results))
        if isinstance(results[0], Failure):
            results[0].raiseException()
        return results[0]

    def write(self, number: int, count: int = 1, size_bytes: int = 0) -> list[bytes]:
        """Propose so many commands of the member's client, and return when they are applied there."""
        commands = self.propose(number, count, size_bytes)
        self.run_until(lambda: set(commands) <= set(self[number].journal.effects))
        return commands

    def propose(self, number: int, count: int = 1, size_bytes: int = 0) -> list[bytes]:
        """Propose so many commands of the member's client, one by one."""
        before = self._sequences.get(number, 0)
        self._sequences[number] = before + count
        commands = [command(number, sequence, size_bytes) for sequence in range(before + 1, before + count + 1)]
        for each in commands:
            assert self[number].replica.propose([each])
        return commands

    def next_sequence(self, number: int) -> int:
        self._sequences[number] = self._sequences.get(number, 0) + 1
        return self._sequences[number]

    def settle(self) -> None:
        """Return when all that run have applied the same."""
        self.run_until(self._agree)

    def _agree(self) -> bool:
        ends = {(each.replica.applied_index, each.replica.last_index) for each in self.running}
        return len(ends) == 1 and len(set(ends.pop())) == 1

    def check(self) -> None:
        """All that run have the same state, and nothing was applied twice."""
        self.settle()
        states = {tuple(each.journal.effects) for each in self.running}
        assert len(states) == 1
        effects = list(states.pop())
        assert len(set(effects)) == len(effects)

    def checkpoint(self, number: int) -> None:
        replica = self[number].replica
        self.result_of(replica._checkpointer.begin())

    def __str__(self) -> str:
        return ", ".join(
            f"{each.number}: {each.replica.mode} of term {each.replica.term}, leader {each.replica.leader}, "
            f"applied {each.replica.applied_index} of {each.replica.last_index}"
            for each in self.running
            if each.started.called
        )
