"""The clients of the drill: what they do while a fault is made, and what has to be true behind it.

Their sessions last for the whole drill. A round of load works in a folder of its own, is checked, and is deleted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial

from tests.cell_drill.cell import DrillCell
from tests.cell_drill.client import PATIENCE_S, Client
from tests.cell_drill.contents import contents, delete_all
from tests.cell_drill.gaps import Acknowledgements
from tests.cell_drill.pipelines import Pipeline
from tests.cell_drill.registers import INITIAL, Register, RegisterUser
from tests.cell_drill.sequencers import Sequencer, SequentialFolder
from tests.cell_drill.watchers import DataWatcher, FolderWatcher
from tests.cell_drill.wire import PING, data_of, path_body
from tests.crash.raw_client import CREATE, EPHEMERAL, EXISTS, NO_NODE, create_body

ROOT = b"/drill"
ALIVE = ROOT + b"/alive"
REGISTERS = 4
REGISTER_USERS = 6
PIPELINES = 3
SEQUENCERS = 3
WATCHERS = 2
IDLE = 3
PATIENT_S = 7.0
LOST_TIMEOUT_MS = 1_000
LOST_PATIENCE_S = 10.0
WARM_UP_S = 0.3
COOL_DOWN_S = 1.0
END_PATIENCE_S = 60.0
THINK_S = 0.002
WANDERERS_DIVISOR = 3


@dataclass(frozen=True)
class Result:
    """What one round of load saw."""

    longest_gap_s: float
    writes: int
    register_operations: int
    sequential_names: int
    events: int


class Load:
    """All clients, spread over the members at `ports`. Every third is patient: it waits for a member that is paused."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._clients: list[Client] = []
        self._acknowledgements = Acknowledgements()
        self._janitor = self._client("janitor")
        self._idle = [self._client(f"idle-{number}") for number in range(IDLE)]
        self._users = [
            RegisterUser(client, self._acknowledgements) for client in self._clients_of("user", REGISTER_USERS)
        ]
        self._pipelines = [
            Pipeline(client, self._acknowledgements) for client in self._clients_of("pipeline", PIPELINES)
        ]
        self._sequencers = [
            Sequencer(client, self._acknowledgements) for client in self._clients_of("sequencer", SEQUENCERS)
        ]
        self._data_watchers = [DataWatcher(client) for client in self._clients_of("data-watcher", WATCHERS)]
        self._folder_watchers = [FolderWatcher(client) for client in self._clients_of("folder-watcher", WATCHERS)]
        self._rounds = 0

    @property
    def reconnects(self) -> int:
        return sum(client.reconnects for client in self._clients)

    async def start(self) -> None:
        """Open all sessions; each gets an ephemeral znode, by which one sees that it lives."""
        await asyncio.gather(*(client.start() for client in self._clients))
        for path in (ROOT, ALIVE):
            reply = await self._janitor.insist(CREATE, create_body(path, b""))
            assert reply.error == 0, f"{path!r} cannot be made: {reply.error}"
        for client in self._clients:
            await client.insist(CREATE, create_body(_alive(client), b"", EPHEMERAL))

    async def stop(self) -> None:
        await asyncio.gather(*(client.stop() for client in self._clients))

    async def round(self, cell: DrillCell, trouble: Callable[[], Awaitable[str]]) -> tuple[str, Result]:
        """Make trouble under load, and check everything when it is over. Raises AssertionError."""
        self._rounds += 1
        folder = ROOT + b"/%d" % self._rounds
        registers = [Register(folder + b"/register-%d" % number) for number in range(REGISTERS)]
        sequential = SequentialFolder(folder + b"/sequential")
        await self._begin(folder, registers, sequential)
        lost = await self._session_to_lose(folder)
        writing, watching = asyncio.Event(), asyncio.Event()
        writers = [asyncio.create_task(work) for work in self._writing(writing, registers, sequential)]
        watchers = [asyncio.create_task(work) for work in self._watching(watching)]
        before = self._acknowledgements.count
        try:
            await asyncio.sleep(WARM_UP_S)
            await lost.stop(close_session=False)
            for client in random.sample(self._clients, k=len(self._clients) // WANDERERS_DIVISOR):
                client.wander()
            await asyncio.sleep(WARM_UP_S)
            self._acknowledgements.begin_gap()
            what = await _unless_they_fail(trouble(), [*writers, *watchers])
            await asyncio.sleep(COOL_DOWN_S)
            longest_gap_s = self._acknowledgements.longest_gap_s
            writing.set()
            await _finish(writers)
            watching.set()
            await _finish(watchers)
        finally:
            for task in (*writers, *watchers):
                task.cancel()
        writes = self._acknowledgements.count - before
        operations, names, events = await self._check(cell, folder, registers, sequential)
        return what, Result(longest_gap_s, writes, operations, names, events)

    async def _begin(self, folder: bytes, registers: list[Register], sequential: SequentialFolder) -> None:
        for path, data in (
            (folder, b""), (sequential.path, b""), *((register.path, INITIAL) for register in registers)
        ):  # fmt: skip
            reply = await self._janitor.insist(CREATE, create_body(path, data))
            assert reply.error == 0, f"{path!r} cannot be made: {reply.error}"
        for number, pipeline in enumerate(self._pipelines):
            await pipeline.begin(folder + b"/pipeline-%d" % number)
        for data_watcher in self._data_watchers:
            data_watcher.begin([register.path for register in registers])
        for folder_watcher in self._folder_watchers:
            await folder_watcher.begin(folder)

    async def _session_to_lose(self, folder: bytes) -> Client:
        client = Client("lost", self._ports, self._rounds)
        client.timeout_ms = LOST_TIMEOUT_MS
        await client.start()
        await client.insist(CREATE, create_body(_lost(folder), b"", EPHEMERAL))
        return client

    def _writing(
        self, stopping: asyncio.Event, registers: list[Register], sequential: SequentialFolder
    ) -> Iterator[Coroutine[None, None, None]]:
        for user in self._users:
            yield _again_and_again(partial(user.use_one, registers), stopping)
        for sequencer in self._sequencers:
            yield _again_and_again(partial(sequencer.use_one, sequential), stopping)
        for pipeline in self._pipelines:
            yield pipeline.work(stopping)

    def _watching(self, stopping: asyncio.Event) -> Iterator[Coroutine[None, None, None]]:
        yield from (watcher.work(stopping) for watcher in self._data_watchers)
        yield from (watcher.work(stopping) for watcher in self._folder_watchers)

    async def _check(
        self, cell: DrillCell, folder: bytes, registers: list[Register], sequential: SequentialFolder
    ) -> tuple[int, int, int]:
        """Everything. Returns the numbers of operations on registers, of sequential names, and of events."""
        await cell.all_serve()
        self._check_clients()
        await self._check_sessions(folder)
        found, *others = await asyncio.gather(*(contents(member.port, folder) for member in cell.running))
        for member, other in zip(cell.running[1:], others, strict=True):
            differing = [path for path in found.keys() | other.keys() if found.get(path) != other.get(path)]
            assert not differing, f"members {cell.running[0].number} and {member.number} differ in {differing[:5]}"
        operations = sum(register.check(*data_of(found[register.path])) for register in registers)
        for pipeline in self._pipelines:
            names = list(_below(pipeline.folder, found))
            pipeline.done(names, data_of(found[pipeline.folder + b"-counter"])[0])
        sequential_names = sequential.check(_below(sequential.path, found))
        versions = {register.path: data_of(found[register.path])[1].version for register in registers}
        events = await self._check_watches(folder, found, versions)
        self._check_clients()
        await delete_all(self._janitor, found)
        return operations, sequential_names, events

    def _check_clients(self) -> None:
        for client in self._clients:
            if client.failure is not None:
                raise client.failure

    async def _check_sessions(self, folder: bytes) -> None:
        """All sessions that ping are there, with what is theirs; the one that went away is not."""
        for client in self._clients:
            await (await client.connection()).request(PING)
            reply = await self._janitor.insist(EXISTS, path_body(_alive(client)))
            assert reply.error == 0, f"{client.name} pings, and its ephemeral znode is gone"
        deadline_s = time.monotonic() + LOST_PATIENCE_S
        while (await self._janitor.insist(EXISTS, path_body(_lost(folder)))).error != NO_NODE:
            assert time.monotonic() < deadline_s, "a session whose client went away does not expire"
            await asyncio.sleep(0.1)

    async def _check_watches(self, folder: bytes, found: dict[bytes, bytes], versions: dict[bytes, int]) -> int:
        below = [path for path in found if path.startswith(folder + b"/")]
        made_before = {folder + b"/sequential", *versions}
        made_before |= {
            path for pipeline in self._pipelines for path in (pipeline.folder, pipeline.folder + b"-counter")
        }
        created = [path for path in below if path not in made_before]
        for data_watcher in self._data_watchers:
            await data_watcher.settle(versions)
        for folder_watcher in self._folder_watchers:
            await folder_watcher.settle(created, versions)
        watchers: list[DataWatcher | FolderWatcher] = [*self._data_watchers, *self._folder_watchers]
        events = sum(watcher.events for watcher in watchers)
        for watcher in watchers:
            watcher.end()
        return events

    def _client(self, name: str) -> Client:
        number = len(self._clients)
        client = Client(name, self._ports, number, PATIENCE_S if number % 3 else PATIENT_S)
        self._clients.append(client)
        return client

    def _clients_of(self, name: str, count: int) -> Iterator[Client]:
        for number in range(count):
            yield self._client(f"{name}-{number}")


def _alive(client: Client) -> bytes:
    return ALIVE + b"/" + client.name.encode()


def _lost(folder: bytes) -> bytes:
    return folder + b"/lost"


def _below(folder: bytes, found: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Name to data of the children of a folder."""
    start = folder + b"/"
    return {path.removeprefix(start): data_of(body)[0] for path, body in found.items() if path.startswith(start)}


async def _again_and_again(work: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await work()
        await asyncio.sleep(THINK_S)


async def _unless_they_fail(trouble: Awaitable[str], tasks: list[asyncio.Task[None]]) -> str:
    """The result of `trouble`, or what one of the tasks raised meanwhile."""
    made = asyncio.ensure_future(trouble)
    done, _ = await asyncio.wait([made, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if made not in done:
        made.cancel()
    for task in done - {made}:
        task.result()
    return made.result()


async def _finish(tasks: list[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(END_PATIENCE_S):
        await asyncio.gather(*tasks)
