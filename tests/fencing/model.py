"""Workers that share a lock while they are paused, cut off and expired, from one seed, over a real tree.

Each reads a number from two resources and writes the next one back. One looks at tokens; the other does not, and a
plain lock is all that protects it. The tree, the names in the queue, the standing of a lease and the guard are the
product's own; time and the network are made up.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.fencing.resources import GuardedNumber, PlainNumber, require
from tests.tree.test_checkpoint_tables import state
from tests.tree.world import EPHEMERAL_SEQUENTIAL, START_MS, Client, World, create, delete
from znoded.fencing import StaleToken
from znoded.recipes.names import own, predecessor, prefixes
from znoded.recipes.tenure import Standing, Tenure
from znoded.tree.lock_delay import Delays
from znoded.tree.tree import Tree

LOCK = b"/lock"
TIMEOUT_MS = 1_000
TICK_MS = 100
LASTS_MS = 20_000
RECOVERY_MS = 60_000
GRACE_S = 45.0
LONGEST_DELAY_MS = 1_500
RETRY_MS = 40


class ConnectionLost(Exception):
    """Nobody knows whether the request was carried out."""


class SessionExpired(Exception):
    """The session is over."""


@dataclass
class Ask:
    """A request to the cell. It is carried out in the worker's session, unless it opens one."""

    act: Callable[[], Any]
    opens_session: bool = False


@dataclass
class Tell:
    """A request to a resource, which may be on its way for long."""

    act: Callable[[], Any]


@dataclass
class Sleep:
    ms: float


Work = Generator[Ask | Tell | Sleep, Any, Any]


class Model:
    """One run. Equal seeds give equal runs."""

    def __init__(self, seed: int, workers: int = 4) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0.0
        self.house = World()
        self.plain, self.guarded = PlainNumber(), GuardedNumber()
        self.tokens: list[int] = []
        """In the order in which the lock was got."""
        self.tenures: list[Tenure] = []
        self.is_ending = False
        self.rejected = 0
        self._has_leader = True
        self._delays = Delays()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()
        self._session_ids = count(0x100)
        admin = self.house.session(1)
        admin.create(LOCK)
        if self.chance.random() < 0.3:
            admin.create(b"/zookeeper/lock_delay")
            admin.create(b"/zookeeper/lock_delay" + LOCK, b"%d" % self.chance.choice((200, LONGEST_DELAY_MS)))
        self.workers = [Worker(self, number) for number in range(workers)]

    def run(self) -> None:
        """Until all workers are done. Raises Violation."""
        for worker in self.workers:
            worker.go_on(None)
        self.at(TICK_MS, self._tick)
        self.at(0, self._make_trouble)
        self._until(lambda: self.now_ms >= LASTS_MS)
        self.is_ending = True
        deadline_ms = self.now_ms + RECOVERY_MS
        self._until(lambda: all(worker.is_done for worker in self.workers) or self.now_ms >= deadline_ms)
        require(all(worker.is_done for worker in self.workers), "a worker does not get the lock when all is well")
        deadline_ms = self.now_ms + LONGEST_DELAY_MS + 10 * TICK_MS
        self._until(lambda: self.now_ms >= deadline_ms)
        require(not self.house.children(LOCK), f"left behind: {self.house.children(LOCK)}")
        self.guarded.check()
        twin = Tree()
        for zxid, command in enumerate(self.house.log, 1):
            twin.apply(zxid, command)
        require(state(twin) == state(self.house.tree), "another member has another state")

    def at(self, delay_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._count), act))

    def got(self, token: int, tenure: Tenure) -> None:
        """The cell lets a worker have the lock: all that had it before know that they do not have it any more."""
        if token == max(self.tokens, default=0):
            self.tenures[-1] = tenure  # the first answer was lost, so it asked again
            return
        require(token > max(self.tokens, default=0), f"token {token} after {self.tokens}")
        for before, other in zip(self.tokens, self.tenures, strict=True):
            is_lost = other.standing(self.now_ms / 1000) is Standing.LOST
            require(is_lost, f"token {token} is given at {self.now_ms:.0f} ms, and token {before} is not lost")
        self.tokens.append(token)
        self.tenures.append(tenure)

    # ---- the cell

    def carry_out(self, worker: Worker, ask: Ask, answered: Callable[[Any], None]) -> None:
        """A request arrives. It waits for a leader, and fails with the connection it came by."""
        if worker.is_cut:
            self.at(RETRY_MS, lambda: answered(ConnectionLost()))
            return
        if not self._has_leader:
            self.at(RETRY_MS, lambda: self.carry_out(worker, ask, answered))
            return
        result: Any = SessionExpired()
        self._set_clock()
        if ask.opens_session:
            result = self.house.session(next(self._session_ids))
        elif worker.has_session:
            worker.heard_ms = self.now_ms
            result = ask.act()
        delay_ms = self.chance.uniform(1, 10)
        self.at(delay_ms, lambda: answered(ConnectionLost() if worker.is_cut else result))

    def _tick(self) -> None:
        self.at(TICK_MS, self._tick)
        if not self._has_leader:
            return
        self._set_clock()
        for worker in self.workers:
            if worker.has_session and worker.pings:
                worker.heard_ms = self.now_ms
            if worker.has_session and self.now_ms - worker.heard_ms > TIMEOUT_MS:
                assert worker.session is not None
                self.house.expire(worker.session)
        for path, mzxid, pzxid in self._delays.over(self.house.tree, int(self.now_ms), 100):
            self.house.sweep(path, mzxid, pzxid)

    def _set_clock(self) -> None:
        self.house.now_ms = max(self.house.now_ms, START_MS + int(self.now_ms))

    def _change_leader(self) -> None:
        if not self._has_leader:
            return
        self._has_leader = False

        def lead() -> None:
            self._has_leader = True
            self.house.begin_term(self.house.tree.term + 1)
            for worker in self.workers:
                worker.heard_ms = self.now_ms

        self.at(self.chance.uniform(50, 2500), lead)

    # ---- trouble

    def _make_trouble(self) -> None:
        if self.is_ending:
            return
        inside = [worker for worker in self.workers if worker.is_inside] if self.chance.random() < 0.5 else []
        worker = self.chance.choice(inside or self.workers)
        kind = self.chance.choice(("pause", "pause", "cut", "leader"))
        if kind == "pause":
            worker.paused_until_ms = self.now_ms + self.chance.uniform(100, 4000)
        elif kind == "cut":
            worker.cut_until_ms = self.now_ms + self.chance.uniform(50, 3000)
        else:
            self._change_leader()
        self.at(self.chance.expovariate(1 / 500), self._make_trouble)

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.now_ms, _, act = heapq.heappop(self._events)
            act()


class Worker:
    """A process: what it does is a generator that yields what it waits for."""

    def __init__(self, model: Model, number: int) -> None:
        self._model = model
        self.number = number
        self.session: Client | None = None
        self.heard_ms = 0.0
        self.paused_until_ms = 0.0
        self.cut_until_ms = 0.0
        self.is_done = False
        self.is_inside = False
        self._work = self._live()

    @property
    def is_cut(self) -> bool:
        return self._model.now_ms < self.cut_until_ms

    @property
    def pings(self) -> bool:
        return not self.is_cut and self._model.now_ms >= self.paused_until_ms

    @property
    def has_session(self) -> bool:
        return self.session is not None and self.session.id in self._model.house.tree.sessions

    def go_on(self, result: Any) -> None:
        """What it waited for is there; a paused process goes on later."""
        model = self._model
        if model.now_ms < self.paused_until_ms:
            model.at(self.paused_until_ms - model.now_ms, lambda: self.go_on(result))
            return
        try:
            wanted = self._work.throw(result) if isinstance(result, Exception) else self._work.send(result)
        except StopIteration:
            self.is_done = True
            return
        delay_ms = model.chance.uniform(1, 10)
        if isinstance(wanted, Sleep):
            model.at(wanted.ms, lambda: self.go_on(None))
        elif isinstance(wanted, Ask):
            model.at(delay_ms, lambda: model.carry_out(self, wanted, self.go_on))
        else:
            late_ms = model.chance.uniform(100, 3000) if model.chance.random() < 0.05 else 0.0
            model.at(delay_ms + late_ms, lambda: self._told(wanted))

    def _told(self, tell: Tell) -> None:
        try:
            result = tell.act()
        except StaleToken as stale:
            result = stale
        self._model.at(self._model.chance.uniform(1, 10), lambda: self.go_on(result))

    # ---- what it does

    def _live(self) -> Work:
        model = self._model
        while not model.is_ending:
            held = yield from self._acquire(gives_up=model.chance.random() < 0.2)
            if held is None:
                continue
            own_id, token, tenure = held
            self.is_inside = True
            try:
                plain = yield Tell(model.plain.read)
                guarded = yield Tell(lambda token=token: model.guarded.read(token))
                yield Sleep(model.chance.uniform(10, 200))
                is_careless = model.chance.random() < 0.5
                if is_careless or tenure.standing(model.now_ms / 1000) is not Standing.LOST:
                    yield Tell(lambda plain=plain: model.plain.write(plain))
                    yield Tell(lambda token=token, guarded=guarded: model.guarded.write(token, guarded))
            except StaleToken:
                model.rejected += 1
            self.is_inside = False
            tenure.end()
            yield from self._leave(own_id)

    def _acquire(self, gives_up: bool) -> Work:
        """The id in the queue, the token and the tenure, as `znoded.recipes.attempt` does it; None if it gave up."""
        model = self._model
        own_id, is_created = f"{model.chance.getrandbits(128):032x}", False
        ends_ms = model.now_ms + model.chance.uniform(100, 2000)
        while True:
            try:
                if not self.has_session:
                    self.session, is_created = (yield Ask(lambda: None, opens_session=True)), False
                    self.heard_ms = model.now_ms
                    own_id = f"{model.chance.getrandbits(128):032x}"
                if not is_created or not (yield Ask(lambda own_id=own_id: own(self._children(), own_id))):
                    is_created = True
                    yield Ask(lambda own_id=own_id: self._create(own_id))
                asked_s = model.now_ms / 1000
                tenure = Tenure(asked_s, TIMEOUT_MS / 1000, GRACE_S)
                look = yield Ask(lambda own_id=own_id, tenure=tenure: self._look(own_id, tenure))
                if isinstance(look, int):
                    return own_id, look, tenure
                if gives_up and model.now_ms > ends_ms:
                    yield from self._leave(own_id)
                    return None
                yield Sleep(RETRY_MS)
            except ConnectionLost:
                yield Sleep(RETRY_MS)
            except SessionExpired:
                self.session = None

    def _leave(self, own_id: str) -> Work:
        while True:
            try:
                yield Ask(lambda: self._remove(own_id))
                return
            except ConnectionLost:
                yield Sleep(RETRY_MS)
            except SessionExpired:
                return

    # ---- what the cell does for it

    def _children(self) -> list[str]:
        return [path[len(LOCK) + 1 :].decode() for path in self._model.house.children(LOCK)]

    def _create(self, own_id: str) -> None:
        assert self.session is not None
        paths = [f"{LOCK.decode()}/{prefix}".encode() for prefix in prefixes(own_id, False)]
        results = self.session.multi(*(create(path, flags=EPHEMERAL_SEQUENTIAL) for path in paths))
        assert isinstance(results, list)

    def _look(self, own_id: str, tenure: Tenure) -> int | str:
        """The token if the lock is this worker's, else the name of whom it waits for."""
        children = self._children()
        mine = own(children, own_id)
        if not mine:
            return "itself"
        ahead = predecessor(children, own_id, mine[0])
        if ahead is not None:
            return ahead
        token = self._model.house.stat(LOCK + b"/" + mine[0].name.encode()).czxid
        self._model.got(token, tenure)
        return token

    def _remove(self, own_id: str) -> None:
        assert self.session is not None
        paths = [LOCK + b"/" + each.name.encode() for each in own(self._children(), own_id)]
        if paths:
            self.session.multi(*map(delete, paths))
