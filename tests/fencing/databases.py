"""The databases that the guard is tested with: SQLite, and PostgreSQL where it is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.conftest import Parts
from tests.server_process import free_port

POSTGRES_USER = "postgres"  # PostgreSQL refuses to run as root
POSTGRES_PROGRAMS = "/usr/lib/postgresql/*/bin/initdb"


@dataclass(frozen=True)
class Database:
    """`connect` opens a connection that begins transactions by itself, `connect_plain` one that does not."""

    paramstyle: str
    connect: Callable[[], Any]
    connect_plain: Callable[[], Any]


@contextmanager
def sqlite(directory: Path) -> Iterator[Database]:
    file = directory / "database"
    yield Database(
        sqlite3.paramstyle,
        lambda: sqlite3.connect(file, timeout=30.0),
        lambda: sqlite3.connect(file, timeout=30.0, isolation_level=None),
    )


@contextmanager
def postgresql(parts: Parts) -> Iterator[Database]:
    """A PostgreSQL server of our own. A missing part is told to `parts`."""
    parts.module("psycopg", "'psycopg[binary]'")
    bin_dir = parts.file(POSTGRES_PROGRAMS, "Debian's postgresql-15").parent
    if os.geteuid() != 0:
        parts.missing("only root can become the user postgres, who runs PostgreSQL")
    import psycopg

    directory = Path(tempfile.mkdtemp(prefix="fencing-postgres-"))
    shutil.chown(directory, POSTGRES_USER, POSTGRES_USER)
    data, port = directory / "data", free_port()
    control = [str(bin_dir / "pg_ctl"), "-D", str(data), "-w", "-l", str(directory / "log")]
    options = f"-F -h 127.0.0.1 -p {port} -k {directory} -c shared_buffers=16MB"

    def run(*command: str) -> None:
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            user=POSTGRES_USER,
            group=pwd.getpwnam(POSTGRES_USER).pw_gid,
            extra_groups=[],
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            timeout=60,
        )

    try:
        run(str(bin_dir / "initdb"), "-D", str(data), "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        run(*control, "-o", options, "start")
        address = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
        try:
            yield Database(
                psycopg.paramstyle,
                lambda: psycopg.connect(address),
                lambda: psycopg.connect(address, autocommit=True),
            )
        finally:
            run(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
