"""The drill in which a member comes back to what was written without it, or comes anew to a large tree.

The others have to serve on meanwhile: no read there may take long.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from tests.cell_drill.cell import DrillCell, Member
from tests.cell_drill.client import Client
from tests.cell_drill.operator import Operator
from tests.cell_drill.probe import Probe, Reads
from tests.cell_drill.wire import PING, path_body
from tests.crash.raw_client import CREATE, GET_DATA, MULTI, PERSISTENT, SET_DATA, Reply, create_body, set_data_body

WRITES_MISSED = 200_000
DATA = b"x" * 100
CREATES_A_MULTI = 500
IN_FLIGHT = 256
MULTIS_IN_FLIGHT = 8
CAUGHT_UP_PATIENCE_S = 120.0
WIPED_WITHIN_S = 30.0
READ_WITHIN_S = 0.1
BACKGROUND_WRITES_PER_S = 200
EXTRA_TOML = "log_tail_bytes = 268435456\n"
COUNTER = b"/counter"


async def drill_catch_up(directory: Path, base_port: int, znodes: int) -> None:
    """Both ways to catch up, on a cell of three. Raises AssertionError when the cell fails, or is too slow."""
    async with DrillCell(directory, base_port, extra_toml=EXTRA_TOML, is_cuttable=False) as cell:
        operator, writer = Operator(cell), Client("writer", cell.ports, patience_s=20.0)
        await operator.start()
        await writer.start()
        await writer.insist(CREATE, create_body(COUNTER, b""))
        reads = await _by_log(cell, operator, writer)
        took_s, more_reads = await _by_snapshot(cell, operator, writer, znodes)
        await writer.stop()
        await operator.stop()
    longest_s = max(read.longest_s for read in reads + more_reads)
    assert longest_s < READ_WITHIN_S, f"a read took {longest_s:.3f} s, and may take {READ_WITHIN_S} s"
    assert took_s < WIPED_WITHIN_S, f"a wiped member took {took_s:.0f} s, and may take {WIPED_WITHIN_S:.0f} s"


async def _by_log(cell: DrillCell, operator: Operator, writer: Client) -> list[Reads]:
    """A member is dead for so long that it misses many writes."""
    member = await _follower(cell)
    await asyncio.to_thread(member.kill)
    began_s = time.monotonic()
    await _stream(writer, _sets(WRITES_MISSED), IN_FLIGHT)
    print(f"{WRITES_MISSED} writes without member {member.number} in {time.monotonic() - began_s:.0f} s", flush=True)

    async def come_back() -> None:
        member.launch()
        await _caught_up(cell, operator, member)

    took_s, reads = await _measured(cell, member, writer, come_back)
    print(f"member {member.number} caught up by log in {took_s:.1f} s; {_told(reads)}", flush=True)
    return reads


async def _by_snapshot(cell: DrillCell, operator: Operator, writer: Client, znodes: int) -> tuple[float, list[Reads]]:
    """A member loses its disk, and is removed and added again."""
    began_s = time.monotonic()
    await _stream(writer, _creates(znodes), MULTIS_IN_FLIGHT)
    print(f"{znodes} znodes of {len(DATA)} bytes in {time.monotonic() - began_s:.0f} s", flush=True)
    member = await _follower(cell)
    await asyncio.to_thread(member.kill)
    await operator.change(leaving=[member])
    member.wipe()
    member.configure(cell.members.values())

    async def come_anew() -> None:
        await operator.change(joining=[member])
        member.launch()
        await _caught_up(cell, operator, member)

    took_s, reads = await _measured(cell, member, writer, come_anew)
    print(f"{znodes} znodes reached the wiped member {member.number} in {took_s:.1f} s; {_told(reads)}", flush=True)
    return took_s, reads


async def _measured(
    cell: DrillCell, member: Member, writer: Client, come: Callable[[], Awaitable[None]]
) -> tuple[float, list[Reads]]:
    """How long `member` takes to come, and how long reads at the others take, while there are writes."""
    others = [other for other in cell.members.values() if other is not member]
    probes = [await asyncio.to_thread(Probe(other.port, COUNTER).start) for other in others]
    background = asyncio.create_task(_write_on(writer))
    began_s = time.monotonic()
    await come()
    took_s = time.monotonic() - began_s
    background.cancel()
    return took_s, [await asyncio.to_thread(probe.end) for probe in probes]


async def _caught_up(cell: DrillCell, operator: Operator, member: Member) -> None:
    """All vote, and `member` answers a linearizable read: it has all that was written before."""
    await operator.settled(cell.members.values(), CAUGHT_UP_PATIENCE_S)
    reader = Client("reader", [member.port], patience_s=CAUGHT_UP_PATIENCE_S)
    await reader.start()
    await reader.insist(GET_DATA, path_body(COUNTER))
    await reader.stop()


async def _follower(cell: DrillCell) -> Member:
    leader = await cell.leader()
    return random.choice([member for member in cell.members.values() if member is not leader])


async def _write_on(writer: Client) -> None:
    """A steady load of writes."""
    number = 0
    while True:
        number += 1
        await writer.insist(SET_DATA, set_data_body(COUNTER, b"%d" % number))
        await asyncio.sleep(1 / BACKGROUND_WRITES_PER_S)


async def _stream(writer: Client, requests: Iterator[tuple[int, bytes]], in_flight_most: int) -> None:
    """Send all, so many in flight, and wait for the replies."""
    connection = await writer.connection()
    in_flight: deque[asyncio.Future[Reply]] = deque()
    for op, body in requests:
        in_flight.append(connection.request(op, body))
        if len(in_flight) >= in_flight_most:
            _check(await in_flight.popleft())
    for reply in in_flight:
        _check(await reply)
    _check(await connection.request(PING))


def _check(reply: Reply) -> None:
    assert reply.error == 0, f"a write was answered with error {reply.error}"


def _sets(count: int) -> Iterator[tuple[int, bytes]]:
    for number in range(count):
        yield SET_DATA, set_data_body(COUNTER, b"%d " % number + DATA)


def _creates(count: int) -> Iterator[tuple[int, bytes]]:
    """So many znodes, in folders of as many as one request makes."""
    for start in range(0, count, CREATES_A_MULTI):
        folder = b"/folder-%d" % start
        yield CREATE, create_body(folder, b"")
        yield MULTI, _multi(b"%s/%d" % (folder, number) for number in range(CREATES_A_MULTI))


def _multi(paths: Iterator[bytes]) -> bytes:
    head = struct.pack(">i?i", CREATE, False, -1)
    return b"".join(head + create_body(path, DATA, PERSISTENT) for path in paths) + struct.pack(">i?i", -1, True, -1)


def _told(reads: list[Reads]) -> str:
    each = ", ".join(f"{1000 * read.longest_s:.0f} ms at {read.port} ({read.number})" for read in reads)
    return f"longest of the reads at the others {each}"
