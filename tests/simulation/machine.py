"""One simulated machine: its disk, its clocks, and the member that runs on it while it runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.simulation.disk import Disk, WorldLogThread, WorldPool
from tests.simulation.network import WorldPeers
from tests.simulation.reference import ObservedTree
from tests.simulation.world import Process, ProcessReactor
from tests.zab_raft.core.history import require
from tests.zab_raft.core.simulated_member import Disk as Durable
from znoded.config import Config
from znoded.server.cell_member import CellMember, cell_options
from znoded.tree.tree import Applied
from znoded.zab_raft.cell.log import Readies, Restart
from znoded.zab_raft.cell.replica import CellReplica
from znoded.zab_raft.cell.start import Recovered
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Snapshot
from znoded.zab_raft.core.node import Node, Ready
from znoded.zab_raft.log import Batch
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Voter:
    """One raft id: what is durable of it, and the core that runs with it; what `History` takes for a member."""

    def __init__(self, raft_id: int) -> None:
        self.id = raft_id
        self.disk = Durable(Snapshot(0, 0, Configuration()))
        self.process = 0
        self.node: Node | None = None

    @property
    def alive(self) -> Node:
        assert self.node is not None
        return self.node


class Voters(dict[int, Voter]):
    """All raft ids there ever were."""

    def __missing__(self, raft_id: int) -> Voter:
        self[raft_id] = voter = Voter(raft_id)
        return voter


class ObservedReplica(CellReplica):
    """Tells with what it begins, and which sessions its member decides to end."""

    decided: Callable[[bytes], None]
    began: Callable[[Node], None]
    looked_at: Callable[[], None]

    def _run(self, recovered: Recovered) -> None:
        self.began(recovered.node)
        super()._run(recovered)

    def _take(self, node: Node, ready: Ready) -> None:
        self.looked_at()  # before what was committed is applied, and may change whose majority counts
        super()._take(node, ready)

    def propose_ahead_of_reads(self, commands: list[bytes]) -> bool:
        for command in commands:
            self.decided(command)
        return super().propose_ahead_of_reads(commands)


class Machine:
    """`start` runs a member on it, `end` ends that."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.world = simulation.world
        self.number = number
        self.path = simulation.directory / f"member-{number}"
        self.disk = Disk()
        self.rate = 1.0
        self.wall_offset_s = 0.0
        self.process: Process | None = None
        self.member: CellMember
        self.replica: ObservedReplica
        self.tree: ObservedTree
        self.log_thread: WorldLogThread | None = None
        self.peers: WorldPeers
        self.voter: Voter | None = None
        #: When something last happened to it, or to its connections to others.
        self.trouble_s = 0.0
        #: When it went on after a long pause, or began.
        self.resumed_s = 0.0
        self.leads_since_s = 0.0
        self.leader: tuple[int, int] = (0, 0)
        self.leader_since_s = 0.0
        self._paused_s = 0.0
        self._led = False
        self._has_stopped = False
        self._seen: object = None

    @property
    def runs(self) -> bool:
        return self.process is not None

    @property
    def serves(self) -> bool:
        return self.process is not None and not self.process.is_paused and self.member.serving

    @property
    def is_listening(self) -> bool:
        """Clients may connect, even if nobody looks at them for now."""
        return self.process is not None and self.member.serving

    @property
    def has_entered(self) -> bool:
        return self.process is not None and self.replica._node is not None

    @property
    def leads(self) -> bool:
        return self.has_entered and self.replica.leads

    # ---- life

    def start(self) -> None:
        self.world.note(f"{self.number} starts")
        self.trouble_s = self.world.now_s
        process = Process(self.world, str(self.number), self.rate, self.wall_offset_s, self._look)
        self.process, self.voter, self.log_thread, self._seen, self._led = process, None, None, None, False
        self.disk.fails = self._has_stopped = False
        self.resumed_s = self.world.now_s
        self.leader, self.leader_since_s = (0, 0), self.world.now_s
        process.run(partial(self._run, process))

    def _run(self, process: Process) -> None:
        config = self.simulation.config_of(self.number)
        reactor = ProcessReactor(process, partial(self._wants_to_end, process))
        self.member = CellMember(config, reactor)
        self.tree = cast(ObservedTree, self.member.tree)
        self.tree.observe = self._applied
        self.tree.loaded = self.simulation.reference.loaded
        started: Deferred[Any] = self.member.start()
        started.addErrback(partial(self._start_failed, process))

    def make_replica(
        self, config: Config, reactor: Any, _storage: Any, member: Any, on_fatal: Callable[[BaseException], None]
    ) -> ObservedReplica:
        assert self.process is not None
        pool = WorldPool(self.process)
        self.replica = ObservedReplica(
            reactor,
            cell_options(config),
            member,
            on_fatal,
            partial(self._make_peers, self.process),
            self.disk.files,
            cast(Any, partial(self._make_log_thread, self.process)),
            cast(Any, lambda: pool),
            self.world.random_below,
        )
        self.replica.decided = partial(self.simulation.sessions.decided, self)
        self.replica.began = self._began
        self.replica.looked_at = self._look
        return self.replica

    def _make_peers(self, process: Process, identity: Identity, _path: str, handler: PeerHandler) -> Any:
        self.peers = WorldPeers(self.simulation.network, process, identity, handler)
        return self.peers

    def _make_log_thread(self, process: Process, *arguments: Any) -> Any:
        self.log_thread = WorldLogThread(process, self.disk, self._durable, *arguments)
        return self.log_thread

    def _start_failed(self, process: Process, failure: Failure) -> None:
        self._has_stopped |= self.process is process  # it closed what it had opened
        if process.is_alive and not self.world.fault:
            self.world.fault = f"member {self.number} does not start: {failure.getErrorMessage()}"

    def _wants_to_end(self, process: Process) -> None:
        """The member cannot go on, and says so itself."""
        if self.process is process:
            require(self.disk.fails, "D14", f"member {self.number} ends by itself: {self.simulation.last_words}")
            self.world.at(0, f"{self.number} exits", partial(self._exit, process))

    def _exit(self, process: Process) -> None:
        if self.process is process:
            self.end()

    def end(self, is_heard: bool = True, torn_share: float | None = None) -> None:
        """The process is killed, or, if nobody hears of it, the machine is off."""
        process = self.process
        if process is None:
            return
        self.world.note(f"{self.number} ends{'' if is_heard else ' unheard'}")
        self.trouble_s = self.world.now_s
        self.process = None
        process.is_alive = False
        self.simulation.clients_of(self.number, process, is_heard)
        if hasattr(self, "peers") and self.peers.process is process:
            self.simulation.network.leave(self.peers, is_heard)
        if self.log_thread is not None:
            self.log_thread.crash(torn_share)
        replica = self.replica
        if hasattr(replica, "_store") and not self._has_stopped:
            replica._store.close()
        if hasattr(replica, "directory") and not self._has_stopped:
            replica.directory.close()
        self.member.poller._epoll.close()
        if self.voter is not None:
            self.voter.node = None

    def stop(self) -> None:
        """Have the member stop in good order; it ends when it is done."""
        process = self.process
        assert process is not None
        self.world.note(f"{self.number} stops")
        self.trouble_s = self.world.now_s

        def stop() -> None:
            stopping: Deferred[Any] = self.member.stop()
            stopping.addBoth(self._stopped, process)

        process.run(stop)

    def _stopped(self, _result: object, process: Process) -> None:
        if process.is_alive:
            self._has_stopped = True
            self.world.at(0, f"{self.number} exits", partial(self._exit, process))

    def wipe(self) -> None:
        """All that was on its disk is gone."""
        self.world.note(f"{self.number} is wiped")
        shutil.rmtree(self.path)
        self.simulation.network.incarnations.pop(self.number, None)

    def pause(self) -> None:
        assert self.process is not None
        self.world.note(f"{self.number} pauses")
        self.process.is_paused = True
        self.trouble_s = self._paused_s = self.world.now_s

    def resume(self) -> None:
        assert self.process is not None
        self.world.note(f"{self.number} resumes")
        self.trouble_s = self.world.now_s
        if (self.world.now_s - self._paused_s) * self.rate > 3 * self.member.config.tick_ms / 1000:
            self.resumed_s = self.world.now_s
        self.process.resume()

    # ---- what becomes of it

    def _durable(self, batch: Batch) -> None:
        assert self.voter is not None
        if isinstance(batch, Restart):
            self.simulation.reached["snapshot"] += 1
            self.voter.disk.write(batch.ready, b"")
        elif isinstance(batch, Readies):
            for ready in batch.readies:
                self.voter.disk.write(ready, b"")
        self.simulation.history.stored(cast(Any, self.voter))

    def _applied(self, tree: ObservedTree, index: int, command: bytes, result: Applied) -> None:
        self.world.digest.update(b"%d %d" % (self.number, index))
        self.simulation.reference.applied(tree, index, command, result)

    def _look(self) -> None:
        """Something happened in the process: nothing that must not be."""
        node = self.replica._node
        if node is None:
            return
        voter = self.voter
        assert voter is not None
        unstable = node.raft.log.unstable
        seen = node.term, node.committed_index, node.applied_index, node.last_index, node.role, len(unstable.entries)
        if seen == self._seen and self.leader == (node.leader, node.term):
            return
        self._seen = seen
        leads = self.replica.leads
        if leads and not self._led:
            self.leads_since_s = self.world.now_s
        self._led = leads
        if self.leader != (node.leader, node.term):
            self.leader, self.leader_since_s = (node.leader, node.term), self.world.now_s
        if not self.replica._write_queue.is_installing:
            stored = node.raft.log.stored.snapshot
            if voter.disk.snapshot.index < stored.index <= voter.disk.last_index:
                voter.disk.checkpoint(stored, b"")
        self.simulation.history.check(cast(Any, voter))

    def _began(self, node: Node) -> None:
        """The process read its disk: all that was durable is there."""
        self.voter = voter = self.simulation.voters[node.id]
        before = voter.disk
        log = node.raft.log
        state = before.hard_state
        require(node.term >= state.term, "D3", f"the term goes back to {node.term} from {state.term}")
        if node.term == state.term and state.vote:
            require(node.raft.vote == state.vote, "D1", f"the vote for {state.vote} is forgotten")
        snapshot = log.stored.snapshot
        if before.term(snapshot.index) not in (None, snapshot.term):
            # It took the place of entries that were never committed, and the log was not begun behind it any more.
            committed_term, _ = self.simulation.history.committed[snapshot.index]
            require(snapshot.term == committed_term, "D2", f"{snapshot}, but {committed_term} is committed there")
        elif snapshot.index <= before.last_index:
            require(log.last_index >= before.last_index, "D2", f"{before.last_index} is gone, {log.last_index} is left")
            last_term = before.term(before.last_index)
            found_term = log.term(before.last_index)
            require(last_term in (None, found_term), "D2", f"the end of the log has term {found_term}, not {last_term}")
        disk = Durable(log.stored.snapshot)
        disk.entries = log.stored.slice(log.stored.snapshot.index + 1, log.last_index + 1)
        disk.hard_state = before.hard_state._replace(term=node.term, vote=node.raft.vote, commit=log.committed)
        voter.disk = disk
        voter.process += 1
        voter.node = node
        self.simulation.history.started(cast(Any, voter))


def quick_directory() -> str | None:
    """Where files are in memory, if there is such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
