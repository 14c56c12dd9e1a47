"""Measures znoded and, where it can be found, ZooKeeper 3.9.5 beside it, and prints how they compare.

    python -m bench              speed: every workload, five rounds of znoded, ZooKeeper, znoded, ZooKeeper ...
    python -m bench --cell       the same for a cell of three members beside an ensemble of three servers
    python -m bench --memory     memory: a million znodes, a restart, pauses beside checkpoints, idle sessions

Both servers run on this machine and on one disk, and only one is under load at a time. A round that is not counted
comes first, so that a Java virtual machine has compiled its code. docs/performance.md describes the method.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from bench.cell import Cell, znoded_cell, zookeeper_cell
from bench.driver import CACHE, DriverError, NullServer, Ports, Result, load
from bench.fetch_zookeeper import fetch, find_jars
from bench.memory import measure_memory, memory_table
from bench.server import Server, ServerError
from bench.table import table
from bench.workloads import CELL_WORKLOADS, WORKLOADS, Workload
from bench.znoded import Znoded
from bench.zookeeper import ZooKeeper

Progress = Callable[[str], None]
Measured = Server | Cell


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    jars = find_jars(options.zookeeper_jars) or (fetch() if options.fetch else None)
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="run-") as scratch:
        ports = count(options.port)
        servers: Sequence[Measured] = ()
        try:
            report: dict[str, Any] = {"machine": machine()}
            if options.memory:
                servers = alone = make_servers(Path(scratch), ports, jars)
                report["memory"] = measure_memory(alone, options.znodes, options.sessions, say)
                print(memory_table(report["memory"]))
            else:
                make, workloads = (make_cells, CELL_WORKLOADS) if options.cell else (make_servers, WORKLOADS)
                servers = make(Path(scratch), ports, jars)
                report["speed"] = measure_speed(servers, workloads, next(ports), options)
                print(speed_table(report["speed"]))
            report["servers"] = [server.name for server in servers]
        except (DriverError, ServerError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            for server in servers:
                server.stop()
    if jars is None:
        say("ZooKeeper was not measured: there is no folder with its jars. Give --zookeeper-jars DIR, or --fetch.")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    say(f"every figure is in {options.json}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure znoded, and ZooKeeper beside it.")
    parser.add_argument("--memory", action="store_true", help="measure memory, restarts and pauses instead of speed")
    parser.add_argument("--cell", action="store_true", help="measure the speed of cells of three instead of one server")
    parser.add_argument("--zookeeper-jars", type=Path, help="folder that holds zookeeper-3.9.5.jar and what it needs")
    parser.add_argument("--fetch", action="store_true", help="fetch the jars (about 450 MB, once) when there are none")
    parser.add_argument(
        "--only",
        action="append",
        choices=[w.name for w in (*WORKLOADS, *CELL_WORKLOADS)],
        help="measure this workload only; may be repeated",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured seconds of a round (default 5)")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before them that do not count (default 1)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value (default 100)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the load driver (default 1)")
    parser.add_argument("--znodes", type=int, default=1_000_000, help="znodes of the memory measurement")
    parser.add_argument("--sessions", type=int, default=10_000, help="idle sessions of the memory measurement")
    parser.add_argument(
        "--port", type=int, default=21890, help="first port to use, of up to 19 in a row (default 21890)"
    )
    parser.add_argument("--directory", type=Path, default=CACHE, help="where the servers keep their data meanwhile")
    parser.add_argument("--json", type=Path, default=CACHE / "results.json", help="file for every figure")
    options = parser.parse_args(arguments)
    if options.memory and options.cell:
        parser.error("--memory measures single servers: leave out --cell")
    return options


def make_servers(directory: Path, ports: Iterator[int], jars: Path | None) -> list[Server]:
    servers: list[Server] = [Znoded(directory / "znoded", next(ports), admin_port=next(ports))]
    if jars is not None:
        servers.append(ZooKeeper(jars, directory / "zookeeper", next(ports)))
    return servers


def make_cells(directory: Path, ports: Iterator[int], jars: Path | None) -> list[Cell]:
    cells = [znoded_cell(directory / "znoded", ports)]
    if jars is not None:
        cells.append(zookeeper_cell(jars, directory / "zookeeper", ports))
    return cells


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_before": os.getloadavg()[0],
    }


def measure_speed(
    servers: Sequence[Measured], workloads: Sequence[Workload], null_port: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """For each workload: the runs of each server by name, and one of the null server, the driver's ceiling."""
    for server in servers:
        say(f"starting {server.name}")
        server.start()
        load(server.ports, "fill", size=options.size, depth=16)
    measured = []
    for workload in workloads:
        if options.only and workload.name not in options.only:
            continue
        runs: dict[str, list[Result]] = {server.name: [] for server in servers}
        for number in range(options.rounds + 1):
            for server in servers:
                serializable = workload.serializable and server.knows_serializable
                run = run_workload(server.ports, workload, options, serializable)
                if number:
                    runs[server.name].append(run)
            say(f"{workload.title}: round {number} of {options.rounds}")
        with NullServer(null_port, options.size) as null_server:
            ceiling = run_workload(null_server.port, workload, options)
        measured.append(
            {
                "workload": workload.name,
                "title": workload.title,
                "goal": workload.goal,
                "runs": runs,
                "ceiling": ceiling,
            }
        )
    return measured


def run_workload(ports: Ports, workload: Workload, options: argparse.Namespace, serializable: bool = False) -> Result:
    timing = {"seconds": options.seconds, "warm_up": options.warm_up} if workload.timed else {}
    threads = 1 if workload.mode == "fanout" else options.threads
    return load(
        ports,
        workload.mode,
        connections=workload.connections,
        depth=workload.depth,
        size=options.size,
        threads=threads,
        serializable=int(serializable),
        **timing,
    )


def speed_table(measured: Sequence[dict[str, Any]]) -> str:
    """Medians over the rounds; the ratio is znoded's to ZooKeeper's, for p99 the smaller is the better."""
    rows = [
        [
            "workload",
            "znoded /s",
            "ZooKeeper /s",
            "ratio",
            "goal",
            "znoded p99 ms",
            "ZooKeeper p99 ms",
            "ratio",
            "driver's ceiling /s",
        ]
    ]
    for one in measured:
        ours, theirs = (one["runs"].get(name) for name in ("znoded", "ZooKeeper"))
        rows.append(
            [
                one["title"],
                *compared(ours, theirs, "requests_per_s", ",.0f", one["goal"]),
                *compared(ours, theirs, "p99_ms", ".2f")[:3],
                f"{one['ceiling']['requests_per_s']:,.0f}",
            ]
        )
    return table(rows)


def compared(
    ours: list[Result], theirs: list[Result] | None, figure: str, form: str, goal: float | None = None
) -> list[str]:
    """Cells: our median, their median, the ratio, the goal."""
    our_median = median(run[figure] for run in ours)
    goal_cell = f"{goal:.1f}" if goal else ""
    if not theirs:
        return [f"{our_median:{form}}", "", "", goal_cell]
    their_median = median(run[figure] for run in theirs)
    return [f"{our_median:{form}}", f"{their_median:{form}}", f"{our_median / their_median:.2f}", goal_cell]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
