"""The drill in which leaders are killed, paused and cut off, in any order."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.cell_drill.cell import DrillCell
from tests.cell_drill.faults import Fault, cut, kill, pause
from tests.cell_drill.gaps import told
from tests.cell_drill.load import Load, Result

FAULTS: dict[str, Fault] = {"kill": kill, "pause": pause, "cut": cut}


async def drill_leaders(directory: Path, base_port: int, times: Mapping[str, int]) -> None:
    """Each fault so many times, on a cell of three. Raises AssertionError when the cell fails."""
    names = [name for name, count in times.items() for _ in range(count)]
    random.shuffle(names)
    results: dict[str, list[Result]] = defaultdict(list)
    began_s = time.monotonic()
    async with DrillCell(directory, base_port) as cell:
        load = Load(cell.ports)
        await load.start()
        for number, name in enumerate(names, 1):
            what, result = await load.round(cell, partial(FAULTS[name], cell))
            results[name].append(result)
            print(f"{number}/{len(names)} {what}: {told_round(result)}", flush=True)
        await load.stop()
    every = [result for some in results.values() for result in some]
    for name, some in results.items():
        print(f"{len(some)} times {name}: longest write gap {told([result.longest_gap_s for result in some])}")
    print(
        f"{sum(each.writes for each in every)} acknowledged writes, none lost; "
        f"{sum(each.register_operations for each in every)} operations on registers, linearizable; "
        f"{sum(each.sequential_names for each in every)} sequential names, unique and increasing; "
        f"{sum(each.events for each in every)} watch events, none missing; "
        f"{load.reconnects} reconnects, no session expired; {time.monotonic() - began_s:.0f} s"
    )


def told_round(result: Result) -> str:
    return f"write gap {result.longest_gap_s:.3f} s, {result.writes} writes, {result.events} events"
