"""The fencing safety test on real processes: a cell of three, workers, and SIGSTOP, SIGKILL and cuts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sqlite3
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from tests.cell_drill import faults
from tests.cell_drill.cell import DrillCell
from tests.fencing.resources import require
from tests.fencing.worker import make_tables
from tests.server_process import ROOT

KINDS = ("fenced", "plain")
WORKERS_OF_A_KIND = 3
PATIENCE_S = 60.0
#: How many writes of others a paused worker sleeps through.
SLEPT_THROUGH = 2
CALM_WRITES = 2


class Worker:
    """A process of `tests.fencing.worker`, started anew when it is killed."""

    def __init__(self, kind: str, name: str, servers: str, database: Path) -> None:
        self.kind = kind
        self._command = [sys.executable, "-m", "tests.fencing.worker", servers, str(database), name, kind]
        self.said: Counter[str] = Counter()
        self.last_words: deque[str] = deque(maxlen=20)
        self.is_inside = False
        self.changed = asyncio.Condition()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self._listening = asyncio.create_task(self._listen())

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._listening

    async def says(self, word: str, times: int = 1) -> None:
        """Return once it has said this so many times more."""
        wanted = self.said[word] + times
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.said[word] >= wanted)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            words = line.decode().split()
            async with self.changed:
                self.said[words[0] if words else ""] += 1
                self.last_words.append(line.decode().rstrip())
                self.is_inside = words[:1] == ["holding"]
                self.changed.notify_all()
        self.is_inside = False


class Drill:
    """Rounds of trouble. To be used within a running cell."""

    def __init__(self, cell: DrillCell, database: Path) -> None:
        self._cell = cell
        self._database = database
        servers = ",".join(f"127.0.0.1:{port}" for port in cell.ports)
        self.workers = [
            Worker(kind, f"{kind}-{number}", servers, database) for kind in KINDS for number in range(WORKERS_OF_A_KIND)
        ]
        self.faults: dict[str, Callable[[], Awaitable[str]]] = {
            "pause": self._pause_holders,
            "kill": self._kill_holders,
            "leader": lambda: faults.kill(cell),
            "cut": lambda: faults.cut(cell),
        }

    async def run(self, rounds: int, tell: Callable[[str], None]) -> Counter[str]:
        """So many rounds: what happened. Raises Violation."""
        with closing(sqlite3.connect(self._database)) as database:
            make_tables(database)
        for worker in self.workers:
            await worker.start()
        try:
            await self._calm()
            names = [name for _, name in zip(range(rounds), self._order(), strict=False)]
            for number, name in enumerate(names, 1):
                what = await self.faults[name]()
                await self._calm()
                counts = self._check()
                tell(f"{number}/{rounds} {what}: {dict(counts)}")
        except TimeoutError as error:
            words = {worker.kind: list(worker.last_words)[-5:] for worker in self.workers}
            raise AssertionError(f"a worker does not get on: {words}") from error
        finally:
            for worker in self.workers:
                await worker.kill()
        return self._check()

    def _order(self) -> list[str]:
        """Every second one a pause, which is what fencing is for."""
        others = ["kill", "leader", "cut"]
        random.shuffle(others)
        return [name for round_ in range(1000) for name in ("pause", others[round_ % 3])]

    async def _calm(self) -> None:
        """Everybody gets on."""
        await asyncio.gather(*(self._one_of(kind).says("wrote", CALM_WRITES) for kind in KINDS))

    def _one_of(self, kind: str) -> Worker:
        return random.choice([worker for worker in self.workers if worker.kind == kind])

    async def _pause_holders(self) -> str:
        await asyncio.gather(*map(self._pause_holder, KINDS))
        return "a holder of each kind paused"

    async def _pause_holder(self, kind: str) -> None:
        holder = await self._holder(kind)
        holder.signal(signal.SIGSTOP)
        others = [worker for worker in self.workers if worker.kind == kind and worker is not holder]
        try:
            written = [asyncio.create_task(worker.says("wrote", SLEPT_THROUGH)) for worker in others]
            await asyncio.wait(written, return_when=asyncio.FIRST_COMPLETED)
            for task in written:
                task.cancel()
        finally:
            holder.signal(signal.SIGCONT)

    async def _kill_holders(self) -> str:
        for kind in KINDS:
            holder = await self._holder(kind)
            await holder.kill()
            await holder.start()
        return "a holder of each kind killed"

    async def _holder(self, kind: str) -> Worker:
        """One that has just got the lock."""
        workers = [worker for worker in self.workers if worker.kind == kind]
        waiting = {asyncio.create_task(worker.says("holding")): worker for worker in workers}
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        first = done.pop()
        first.result()
        return waiting[first]

    def _check(self) -> Counter[str]:
        with closing(sqlite3.connect(self._database, timeout=PATIENCE_S)) as database, database:
            database.execute("BEGIN IMMEDIATE")
            values = dict(database.execute("SELECT kind, value FROM number"))
            writes = dict(database.execute("SELECT kind, count(*) FROM accepted GROUP BY kind"))
            query = "SELECT token FROM accepted WHERE kind = 'fenced' ORDER BY place"
            tokens = [token for (token,) in database.execute(query)]
        require(tokens == sorted(set(tokens)), "tokens were accepted out of order")
        lost = {kind: writes.get(kind, 0) - values[kind] for kind in KINDS}
        require(lost["fenced"] == 0, f"{lost['fenced']} writes under fenced locks were lost")
        stale = sum(worker.said["stale"] for worker in self.workers)
        return Counter(
            accepted=writes.get("fenced", 0), rejected=stale, plain=writes.get("plain", 0), lost=lost["plain"]
        )


async def run_drill(directory: Path, base_port: int, rounds: int, tell: Callable[[str], None]) -> Counter[str]:
    """A drill on a cell of its own. Raises Violation."""
    async with DrillCell(directory / "cell", base_port) as cell:
        return await Drill(cell, directory / "numbers").run(rounds, tell)
