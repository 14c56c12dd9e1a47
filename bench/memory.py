"""What a server weighs, how long it takes to serve again, and how long a client waits beside a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.driver import BackgroundLoad, load
from bench.server import Server
from bench.table import table

VALUE_BYTES = 100
PROBE: dict[str, float | str] = {"connections": 1, "depth": 1, "keys": 1, "prefix": "/probe", "warm_up": 0}
#: Few requests at a time, so that a probe that waits long waits for a pause and not in a queue.
WRITERS: dict[str, float | str] = {"connections": 4, "depth": 1, "warm_up": 0}
WRITING_S = 30
SETTLED_FRACTION = 0.01
SETTLE_LIMIT_S = 20
MEGABYTE = 1_000_000

Progress = Callable[[str], None]


def measure_memory(servers: Sequence[Server], znodes: int, sessions: int, say: Progress) -> dict[str, dict[str, Any]]:
    """Every figure by server, one server after the other. A directory must be fresh."""
    figures = {}
    for server in servers:
        say(f"{server.name}: {sessions} idle sessions")
        server.start()
        measured: dict[str, Any] = {"idle_session_bytes": idle_session_bytes(server, sessions)}
        server.stop()
        server.start()
        measured["empty_rss_anon_bytes"] = settled_bytes(server)
        say(f"{server.name}: {znodes} znodes of {VALUE_BYTES} bytes")
        measured.update(fill_and_probe(server, znodes))
        measured["rss_anon_bytes"] = settled_bytes(server)
        say(f"{server.name}: writing for {WRITING_S} s, with a probe beside it")
        measured.update(write_and_probe(server, znodes))
        measured["rss_anon_after_writes_bytes"] = settled_bytes(server)
        say(f"{server.name}: two restarts")
        measured["restart_s"] = restart_s(server, server.stop)
        measured["rss_anon_after_restart_bytes"] = settled_bytes(server)
        measured["restart_after_kill_s"] = restart_s(server, server.kill)
        server.stop()
        figures[server.name] = measured
    return figures


def idle_session_bytes(server: Server, sessions: int) -> float:
    """Growth of anonymous memory per session that does nothing but ping; a tenth as many come and go before."""
    load(server.client_port, "sessions", connections=max(sessions // 10, 1), depth=40)
    before = settled_bytes(server)
    holding = BackgroundLoad(server.client_port, "hold", connections=sessions)
    holding.first_line()
    after = settled_bytes(server)
    holding.end()
    return (after - before) / sessions


def fill_and_probe(server: Server, znodes: int) -> dict[str, Any]:
    """Create the znodes, and see how long a client that reads meanwhile has to wait at most."""
    load(server.client_port, "fill", keys=1, prefix="/probe")
    filling = BackgroundLoad(server.client_port, "fill", keys=znodes, connections=8, depth=8, size=VALUE_BYTES)
    pauses = []
    while filling.running:
        pauses.append(load(server.client_port, "get", seconds=1, **PROBE)["max_ms"])
    created = filling.finish()
    return {"creates_per_s": created["requests_per_s"], "longest_pause_while_filling_ms": max(pauses)}


def write_and_probe(server: Server, znodes: int) -> dict[str, Any]:
    """Change znodes all over the tree for a while, with checkpoints among it, and probe beside it."""
    newest = server.newest_checkpoint_ns()
    writing = BackgroundLoad(server.client_port, "set", keys=znodes, size=VALUE_BYTES, seconds=WRITING_S, **WRITERS)
    probe = load(server.client_port, "get", seconds=WRITING_S - 1, **PROBE)
    written = writing.finish()
    return {
        "writes_per_s": written["requests_per_s"],
        "longest_pause_ms": probe["max_ms"],
        "probe_p99_ms": probe["p99_ms"],
        "longest_write_ms": written["max_ms"],
        "checkpoint_written": server.newest_checkpoint_ns() > newest,
    }


def restart_s(server: Server, end: Callable[[], None]) -> float:
    """Seconds from the start of a new process until it serves clients, behind an orderly end or a crash."""
    end()
    started = time.monotonic()
    server.start()
    return time.monotonic() - started


def settled_bytes(server: Server) -> int:
    """Anonymous memory, once it has not moved by more than a hundredth for two seconds."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    size = server.anonymous_bytes()
    while time.monotonic() < deadline:
        time.sleep(2)
        previous, size = size, server.anonymous_bytes()
        if abs(size - previous) <= previous * SETTLED_FRACTION:
            break
    return size


def memory_table(figures: dict[str, dict[str, Any]]) -> str:
    rows = [["", *figures]]
    rows.extend([title, *(show(measured) for measured in figures.values())] for title, show in LINES)
    return table(rows)


def _megabytes(figure: str) -> Callable[[dict[str, Any]], str]:
    return lambda measured: f"{measured[figure] / MEGABYTE:,.0f}"


def _number(figure: str, form: str) -> Callable[[dict[str, Any]], str]:
    return lambda measured: f"{measured[figure]:{form}}"


LINES: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("RssAnon with no znodes, MB", _megabytes("empty_rss_anon_bytes")),
    ("RssAnon with the znodes, MB", _megabytes("rss_anon_bytes")),
    ("RssAnon after further writes, MB", _megabytes("rss_anon_after_writes_bytes")),
    ("RssAnon after a restart, MB", _megabytes("rss_anon_after_restart_bytes")),
    ("serving again after a restart, s", _number("restart_s", ".2f")),
    ("serving again after kill -9, s", _number("restart_after_kill_s", ".2f")),
    ("longest pause of a reader while the znodes are created, ms", _number("longest_pause_while_filling_ms", ".1f")),
    ("longest pause of a reader beside checkpoints, ms", _number("longest_pause_ms", ".1f")),
    ("idle session, bytes", _number("idle_session_bytes", ",.0f")),
)
