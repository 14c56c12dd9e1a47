"""Watch streams of the native API in a simulated cell: clients that follow all changes, whatever becomes of members.

To see one run:   python -m tests.simulation.streams SEED
To try many:      python -m tests.simulation.streams SEED COUNT
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tests.simulation.machine import Machine, quick_directory
from tests.simulation.simulation import Simulation
from tests.simulation.world import Process
from tests.zab_raft.core.history import require
from znoded.admin.api.backend import Backend
from znoded.admin.api.errors import ApiError
from znoded.admin.api.feed import Feed
from znoded.admin.api.lines import EVENTS, Form
from znoded.admin.api.streams import WatchStream
from znoded.admin.api.unread import Unread
from znoded.tree.acl import SUPER
from znoded.tree.history import Change

WATCHERS = 4
#: What a stream may end with: its client goes on elsewhere.
PASSING = {"not_leader", "stopping", "busy", "slow_reader"}
LOOK_S = 0.1
LATENCY_S = 0.002

Told = tuple[int, tuple[tuple[str, str], ...]]


class StreamMachine(Machine):
    """A machine whose member has streams."""

    feed: Feed | None = None

    def _run(self, process: Process) -> None:
        super()._run(process)
        # Without the session in which the API writes: nobody writes by it here.
        backend = Backend(self.member, self.member._reactor)
        backend.waiting.start()
        self.feed = Feed(backend, Unread(self.member._reactor, self.member.limits.api_unread_bytes))
        self.feed.start()


class Connection:
    """One stream of a watcher, as the member sees it; what is under way is lost when it breaks."""

    def __init__(self, watcher: Watcher, process: Process) -> None:
        self.watcher = watcher
        self.process = process
        self.stream: WatchStream | None = None
        self.blocked = False
        self.is_broken = False

    def send(self, data: bytes) -> None:
        self.watcher.world.at(LATENCY_S, "a stream's lines", partial(self._deliver, data))

    def _deliver(self, data: bytes) -> None:
        if self.watcher.connection is self and not self.is_broken:
            for text in data.splitlines():
                if text.startswith(b"{"):
                    self.watcher.told_line(json.loads(text))

    def finish(self) -> None: ...

    def abort(self) -> None: ...

    def break_off(self) -> None:
        """The connection is gone; the member learns it at once, if it is there."""
        self.is_broken = True
        if self.stream is not None:
            self.process.run(self.stream.end)


class Watcher:
    """Follows all changes from the first one on, and goes on after the last line that it got."""

    def __init__(self, simulation: StreamSimulation, number: int) -> None:
        self.simulation = simulation
        self.world = simulation.world
        self.name = f"watcher {number}"
        self.chance = random.Random(f"{simulation.seed} {number}")
        self.after = 0
        self.told: list[Told] = []
        #: Behind the first revision and up to the second, the history was gone.
        self.gaps: list[tuple[int, int]] = []
        self.connection: Connection | None = None
        self.world.at(self.chance.random(), self.name, self._look)

    def _look(self) -> None:
        """Connect if there is no connection, and make trouble for the one there is."""
        connection = self.connection
        if connection is None:
            self._connect()
        elif not connection.process.is_alive:
            self.connection = None
        elif self.simulation.is_calm:
            self._unblock(connection)
        else:
            kind = self.chance.random()
            if kind < 0.01:
                self.simulation.reached["stream broken"] += 1
                connection.break_off()
                self.connection = None
            elif kind < 0.05:
                connection.blocked = True
            elif kind < 0.2:
                self._unblock(connection)
        self.world.at(LOOK_S, self.name, self._look)

    def _unblock(self, connection: Connection) -> None:
        if connection.blocked:
            connection.blocked = False
            if connection.stream is not None:
                connection.process.run(connection.stream.resumed)

    def _connect(self) -> None:
        machines = [machine for machine in self.simulation.machines.values() if machine.serves and machine.has_entered]
        if not machines:
            return
        machine = self.chance.choice(machines)
        assert isinstance(machine, StreamMachine)
        assert machine.process is not None
        self.connection = Connection(self, machine.process)
        machine.process.run(partial(self._begin, machine, self.connection))

    def _begin(self, machine: StreamMachine, connection: Connection) -> None:
        opening: Deferred[Any] = Deferred.fromCoroutine(self._open(machine, connection))
        opening.addErrback(self._failed, connection)

    async def _open(self, machine: StreamMachine, connection: Connection) -> None:
        feed = machine.feed
        assert feed is not None
        after = self.after
        await feed.backend.fresh()
        if self.connection is not connection or connection.is_broken:
            return
        require(after <= feed.backend.revision, "W6", f"{self.name} saw {after}, and {feed.backend.revision} is newest")
        oldest = feed.backend.history.oldest
        if after < oldest:
            # A wall clock that was set on, and what was kept for an hour is dropped.
            self.simulation.reached["compacted"] += 1
            self.gaps.append((after, oldest))
            self.after = after = oldest
        connection.stream = WatchStream(feed, Form.NDJSON, b"/", True, after, (SUPER,))
        connection.stream.open(connection)
        self.simulation.reached["stream"] += 1

    def _failed(self, failure: Failure, connection: Connection) -> None:
        if failure.check(ApiError, CancelledError):
            if self.connection is connection:
                self.connection = None
        else:
            self.world.fault = self.world.fault or failure.getTraceback()

    def lacks(self, revision: int) -> bool:
        """Whether nobody could tell it of this one."""
        return any(after < revision <= oldest for after, oldest in self.gaps)

    def told_line(self, line: dict[str, Any]) -> None:
        """A line came: it is newer than all before it."""
        if line["type"] == "error":
            code, oldest = line["error"]["code"], line["error"].get("oldest", 0)
            is_gone = code == "compacted" and oldest > self.after
            require(is_gone or code in PASSING, "W3", f"{self.name} behind {self.after}: {line['error']}")
            self.connection = None
            return
        revision = line["revision"]
        if line["type"] == "progress":
            require(revision >= self.after, "W5", f"{self.name} is told of progress to {revision} behind {self.after}")
        else:
            require(revision > self.after, "W1", f"{self.name} is told of {revision} behind {self.after}")
            events = tuple((event["event"], event["key"]) for event in line["events"])
            self.told.append((revision, events))
        self.after = revision


class StreamSimulation(Simulation):
    """The same with watchers."""

    module = "tests.simulation.streams"

    def __init__(self, seed: int, directory: Path, show: bool = False) -> None:
        super().__init__(seed, directory, show)
        self.watchers = [Watcher(self, number) for number in range(WATCHERS)]

    @property
    def is_calm(self) -> bool:
        """Trouble is over."""
        return self._is_calm

    def _machine(self, number: int) -> Machine:
        machine = StreamMachine(self, number)
        machine.rate = self.chance.uniform(1 / self.trouble.skew, 1.0)
        machine.disk.write_s = self.trouble.write_s
        return machine

    def _check_end(self) -> None:
        super()._check_end()
        leader = self.leader()
        assert leader is not None
        newest = leader.member.zxid
        self._await("watchers that are told all", lambda: all(watcher.after >= newest for watcher in self.watchers))
        everything: dict[int, Told] = {each[0]: each for each in told_of(all_changes(leader))}
        for watcher in self.watchers:
            for each in watcher.told:
                same = everything.setdefault(each[0], each)
                require(each == same, "W2", f"{watcher.name} was told {each}, and it was {same}")
        for watcher in self.watchers:
            wanted = [each for each in sorted(everything.values()) if each[0] <= newest and not watcher.lacks(each[0])]
            told = [each for each in watcher.told if each[0] <= newest]
            missed = [each for each in wanted if each not in told][:3]
            require(told == wanted, "W2", f"{watcher.name} was told {len(told)} of {len(wanted)}; missed {missed}")
        self.reached["event told"] += sum(len(watcher.told) for watcher in self.watchers)


def all_changes(machine: Machine) -> list[Change]:
    """Everything that the history of a member has."""
    tree = machine.tree
    changes: list[Change] = []
    after = tree.history.oldest
    while portion := tree.history.changes(after, tree.zxid, 1_000):
        changes += portion
        after = portion[-1].revision
    return changes


def told_of(changes: list[Change]) -> list[Told]:
    """What a watch of everything is told of these changes."""
    lines = []
    for revision, of_revision in groupby(changes, attrgetter("revision")):
        events = tuple((EVENTS[each.kind], each.path.decode()) for each in of_revision if each.kind in EVENTS)
        if events:
            lines.append((revision, events))
    return lines


def run(seed: int, show: bool = False) -> StreamSimulation:
    """One run, in a directory of its own."""
    with tempfile.TemporaryDirectory(dir=quick_directory()) as directory:
        simulation = StreamSimulation(seed, Path(directory), show)
        simulation.run()
    return simulation


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for each in range(first, first + count):
        print(each, dict(run(each, show=count == 1).reached))
