"""A cell of simulated members under simulated trouble, from one seed.

Network: messages are dropped, repeated, delayed and so reordered; links are cut one way or both; members are parted.
Storage: writes complete late and in order; a crash loses those that are not durable, each whole or not at all. Time:
ticks of members differ, members are paused. Membership: voters and learners come and go. In the end all trouble stops,
and the cell has to come back.

To see one run:  python -m tests.zab_raft.core.simulation SEED
To try many:     python -m tests.zab_raft.core.simulation --seeds FIRST COUNT [--stop]
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import random
import sys
from collections import Counter, deque
from collections.abc import Callable

from tests.zab_raft.core.history import History, Violation, require
from tests.zab_raft.core.simulated_member import TICK, Member, Trouble
from znoded.zab_raft.core.conf_change import ConfChange, Step, StepKind
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import Refused
from znoded.zab_raft.core.messages import NOBODY, EntryKind, InstallSnapshot, Message, Snapshot
from znoded.zab_raft.core.node import Node, Ready, Role
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.stored import StoredLog

TRACE_LINES_SHOWN = 60


class Simulation:
    """One run. Equal seeds give equal runs, event by event."""

    def __init__(self, seed: int, show: bool = False) -> None:
        self.seed = seed
        self.now = 0
        self.trace: deque[str] = deque(maxlen=None if show else TRACE_LINES_SHOWN)
        self.trace_hash = hashlib.blake2b(digest_size=16)
        self.members: dict[int, Member] = {}
        self.history = History(self)
        self.chance = random.Random(seed)
        self.trouble = Trouble.drawn(self.chance)
        self.options = Options(
            election_ticks=self.chance.choice((4, 10)),
            heartbeat_ticks=1,
            snapshot_ticks=30,
            message_bytes=self.chance.choice((40, 120, 4000)),
            window_messages=self.chance.choice((1, 3, 20)),
            window_bytes=1000,
            tail_bytes=self.chance.choice((30, 300)),
            applying_bytes=self.chance.choice((40, 400)),
            reads=20,
        )
        self.reached: Counter[str] = Counter()
        """How often the run came to what it is meant to try."""
        self._show = show
        self._events: list[tuple[int, int, str, Callable[[], None]]] = []
        self._scheduled = 0
        self._cuts: set[tuple[int, int]] = set()
        self._commands = 0
        self._ended = False
        first = Configuration.of(range(1, self.trouble.members + 1))
        self.history.configurations[0] = first
        for member in sorted(first.voters):
            self._add(member, first)

    # The run

    def run(self) -> None:
        """Until the end, or raise what was violated, with the seed and the last events."""
        try:
            self._run()
        except Exception as error:
            lines = "\n".join(self.trace)
            raise Violation(
                f"{lines}\n{type(error).__name__} {error}\nseed {self.seed}, to see all of it:"
                f" python -m tests.zab_raft.core.simulation {self.seed}"
            ) from error

    def _run(self) -> None:
        self._at(self.chance.randrange(TICK), "trouble", self._make_trouble)
        for _ in range(self.trouble.events):
            self._next()
        self._end_trouble()
        self._await("a leader that commits", self._has_settled)
        self._await("equal members", self._is_equal)

    def _next(self) -> None:
        self.now, _, label, event = heapq.heappop(self._events)
        self._note(label)
        event()

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = self.now + 60 * self.options.election_ticks * TICK
        while not condition():
            require(self.now < deadline, "L1", f"no {what} after the trouble ended")
            self._next()

    def _at(self, delay: int, label: str, event: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now + delay, self._scheduled, label, event))

    def _note(self, text: str) -> None:
        line = f"{self.now} {text}"
        self.trace_hash.update(line.encode())
        self.trace.append(line)
        if self._show:
            print(line)

    # Members

    def _add(self, member: int, configuration: Configuration) -> None:
        new = Member(member, configuration)
        self.members[member] = new
        new.tick_units = int(TICK * self.chance.uniform(1 / self.trouble.skew, 1.0)) or 1
        self._start(new)

    def _start(self, member: Member) -> None:
        disk = member.disk
        member.process += 1
        member.digest, member.applied = disk.digest, disk.snapshot.index
        member.node = Node(
            member.id,
            StoredLog(disk.snapshot, disk.entries),
            disk.hard_state,
            random.Random(self.chance.random()).randrange,
            self.options,
        )
        self.history.started(member)
        self._schedule_tick(member)
        self._pump(member)

    def _crash(self, member: Member) -> None:
        """The process ends; of the writes under way, the first ones may have become durable."""
        for _ in range(self.chance.randint(0, len(member.writes))):
            self._write(member, member.writes.popleft())
        self.reached["crash"] += 1
        self.reached["lost write"] += len(member.writes)
        member.node = None
        member.paused = False
        member.held.clear()
        member.writes.clear()
        member.syncing = 0
        member.to_report.clear()
        member.to_apply.clear()
        member.arrived.clear()
        member.proposals.clear()
        member.reads.clear()

    def _on(self, member: Member, delay: int, label: str, action: Callable[[], None]) -> None:
        """Something happens at a member later, if it is the same process still; when it is paused, as it resumes."""
        process = member.process

        def event() -> None:
            if member.node is None or member.process != process:
                return
            if member.paused:
                member.held.append(event)
                return
            action()
            self.history.check(member)
            self._pump(member)

        self._at(delay, f"{member.id} {label}", event)

    def _schedule_tick(self, member: Member) -> None:
        def tick() -> None:
            member.alive.tick()
            self._schedule_tick(member)

        self._on(member, member.tick_units, "tick", tick)

    # The driver's part of the contract

    def _pump(self, member: Member) -> None:
        while (ready := member.alive.ready()) is not None:
            for message in ready.messages:
                self._send(member, message)
            if ready.must_store:
                member.writes.append(ready)
                if not member.syncing:
                    self._begin_sync(member)
            member.to_apply += ready.committed
            if ready.committed and not self.trouble.apply_delay:
                self._apply(member)
            elif ready.committed:
                delay = self.chance.randint(1, self.trouble.apply_delay)
                self._on(member, delay, "apply", lambda: self._apply(member))
            self.reached["read"] += len(ready.reads)
            self.reached["failed read"] += len(ready.failed_reads)
            for context in ready.reads:
                self.history.read_served(member.reads.pop(context), member.applied)
            for context in ready.failed_reads:
                del member.reads[context]
            self.history.check(member)

    def _begin_sync(self, member: Member) -> None:
        """All that wait are made durable together, but for a part of them now and then."""
        count = len(member.writes) if self.chance.random() < 0.7 else self.chance.randint(1, len(member.writes))
        member.syncing = count
        delay = self.chance.randint(1, self.trouble.disk_delay)
        self._on(member, delay, "stored", lambda: self._end_sync(member))

    def _write(self, member: Member, ready: Ready) -> None:
        digest = member.arrived[ready.snapshot.index] if ready.snapshot else b""
        member.disk.write(ready, digest)
        self.reached["snapshot"] += ready.snapshot is not None
        self.history.stored(member)

    def _end_sync(self, member: Member) -> None:
        done = [member.writes.popleft() for _ in range(member.syncing)]
        member.syncing = 0
        for ready in done:
            self._write(member, ready)
            for message in member.alive.after_sync(ready):
                self._send(member, message)
        member.to_report += done
        if self.trouble.report_delay:
            delay = self.chance.randint(1, self.trouble.report_delay)
            self._on(member, delay, "reported", lambda: self._report(member))
        else:
            self._report(member)
        if member.writes:
            self._begin_sync(member)

    def _report(self, member: Member) -> None:
        while member.to_report:
            self._report_write(member, member.to_report.popleft())
            self.history.check(member)

    def _report_write(self, member: Member, ready: Ready) -> None:
        if ready.snapshot:
            member.to_apply.clear()
            member.digest, member.applied = member.disk.digest, ready.snapshot.index
        member.alive.stored(ready)

    def _apply(self, member: Member) -> None:
        while member.to_apply:
            entry = member.to_apply.popleft()
            require(entry.index == member.applied + 1, "D20", f"{entry} behind {member.applied}")
            member.digest = self.history.apply(member, entry, member.digest)
            member.applied = entry.index
            if member.proposals.pop(entry.index, None) == entry.data and entry.kind is EntryKind.COMMAND:
                self.history.client_saw(entry.index)
        before = member.alive
        led, configuration = before.role is Role.LEADER, before.configuration
        member.alive.applied(member.applied)
        after = member.alive.configuration
        self.reached["change"] += after != configuration
        self.reached["joint change"] += after.joint and not configuration.joint
        self.reached["removed leader"] += led and member.alive.role is Role.FOLLOWER
        self.history.check(member)

    # The network

    def _send(self, member: Member, message: Message) -> None:
        self.history.leaves(member, message)
        copies = 1
        if not self._ended and self.chance.random() < self.trouble.drop:
            copies = 0
        elif not self._ended and self.chance.random() < self.trouble.repeat:
            copies = 2
        state = member.disk.digest
        for _ in range(copies):
            delay = self.chance.randint(1, 20)
            if not self._ended and self.chance.random() < self.trouble.late:
                delay = self.chance.randint(20, 40 * TICK)
            self._at(delay, f"{message}", lambda: self._arrive(message, state))

    def _arrive(self, message: Message, state: bytes) -> None:
        member = self.members[message.to]
        if (message.sender, message.to) in self._cuts or member.node is None:
            return
        if member.paused:
            member.held.append(lambda: self._arrive(message, state))
            return
        if type(message) is InstallSnapshot:
            member.arrived.setdefault(message.snapshot.index, state)
        commit = member.alive.committed_index
        self.reached[type(message).__name__] += 1
        last_index = member.alive.last_index
        member.alive.step(message)
        self.reached["cut of the log"] += member.alive.last_index < last_index
        self.history.stepped(member, message, commit)
        self.history.check(member)
        self._pump(member)

    # Trouble

    def _make_trouble(self) -> None:
        if self._ended:
            return
        trouble = self.trouble
        kinds: list[tuple[int, Callable[[], None]]] = [
            (24, self._client_proposes),
            (12, self._client_reads),
            (3, self._checkpoints),
            (trouble.crash, self._crashes_or_starts),
            (trouble.pause, self._pauses_or_resumes),
            (trouble.cut, self._cuts_or_heals),
            (trouble.change, self._changes_members),
            (trouble.elect, self._hands_over),
            (trouble.elect, self._campaigns),
            (1, self._reports),
        ]
        chosen = self.chance.choices([act for _, act in kinds], [weight for weight, _ in kinds])[0]
        chosen()
        self._at(self.chance.randint(1, TICK), "trouble", self._make_trouble)

    def _running(self) -> list[Member]:
        return [member for member in self.members.values() if member.node is not None and not member.paused]

    def _leader(self) -> Member | None:
        """One that believes to lead, most often the latest."""
        leaders = [member for member in self._running() if member.alive.role is Role.LEADER]
        if not leaders:
            return None
        if self.chance.random() < 0.2:
            return self.chance.choice(leaders)
        return max(leaders, key=lambda member: member.alive.term)

    def _asked(self, member: Member, label: str, action: Callable[[Node], object]) -> bool:
        """Call the member as its driver would; False if it refuses."""
        self._note(f"{member.id} {label}")
        try:
            action(member.alive)
        except Refused as refused:
            self._note(f"refused: {refused}")
            self.reached[refused.reason.name] += 1
            return False
        finally:
            self.history.check(member)
            self._pump(member)
        return True

    def _client_proposes(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        count = self.chance.randint(1, 3)
        commands = [b"c%d" % (self._commands + place) for place in range(count)]
        self._commands += count

        def propose(node: Node) -> None:
            first = node.propose(commands)
            leader.proposals.update(zip(range(first, first + count), commands, strict=True))

        self._asked(leader, f"propose {commands}", propose)

    def _client_reads(self) -> None:
        running = self._running()
        if not running:
            return
        member = self.chance.choice(running)
        self._commands += 1
        context = self._commands
        member.reads[context] = self.history.visible
        if not self._asked(member, f"read {context}", lambda node: node.read_index(context)):
            del member.reads[context]

    def _checkpoints(self) -> None:
        for member in self._running():
            snapshot = member.alive.snapshot()
            if snapshot is None or self.chance.random() < 0.5:
                continue
            self._checkpoint(member, snapshot)

    def _checkpoint(self, member: Member, snapshot: Snapshot) -> None:
        require(snapshot.index == member.applied, "M12", f"{snapshot} of a machine at {member.applied}")
        digest = member.digest
        keep_from = self.chance.randint(max(1, snapshot.index - 10), snapshot.index + 1)

        def complete() -> None:
            if snapshot.index > member.disk.snapshot.index:
                member.disk.checkpoint(snapshot, digest)
                member.alive.compact(snapshot, keep_from)

        self._on(member, self.chance.randint(1, 200), f"checkpoint {snapshot.index}", complete)

    def _crashes_or_starts(self) -> None:
        member = self.chance.choice(list(self.members.values()))
        if member.node is None:
            self._note(f"{member.id} starts")
            self._start(member)
        else:
            self._note(f"{member.id} crashes")
            self._crash(member)

    def _pauses_or_resumes(self) -> None:
        member = self.chance.choice(list(self.members.values()))
        if member.paused:
            self._resume(member)
        elif member.node is not None:
            self._note(f"{member.id} pauses")
            member.paused = True

    def _resume(self, member: Member) -> None:
        self._note(f"{member.id} resumes")
        member.paused = False
        held, member.held = member.held, []
        self.chance.shuffle(held)
        for event in held:
            self._at(self.chance.randint(0, 3), f"{member.id} held", event)

    def _cuts_or_heals(self) -> None:
        if self._cuts and self.chance.random() < 0.5:
            self._note("the network heals")
            self._cuts.clear()
            return
        ids = sorted(self.members)
        if self.chance.random() < 0.5:
            self._cuts.add((self.chance.choice(ids), self.chance.choice(ids)))
        else:
            side = {member for member in ids if self.chance.random() < 0.5}
            self._cuts |= {(a, b) for a in ids for b in ids if (a in side) is not (b in side)}
        self._note(f"cuts {sorted(self._cuts)}")

    def _changes_members(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        configuration = leader.alive.configuration
        steps = []
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            step = self._drawn_step(configuration)
            if step.member not in {other.member for other in steps}:
                steps.append(step)
        for step in steps:
            if step.member not in self.members:
                self._add(step.member, Configuration())
        change = ConfChange.of(*steps)
        self._asked(leader, f"change {steps}", lambda node: node.propose_change(change))

    def _drawn_step(self, configuration: Configuration) -> Step:
        kind = self.chance.choice((StepKind.ADD_VOTER, StepKind.ADD_LEARNER, StepKind.REMOVE))
        members = sorted(configuration.members)
        if kind is StepKind.REMOVE or len(members) >= 7 or self.chance.random() < 0.4:
            return Step(kind, self.chance.choice(members))
        return Step(kind, max(self.members) + 1)

    def _hands_over(self) -> None:
        leader = self._leader()
        if leader is not None:
            target = self.chance.choice(sorted(leader.alive.configuration.members))
            self._asked(leader, f"transfer to {target}", lambda node: node.transfer_leader(target))

    def _campaigns(self) -> None:
        running = self._running()
        if not running:
            return
        if self.chance.random() < 0.5:
            for member in running:
                self._asked(member, "forgets its leader", lambda node: node.forget_leader())
        self._asked(self.chance.choice(running), "campaigns", lambda node: node.campaign())

    def _reports(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        peer = self.chance.choice(sorted(self.members))
        report = self.chance.randrange(4)
        if report == 0:
            self._asked(leader, f"{peer} is unreachable", lambda node: node.unreachable(peer))
        elif report == 1:
            self._asked(leader, f"snapshot to {peer} goes on", lambda node: node.snapshot_progressed(peer))
        else:
            delivered = report == 2
            self._asked(leader, f"snapshot to {peer} {delivered}", lambda node: node.snapshot_finished(peer, delivered))

    # Its end

    def _end_trouble(self) -> None:
        self._note("the trouble ends")
        self._ended = True
        self._cuts.clear()
        for member in list(self.members.values()):
            if member.paused:
                self._resume(member)
            if member.node is None:
                self._start(member)
        self._at(TICK, "checkpoints", self._keep_checkpointing)
        self._at(TICK, "proposals", self._keep_proposing)

    def _keep_checkpointing(self) -> None:
        for member in self._running():
            snapshot = member.alive.snapshot()
            if member.alive.checkpoint_wanted and snapshot:
                self._checkpoint(member, snapshot)
        self._at(3 * TICK, "checkpoints", self._keep_checkpointing)

    def _keep_proposing(self) -> None:
        if self.history.visible < self._settled_from:
            self._client_proposes()
        self._at(3 * TICK, "proposals", self._keep_proposing)

    @property
    def _settled_from(self) -> int:
        """An index that is seen only if something was proposed and committed after the trouble."""
        if not hasattr(self, "_goal"):
            self._goal = max(member.disk.last_index for member in self.members.values()) + 1
        return self._goal

    def _present(self) -> list[Member]:
        """The members of the newest configuration."""
        newest = max(self.history.configurations)
        return [self.members[member] for member in sorted(self.history.configurations[newest].members)]

    def _has_settled(self) -> bool:
        leaders = [member for member in self._present() if member.alive.role is Role.LEADER]
        configuration = leaders[0].alive.configuration if leaders else None
        return (
            self.history.visible >= self._settled_from
            and len(leaders) == 1
            and configuration is not None
            and not configuration.auto_leave
        )

    def _is_equal(self) -> bool:
        present = self._present()
        followed = {member.alive.leader for member in present}
        return len({(member.applied, member.digest) for member in present}) == 1 and followed != {NOBODY}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run simulated cells.")
    parser.add_argument("seed", type=int, nargs="?", help="show every event of this run")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "COUNT"))
    parser.add_argument("--stop", action="store_true", help="at the first seed that fails")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        Simulation(arguments.seed, show=True).run()
    else:
        sys.exit(try_seeds(*(arguments.seeds or (0, 100)), arguments.stop))


def try_seeds(first: int, count: int, stop: bool) -> bool:
    """Run these seeds, and say which fail. True if any did."""
    failed = 0
    for seed in range(first, first + count):
        try:
            Simulation(seed).run()
        except Violation as violation:
            failed += 1
            print(str(violation).splitlines()[-2], f"(seed {seed})", flush=True)
            if stop:
                break
    print(f"{count} seeds, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    main()
