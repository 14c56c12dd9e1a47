"""Fenced locks in a simulated cell: workers that take one in turn, are paused and cut off, and write all the same.

Each reads a number from two resources and writes the next one back. One looks at tokens; the other does not, and the
lock is all that protects it. The cell is three whole members in trouble; the names in the queue, the standing of a
lease and the guard are the product's own.

To see one run:   python -m tests.simulation.locks SEED
To try many:      python -m tests.simulation.locks SEED COUNT
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from pathlib import Path

from tests.fencing.resources import GuardedNumber, PlainNumber
from tests.simulation import calls
from tests.simulation.calls import Call
from tests.simulation.client import Client
from tests.simulation.line import Line
from tests.simulation.machine import quick_directory
from tests.simulation.simulation import Simulation
from tests.simulation.trouble import Trouble
from tests.zab_raft.core.history import require
from znoded.fencing import StaleToken
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import CreateFlags, Op
from znoded.jute.primitives import Reader
from znoded.jute.stat import Stat
from znoded.recipes.names import own, predecessor, prefixes
from znoded.recipes.tenure import Standing, Tenure

WORKERS = 3
#: Clients with smaller numbers are those of every simulation.
FIRST_WORKER = 10
LASTS_S = 25.0
CELL_TROUBLE_S = 1.0
#: Between two of each, on an average.
WORKER_TROUBLE_S = 0.3
POLL_S = 0.03
GRACE_S = 45.0
LATENCY_S = 0.002
LOCK = b"/lock"
LOCK_DELAY = b"/zookeeper/lock_delay"


class Phase(Enum):
    """How far a worker is with the lock."""

    OUTSIDE = auto()
    WAITING = auto()
    INSIDE = auto()
    LEAVING = auto()


class Worker(Client):
    """A client that takes the lock again and again. Its whole process can be paused."""

    def __init__(self, simulation: LockSimulation, number: int) -> None:
        super().__init__(simulation, number, is_serializable=False, is_admin=False)
        self.phase = Phase.OUTSIDE
        self.paused_until_s = 0.0
        #: What came for it while it was paused, in order.
        self._put_off: deque[Callable[[], None]] = deque()
        self._locks = simulation
        #: The session timeout that the member gave.
        self._granted_s = 0.0
        self._own_id = ""
        self._node = b""
        self._token = 0
        self._tenure: Tenure | None = None
        #: The request about the lock that is under way, and when it was sent.
        self._asked: tuple[Call, float] | None = None

    @property
    def is_paused(self) -> bool:
        return self.world.now_s < self.paused_until_s

    # ---- its process, which may be paused

    def _when_awake(self, act: Callable[[], None]) -> None:
        if not self.is_paused and not self._put_off:
            act()
            return
        self._put_off.append(act)
        if len(self._put_off) == 1:
            self._wake_later()

    def _wake_later(self) -> None:
        self.world.at(max(0.0, self.paused_until_s - self.world.now_s), f"worker {self.number} wakes", self._wake)

    def _wake(self) -> None:
        while self._put_off and not self.is_paused:
            self._put_off[0]()
            self._put_off.popleft()
        if self._put_off:
            self._wake_later()

    def _connect(self) -> None:
        self._when_awake(super()._connect)

    def _keep_alive(self) -> None:
        self._when_awake(super()._keep_alive)

    def _frame(self, payload: bytes) -> None:
        self._when_awake(partial(self._frame_of, self.line, payload))

    def _frame_of(self, line: Line | None, payload: bytes) -> None:
        if self.line is line:
            super()._frame(payload)

    # ---- its session

    def _respond(self, payload: bytes) -> None:
        reader = Reader(payload)
        reader.int()
        self._granted_s = reader.int() / 1000
        super()._respond(payload)

    def _lost(self) -> None:
        self._asked = None
        if self._tenure:
            self._tenure.contact_lost(self.world.now_s)
        super()._lost()

    def _end_session(self) -> None:
        """What it had in the queue went with it."""
        if self._tenure:
            self._tenure.end()
        if self.phase is not Phase.INSIDE:
            self.phase = Phase.OUTSIDE
        super()._end_session()

    # ---- the lock, as `znoded.recipes` takes it

    def _act(self) -> None:
        if self._is_open and not self._pending and not self.is_paused:
            self._look()
        self.world.at(POLL_S, f"worker {self.number}", self._act)

    def _look(self) -> None:
        if self.phase is Phase.OUTSIDE and not self._locks.is_calm:
            self._own_id = f"{self.world.chance.getrandbits(128):032x}"
            self.phase = Phase.WAITING
        if self.phase is Phase.INSIDE:
            self._ask_about(calls.read(Op.EXISTS, self._node, False))
        elif self.phase is not Phase.OUTSIDE:
            self._ask_about(calls.read(Op.GET_CHILDREN2, LOCK, False))

    def _ask_about(self, call: Call) -> None:
        self._asked = call, self.world.now_s
        self._ask(call)

    def _answered(self, call: Call) -> None:
        super()._answered(call)
        if not self._asked or self._asked[0] is not call:
            return
        _, sent_s = self._asked
        self._asked = None
        if call.op == Op.EXISTS:
            self._told_of_node(call, sent_s)
        elif call.op == Op.GET_CHILDREN2:
            self._told_of_queue(call)

    def _told_of_queue(self, call: Call) -> None:
        if call.error == ErrorCode.NO_NODE:
            self._ask_about(calls.create(LOCK, b""))
            return
        children = [name.decode() for name in Reader(call.body).strings() or ()]
        mine = own(children, self._own_id)
        if self.phase is Phase.LEAVING:
            if mine:
                self._ask_about(calls.all_or_none(*[calls.delete(path_of(each.name)) for each in mine]))
            else:
                self.phase = Phase.OUTSIDE
        elif not mine:
            paths = [path_of(prefix) for prefix in prefixes(self._own_id, False)]
            ephemeral = int(CreateFlags.EPHEMERAL_SEQUENTIAL)
            self._ask_about(calls.all_or_none(*[calls.create(path, b"", ephemeral) for path in paths]))
        elif predecessor(children, self._own_id, mine[0]) is None:
            self._node = path_of(mine[0].name)
            self._ask_about(calls.read(Op.EXISTS, self._node, False))

    def _told_of_node(self, call: Call, sent_s: float) -> None:
        now_s = self.world.now_s
        stat = None if call.error else Stat.decode(Reader(call.body))
        if self.phase is Phase.WAITING and stat is not None:
            self._tenure = Tenure(sent_s, self._granted_s, GRACE_S)
            self._token = stat.czxid
            self.phase = Phase.INSIDE
            self._locks.got(self._token, self._tenure)
            self._soon(self._begin)
        elif self.phase is Phase.INSIDE and self._tenure:
            if stat is None or stat.ephemeral_owner != self.session_id:
                self._tenure.end()
            else:
                self._tenure.heard(sent_s, now_s)

    # ---- what it does with it

    def _soon(self, act: Callable[[], None], delay_s: float = LATENCY_S) -> None:
        self.world.at(delay_s, f"worker {self.number}", partial(self._when_awake, act))

    def _begin(self) -> None:
        try:
            plain, guarded = self._locks.plain.read(), self._locks.guarded.read(self._token)
        except StaleToken:
            self._rejected()
            return
        self._soon(partial(self._decide, plain, guarded), self.world.chance.uniform(0.02, 0.5))

    def _decide(self, plain: int, guarded: int) -> None:
        """Write, if it has the lock as far as it knows, or does not ask. The request may be on its way for long."""
        assert self._tenure is not None
        chance = self.world.chance
        is_careless = chance.random() < 0.5
        if not is_careless and self._tenure.standing(self.world.now_s) is Standing.LOST:
            self._leave()
            return
        late_s = chance.uniform(0.1, 3.0) if chance.random() < 0.05 else 0.0
        self.world.at(LATENCY_S + late_s, f"worker {self.number} writes", partial(self._write, plain, guarded))

    def _write(self, plain: int, guarded: int) -> None:
        self._locks.plain.write(plain)
        try:
            self._locks.guarded.write(self._token, guarded)
        except StaleToken:
            self._soon(self._rejected)
        else:
            self._soon(self._leave)

    def _rejected(self) -> None:
        self._locks.reached["rejected"] += 1
        self._leave()

    def _leave(self) -> None:
        assert self._tenure is not None
        self._tenure.end()
        self.phase = Phase.LEAVING


class LockSimulation(Simulation):
    """The same with workers."""

    module = "tests.simulation.locks"

    def __init__(self, seed: int, directory: Path, show: bool = False) -> None:
        super().__init__(seed, directory, show)
        self.plain, self.guarded = PlainNumber(), GuardedNumber()
        self.workers = [Worker(self, FIRST_WORKER + number) for number in range(WORKERS)]
        #: In the order in which the lock was got.
        self._tokens: list[int] = []
        self._tenures: list[Tenure] = []
        self._unrest = random.Random(f"{seed} workers")
        self.world.at(1.0, "workers", self._start_workers)

    @property
    def is_calm(self) -> bool:
        """Trouble is over."""
        return self._is_calm

    def got(self, token: int, tenure: Tenure) -> None:
        """A worker is told that it has the lock: all that had it before know that they do not have it any more.

        It may have been paused for so long before it read that, that it knows the same of itself.
        """
        now_s = self.world.now_s
        if tenure.standing(now_s) is Standing.LOST:
            self.reached["told too late"] += 1
            return
        newest = max(self._tokens, default=0)
        require(token > newest, "F1", f"token {token} after {newest}")
        for before, other in zip(self._tokens, self._tenures, strict=True):
            is_lost = other.standing(now_s) is Standing.LOST
            require(
                is_lost, "F2", f"token {token} is given, and token {before} is not lost before {other.ends_s:.3f} s"
            )
        self._tokens.append(token)
        self._tenures.append(tenure)

    def _drawn_trouble(self) -> Trouble:
        return replace(super()._drawn_trouble(), members=3, clients=2, lasts_s=LASTS_S, pause_s=CELL_TROUBLE_S)

    def _start_workers(self) -> None:
        for worker in self.workers:
            worker.start()
        self._trouble_worker()

    def _trouble_worker(self) -> None:
        """A worker is paused, or its connection breaks, stalls or falls silent: by preference of one that is inside."""
        if self._is_calm:
            return
        chance = self._unrest
        inside = [worker for worker in self.workers if worker.phase is Phase.INSIDE]
        worker = chance.choice(inside if inside and chance.random() < 0.8 else self.workers)
        kind = chance.choice(("pause", "pause", "pause", "break", "stall", "silence"))
        if kind == "pause":
            worker.paused_until_s = self.world.now_s + chance.uniform(0.1, 5.0)
        elif worker.line is None:
            pass
        elif kind == "break":
            worker.line.break_off()
        elif kind == "stall":
            worker.line.stalled_until_s = self.world.now_s + chance.uniform(0.1, 2.0)
        else:
            worker.line.is_silent = True
        self.world.at(chance.expovariate(1 / WORKER_TROUBLE_S), "a worker's trouble", self._trouble_worker)

    def _check_end(self) -> None:
        self._await("workers that are done", lambda: all(worker.phase is Phase.OUTSIDE for worker in self.workers))
        self._await("lock that is free", self._is_free)
        self._await("equal members", self._settles)
        super()._check_end()
        self.guarded.check()
        self.reached += Counter(
            {
                "held": len(self._tokens),
                "accepted": len(self.guarded.accepted),
                "written under plain locks": self.plain.writes,
                "lost by plain locks": self.plain.lost,
            }
        )

    def _is_free(self) -> bool:
        leader = self.leader()
        return leader is not None and not leader.tree.children.get(LOCK)


def path_of(name: str) -> bytes:
    """The path of a contender."""
    return LOCK + b"/" + name.encode()


def run(seed: int, show: bool = False) -> LockSimulation:
    """One run, in a directory of its own."""
    with tempfile.TemporaryDirectory(dir=quick_directory()) as directory:
        simulation = LockSimulation(seed, Path(directory), show)
        simulation.run()
    return simulation


def run_seeds(first: int, how_many: int) -> Counter[str]:
    """What happened in all of them. Raises Violation with the seed."""
    reached: Counter[str] = Counter()
    for seed in range(first, first + how_many):
        of_seed = run(seed).reached
        reached += of_seed
        reached["runs in which plain locks lost"] += of_seed["lost by plain locks"] > 0
    return reached


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(f"{sys.argv[2]} seeds from {sys.argv[1]}: {dict(run_seeds(int(sys.argv[1]), int(sys.argv[2])))}")
    else:
        print(dict(run(int(sys.argv[1]), show=True).reached))
