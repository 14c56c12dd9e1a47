"""A cell of whole members and their clients under simulated trouble, from one seed.

To see one run:   python -m tests.simulation SEED
To try many:      python -m tests.simulation --seeds FIRST COUNT [--stop]
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.simulation.calls import Call, check_read
from tests.simulation.client import REGISTERS, Client
from tests.simulation.laws import simulated
from tests.simulation.line import Line
from tests.simulation.linearizability import Undecided, is_linearizable, operations
from tests.simulation.machine import Machine, Voters, quick_directory
from tests.simulation.network import Network, WorldPeers
from tests.simulation.readiness import Probes
from tests.simulation.reference import Reference, Step
from tests.simulation.sessions import SessionWitness
from tests.simulation.trouble import ELECTION_MS, HEARTBEAT_MS, TICK_MS, Trouble
from tests.simulation.world import World
from tests.tree.test_checkpoint_tables import state
from tests.zab_raft.cell.hand_over import hand_over
from tests.zab_raft.core.history import History, Violation, require
from znoded.config import Config, parse
from znoded.jute.ops import CreateFlags, Op
from znoded.jute.primitives import Reader
from znoded.server.membership import configured_roster
from znoded.tree.commands import DECIDED_RECONFIG, HEAD, HEAD_BYTES
from znoded.tree.reconfig import original
from znoded.zab_raft.core.errors import Refused
from znoded.zab_raft.core.messages import Message
from znoded.zab_raft.peers.wire import FrameKind, FrameRecord

RECOVERY_S = 40.0
SEGMENT_BYTES = 16_384
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
ADMIN = 1
CALLS_AT_THE_END = 6


class Sent:
    """The writes of one connection, in the order in which its client sent them."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Call]] = []
        self.admitted = 0


class Simulation:
    """One run. Equal seeds give equal runs, byte for byte."""

    #: What shows a run again.
    module = "tests.simulation"

    def __init__(self, seed: int, directory: Path, show: bool = False) -> None:
        self.seed = seed
        self.directory = directory
        self.world = World(seed, show)
        self.chance = self.world.chance
        self.trouble = self._drawn_trouble()
        #: How often the run came to what it is meant to try.
        self.reached: Counter[str] = Counter()
        self.last_words = ""
        #: The greatest zxid that a client saw the effect of.
        self.visible = 0
        self.calls: list[Call] = []
        self.voters = Voters()
        self.history = History(cast(Any, SimpleNamespace(members=self.voters)))
        self.reference = Reference(self._admitted, self._session_ended)
        self.sessions = SessionWitness(self)
        self.network = Network(self.world, directory, self._frame_sent, self._frame_received)
        #: The clients ask for nothing more by themselves.
        self.is_quiet = False
        self._place = 0
        self._line_count = 0
        self._lines: dict[Line, int] = {}
        #: By session and attach.
        self._sent: dict[tuple[int, int], Sent] = {}
        self._sent_of_line: dict[Line, Sent] = {}
        self._last_ordinal: dict[int, int] = {}
        self._sequential: set[bytes] = set()
        self._configs: dict[int, Config] = {}
        #: The members in the configuration of those that were wiped: who wipes one writes down who is there now.
        self._tables: dict[int, dict[int, str]] = {}
        self._is_calm = False
        self._removed: set[int] = set()
        founding = range(1, self.trouble.members + self.trouble.learners + 1)
        self._founding = {number: self._role(number) for number in founding}
        self.history.configurations[0] = configured_roster(self.config_of(1)).configuration
        self.machines = {number: self._machine(number) for number in founding}
        self.clients = [
            Client(self, number, number > 1 and self.chance.random() < 0.25, number == ADMIN)
            for number in range(1, self.trouble.clients + 1)
        ]

    # ---- the run

    def run(self) -> None:
        """Until the end, or raise what was violated, with the seed and the last events."""
        try:
            with simulated(self):
                self._run()
        except Exception as error:
            lines = "\n".join(self.world.trace)
            raise Violation(
                f"{lines}\n{type(error).__name__} {error}\nseed {self.seed}, to see all of it:"
                f" python -m {self.module} {self.seed}"
            ) from error
        finally:
            with simulated(self):
                for machine in self.machines.values():
                    machine.end(is_heard=False)

    def _run(self) -> None:
        weather = self.network.weather
        weather.late, weather.repeat, weather.no_room = self.trouble.late, self.trouble.repeat, self.trouble.no_room
        for machine in self.machines.values():
            machine.start()
        self._await("a leader in the beginning", lambda: any(machine.leads for machine in self.machines.values()))
        for client in self.clients:
            client.start()
        end_s = self.world.now_s + self.trouble.lasts_s
        self.world.at(self.trouble.pause_s, "trouble", self._make_trouble)
        while self.world.now_s < end_s:
            self.world.next()
        self._end_trouble()
        self._await("leader", self._has_leader)
        self._await("equal members", self._settles)
        probes = Probes(self)
        self._await("ready members", lambda: self._tidy() or probes.all_ready())
        self._await("equal members", self._settles)  # sessions may have ended meanwhile
        self._check_end()

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        deadline_s = self.world.now_s + RECOVERY_S
        while not condition():
            require(self.world.now_s < deadline_s, "L1", f"no {what} within {RECOVERY_S} s")
            for _ in range(20):
                self.world.next()

    def next_place(self) -> int:
        """The next place in the order of all that clients see."""
        self._place += 1
        return self._place

    def _drawn_trouble(self) -> Trouble:
        return Trouble.drawn(self.chance)

    # ---- machines

    def _role(self, number: int) -> str:
        return "learner" if number > self.trouble.members else "voter"

    def config_of(self, number: int) -> Config:
        if number not in self._configs:
            roles = dict(self._tables.get(number, self._founding))
            roles.setdefault(number, "voter")
            members = {
                str(each): {"peer": f"127.0.0.1:{2000 + each}", "client": f"127.0.0.1:{3000 + each}", "role": role}
                for each, role in sorted(roles.items())
            }
            config = parse(
                {
                    "member": number,
                    "data_dir": str(self.directory / f"member-{number}"),
                    "tick_ms": TICK_MS,
                    "admin": {},
                    "auth": {"super_digest": SUPER_DIGEST},
                    "limits": {"connections_per_address": 0},
                    "tree": {"reconfig": True, "sweep_interval_ms": 1000},
                    "cell": {"members": members, "heartbeat_ms": HEARTBEAT_MS, "election_ms": ELECTION_MS},
                }
            )
            # Smaller than anybody could want them.
            self._configs[number] = replace(
                config,
                client=replace(config.client, listen=()),
                log=replace(config.log, segment_bytes=SEGMENT_BYTES, checkpoint_bytes=self.trouble.checkpoint_bytes),
                cell=replace(config.cell, log_tail_bytes=self.trouble.log_tail_bytes),
            )
        return self._configs[number]

    def _machine(self, number: int) -> Machine:
        machine = Machine(self, number)
        machine.rate = self.chance.uniform(1 / self.trouble.skew, 1.0)
        machine.disk.write_s = self.trouble.write_s
        return machine

    def _running(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.has_entered]

    def leader(self) -> Machine | None:
        leaders = [machine for machine in self._running() if machine.leads]
        return max(leaders, key=lambda machine: machine.replica.term, default=None)

    # ---- what members tell each other

    def _frame_sent(self, end: WorldPeers, raft_id: int, kind: FrameKind, record: FrameRecord) -> None:
        if kind is FrameKind.RAFT:
            self.history.leaves(cast(Any, self.voters[end.identity.raft_id]), cast(Message, record))

    def _frame_received(self, end: WorldPeers, raft_id: int, kind: FrameKind, record: FrameRecord) -> None:
        voter = self.voters[end.identity.raft_id]
        commit = voter.node.committed_index if voter.node else 0
        self.reached[type(record).__name__] += 1
        end.handler.received(raft_id, kind, record)
        if kind is FrameKind.RAFT and voter.node:
            self.history.stepped(cast(Any, voter), cast(Message, record), commit)

    # ---- clients

    def line(self, machine: Machine, frame: Callable[[bytes], None], closed: Callable[[], None]) -> Line:
        """A new connection of a client to the member that runs on this machine."""
        assert machine.process is not None
        self._line_count += 1
        line = Line(self.world, machine.process, machine.member, machine.number, self._line_count, frame, closed)
        line.touched = partial(self._touched, line)
        self._lines[line] = self._line_count
        return line

    def _touched(self, line: Line) -> None:
        if line.connection.live is not None:
            self.sessions.touched(line.connection.session_id, line.machine_number)

    def clients_of(self, number: int, process: object, is_heard: bool) -> None:
        """A process ended, and the connections to it with it."""
        for line in list(self._lines):
            if line.process is process:
                line.end(is_heard)
                del self._lines[line]

    def attached(self, client: Client, line: Line) -> None:
        """A client has its session on this connection."""
        hold = client.session_id, line.connection.attach
        require(hold not in self._sent, "X1", f"two connections have session {hold[0]:x} under attach {hold[1]}")
        self._sent[hold] = self._sent_of_line[line] = Sent()
        self.reached["attach"] += 1

    def sent(self, client: Client, call: Call) -> None:
        assert client.line is not None
        self._sent_of_line[client.line].calls.append((client.writes_sent, call))

    def told_expired(self, client: Client) -> None:
        """A client is told that its session is gone, or about to be."""
        self.reached["expired"] += 1
        session_id = client.session_id
        is_ending = client.wants_to_close or session_id in self.sessions.decided_sessions
        is_gone = session_id in self.reference.ended
        require(is_gone or is_ending, "X6", f"client {client.number} is told that session {session_id:x} is gone")

    def write_answered(self, client: Client, call: Call) -> None:
        if not call.is_done:
            self.reached["refused write"] += 1
            return
        step = self.reference.steps.get(call.zxid)
        require(step is not None, "X2", f"{call}, which is no command's")
        assert step is not None
        session_id, _, _, error, body = step.result
        require(session_id == client.session_id, "X2", f"{call}, and that is a command of session {session_id:x}")
        require(_asked(step) == call.record, "X2", f"{call}, and that was another command")
        require((error, body) == (call.error, call.body), "X2", f"{call} with {call.body!r}: it was {error} {body!r}")
        require(call.zxid > call.floor, "R1", f"{call}, and {call.floor} had been seen before it began")
        self.visible = max(self.visible, call.zxid)
        if call.op == Op.CREATE and not error and call.flags in _SEQUENTIAL:
            path = Reader(body).ustring() or b""
            require(path not in self._sequential, "X1", f"{call}: {path.decode()} was given twice")
            self._sequential.add(path)

    def read_answered(self, client: Client, call: Call) -> None:
        check_read(call, self.reference.state(call.zxid))
        if not client.is_serializable:
            require(call.zxid >= call.floor, "R1", f"{call}, and {call.floor} had been seen before it began")
            self.visible = max(self.visible, call.zxid)
            self.reached["read"] += 1

    def _admitted(self, zxid: int, step: Step) -> None:
        """A command of a client takes effect: the next one that was sent, or those before it never will."""
        session_id, attach, sequence, _, _ = step.result
        sent = self._sent.get((session_id, attach), Sent())
        for place in range(sent.admitted, len(sent.calls)):
            ordinal, call = sent.calls[place]
            if call.record == _asked(step):
                last = self._last_ordinal.get(session_id, 0)
                require(ordinal > last, "X1", f"{call} at {zxid}: write {ordinal} behind write {last}")
                self._last_ordinal[session_id] = ordinal
                sent.admitted = place + 1
                return
        require(False, "X1", f"nobody sent command {sequence} of attach {attach} of session {session_id:x} at {zxid}")

    def _session_ended(self, zxid: int, step: Step) -> None:
        self.sessions.ended(zxid, step)
        self.reached["session ended"] += 1

    # ---- trouble

    def _make_trouble(self) -> None:
        if self._is_calm:
            return
        trouble = self.trouble
        kinds: list[tuple[int, Callable[[], None]]] = [
            (trouble.kill, self._kill),
            (trouble.power_cut, self._cut_power),
            (trouble.stop, self._stop),
            (trouble.kill + trouble.power_cut + trouble.stop + trouble.failing_disk, self._start_one),
            (trouble.pause, self._pause),
            (trouble.pause * 2, self._resume),
            (trouble.suspend, self._suspend),
            (trouble.cut, self._cut),
            (trouble.part, self._part),
            (trouble.cut + trouble.part, self._heal),
            (trouble.break_off, self._break_off),
            (trouble.slow_disk, self._slow_disk),
            (trouble.full_disk, self._fill_disk),
            (trouble.failing_disk, self._fail_disk),
            (trouble.slow_disk + trouble.full_disk, self._mend_disks),
            (trouble.hand_over, self._hand_over),
            (trouble.checkpoint, self._checkpoint),
            (trouble.wall_clock, self._set_clock),
            (trouble.change, self._change),
            (trouble.lines, self._trouble_line),
        ]
        self.chance.choices([act for _, act in kinds], [weight for weight, _ in kinds])[0]()
        self.world.at(self.chance.expovariate(1 / trouble.pause_s), "trouble", self._make_trouble)

    def _some(self) -> Machine | None:
        running = [machine for machine in self.machines.values() if machine.runs]
        leader = self.leader()
        if leader is not None and self.chance.random() < 0.3:
            return leader
        return self.chance.choice(running) if running else None

    def _kill(self) -> None:
        if machine := self._some():
            self.reached["kill"] += 1
            machine.end(torn_share=self.chance.choice((None, None, 0.0, self.chance.random())))

    def _cut_power(self) -> None:
        if machine := self._some():
            self.reached["power cut"] += 1
            machine.end(is_heard=False, torn_share=self.chance.choice((None, self.chance.random())))

    def _stop(self) -> None:
        machine = self._some()
        if machine and machine.serves:
            self.reached["stop"] += 1
            machine.stop()

    def _start_one(self) -> None:
        down = [machine for machine in self.machines.values() if not machine.runs]
        if down:
            self.chance.choice(down).start()

    def _pause(self) -> None:
        machine = self._some()
        if machine and machine.process and not machine.process.is_paused:
            self.reached["pause"] += 1
            machine.pause()

    def _resume(self) -> None:
        for machine in self.machines.values():
            if machine.process and machine.process.is_paused:
                machine.resume()
                return

    def _suspend(self) -> None:
        """The machines stand on one host, which is suspended: no member misses anything, and clients do."""
        if any(machine.process and machine.process.is_paused for machine in self.machines.values()):
            return
        self.reached["suspend"] += 1
        for machine in self.machines.values():
            if machine.runs:
                machine.pause()
        self.world.at(self.chance.uniform(0.5, 4.0), "the host goes on", self._resume_all)

    def _resume_all(self) -> None:
        for machine in self.machines.values():
            if machine.process and machine.process.is_paused:
                machine.resume()

    def _cut(self) -> None:
        one, other = self.chance.choices(list(self.machines), k=2)
        self.world.note(f"cut {one} -> {other}")
        self.network.cut((one, other))

    def _part(self) -> None:
        numbers = list(self.machines)
        side = set(self.chance.sample(numbers, len(numbers) // 2))
        self.world.note(f"part {sorted(side)}")
        self.network.cut(*((a, b) for a in numbers for b in numbers if (a in side) is not (b in side)))

    def _heal(self) -> None:
        self.world.note("heal")
        self.network.heal()

    def _break_off(self) -> None:
        if links := self.network.links():
            self.chance.choice(links).break_off()

    def _slow_disk(self) -> None:
        if machine := self._some():
            machine.disk.write_s = self.chance.choice((0.1, 0.5))

    def _fill_disk(self) -> None:
        machine = self._some()
        if machine and machine.serves and machine.log_thread:
            self.reached["full disk"] += 1
            self.world.note(f"{machine.number} has no room")
            machine.disk.is_full = True
            assert machine.process is not None
            machine.process.run(partial(machine.log_thread.on_writable, False))

    def _fail_disk(self) -> None:
        if machine := self._some():
            self.reached["failing disk"] += 1
            self.world.note(f"{machine.number}'s disk fails")
            machine.disk.fails = True

    def _mend_disks(self) -> None:
        for machine in self.machines.values():
            machine.disk.write_s = self.trouble.write_s
            if machine.disk.is_full:
                machine.disk.is_full = False
                if machine.process and machine.log_thread and machine.has_entered:
                    machine.process.run(partial(machine.log_thread.on_writable, True))
                    machine.log_thread.go_on()

    def _hand_over(self) -> None:
        leader, target = self.leader(), self._some()
        if leader and leader.process and target and not leader.process.is_paused:

            def to_target() -> None:
                with suppress(Refused):
                    hand_over(leader.replica, target.number)

            leader.process.run(to_target)

    def _checkpoint(self) -> None:
        machine = self._some()
        if machine and machine.process and machine.has_entered:
            self.reached["checkpoint"] += 1
            machine.process.run(machine.replica._checkpointer.begin)

    def _set_clock(self) -> None:
        machine = self._some()
        if machine and machine.process:
            machine.wall_offset_s = self.chance.choice((-3600.0, -0.5, 0.0, 3600.0))
            machine.process.wall_offset_s = machine.wall_offset_s

    def _change(self) -> None:
        """Ask for other members. One that left is wiped, and may come back as another."""
        leader = self.leader()
        if leader is None:
            return
        roster = leader.replica.roster
        present = sorted(member.number for member in roster.members.values())
        # Another member may know already of one that this leader does not: who wipes that, wipes a member.
        entered = [machine for machine in self.machines.values() if machine.has_entered]
        known = {member.number for machine in entered for member in machine.replica.roster.members.values()}
        absent = [number for number in range(1, self.trouble.members + 3) if number not in known]
        admin = self.clients[ADMIN - 1]
        if absent and (len(present) < 3 or self.chance.random() < 0.5):
            number = self.chance.choice(absent)
            machine = self.machines.get(number)
            if machine is None:
                self.machines[number] = machine = self._machine(number)
            if machine.path.exists():
                machine.end()
                machine.wipe()
                self._tables[number] = dict.fromkeys(present, "voter")
                self._configs.pop(number, None)
            role = self.chance.choice(("participant", "participant", "observer"))
            line = f"server.{number}=127.0.0.1:{2000 + number}:{2000 + number}:{role};127.0.0.1:{3000 + number}"
            if admin.ask_reconfig(line.encode(), None) and not machine.runs:
                machine.start()
        elif len(present) > 1:
            admin.ask_reconfig(None, b"%d" % self.chance.choice(present))
        self.reached["reconfig"] += 1

    def _trouble_line(self) -> None:
        """A connection of a client breaks, stalls, falls silent, or its client stops reading."""
        lines = [client.line for client in self.clients if client.line is not None]
        if not lines:
            return
        line = self.chance.choice(lines)
        kind = self.chance.randrange(4)
        if kind == 0:
            line.break_off()
        elif kind == 1:
            line.stalled_until_s = self.world.now_s + self.chance.uniform(0.1, 2.0)
        elif kind == 2:
            line.is_silent = True
        else:
            line.block()
            self.world.at(self.chance.uniform(0.05, 1.0), "reads on", line.unblock)

    # ---- the end

    def _end_trouble(self) -> None:
        self.world.note("the trouble ends")
        self._is_calm = True
        weather = self.network.weather
        weather.late = weather.repeat = weather.no_room = 0.0
        self._heal()
        self._mend_disks()
        self._resume_all()
        for machine in self.machines.values():
            machine.disk.fails = False
            if not machine.runs:
                machine.start()

    def _has_leader(self) -> bool:
        self._tidy()
        leader = self.leader()
        if leader is None or leader.replica.configuration.joint:
            return False
        self._goals = {client: client.answered + CALLS_AT_THE_END for client in self.clients}
        return True

    def _settles(self) -> bool:
        """The clients had something done by everybody, then nothing is under way, and all members have the same."""
        self._tidy()
        if not self.is_quiet:
            self.is_quiet = all(client.answered >= goal for client, goal in self._goals.items())
            return False
        running = [machine for machine in self.machines.values() if machine.runs]
        return (
            all(client.is_idle for client in self.clients)
            and all(machine.has_entered and not machine.replica.outstanding for machine in running)
            and len({(machine.replica.applied_index, machine.replica.last_index) for machine in running}) == 1
            and all(machine.replica.applied_index == machine.replica.last_index for machine in running)
        )

    def _tidy(self) -> None:
        """All members run, and those that are none any more, and are not told, do not."""
        leader = self.leader()
        if leader is not None and not leader.replica.configuration.joint:
            members = leader.replica.roster.members
            numbers = {member.number for member in members.values()}
            for machine in self.machines.values():
                is_strange = machine.has_entered and machine.replica.directory.identity.raft_id not in members
                if is_strange or machine.number not in numbers:
                    machine.end()
                    self._removed.add(machine.number)
        for machine in self.machines.values():
            if not machine.runs and machine.number not in self._removed:
                machine.start()

    def _check_end(self) -> None:
        trees = [machine.tree for machine in self.machines.values() if machine.runs]
        oldest = max(tree.history.oldest for tree in trees)  # each drops its history in its own time
        states = [state(tree, oldest) for tree in trees]
        require(all(each == states[0] for each in states), "S5", "members that have applied the same differ")
        for path in REGISTERS:
            try:
                require(is_linearizable(operations(self.calls, path)), "R1", f"{path.decode()} is not linearizable")
            except Undecided:
                self.reached["undecided"] += 1
        self.reached["commands"] += len(self.reference.steps)
        self.reached["calls"] += sum(client.answered for client in self.clients)


_SEQUENTIAL = (CreateFlags.PERSISTENT_SEQUENTIAL, CreateFlags.EPHEMERAL_SEQUENTIAL)


def _asked(step: Step) -> bytes:
    """The record that a client sent."""
    if step.op == DECIDED_RECONFIG:
        command = original(step.command)
        identities_bytes: int = HEAD.unpack_from(command)[5]
        return command[HEAD_BYTES + identities_bytes :]
    return step.record


def run(seed: int, show: bool = False) -> Simulation:
    """Run one seed on a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=quick_directory()) as directory:
        simulation = Simulation(seed, Path(directory), show)
        simulation.run()
        return simulation
