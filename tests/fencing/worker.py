"""A worker of the drill: SERVERS DATABASE NAME fenced|plain. It adds to a number, under a lock, again and again.

It prints `holding` when it has the lock and the number, and `wrote` or `stale` when it has tried to write it back.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from contextlib import closing

from kazoo.client import KazooClient

from znoded.fencing import FencingGuard, StaleToken
from znoded.recipes import FencedLock

SESSION_TIMEOUT_S = 1.0
THINKS_S = (0.02, 0.1)
DATABASE_PATIENCE_S = 60.0
RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.2}
NUMBER = "SELECT value FROM number WHERE kind = ?"
WRITE = "UPDATE number SET value = ? WHERE kind = ?"
ACCEPT = "INSERT INTO accepted (kind, token) VALUES (?, ?)"


def make_tables(database: sqlite3.Connection) -> None:
    with database:
        FencingGuard(sqlite3.paramstyle).create_table(database)
        database.execute("CREATE TABLE number (kind TEXT PRIMARY KEY, value INTEGER)")
        database.execute("CREATE TABLE accepted (place INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, token INTEGER)")
        database.executemany("INSERT INTO number VALUES (?, 0)", [("fenced",), ("plain",)])


def work_fenced(client: KazooClient, database: sqlite3.Connection, name: str) -> None:
    guard = FencingGuard(sqlite3.paramstyle)
    lock = FencedLock(client, "/locks/fenced", name)
    while True:
        with lock.acquire() as lease:
            try:
                with database:
                    guard.check(database, "number", lease.token)
                    (value,) = database.execute(NUMBER, ("fenced",)).fetchone()
                say(f"holding {lease.token}")
                time.sleep(random.uniform(*THINKS_S))
                with database:
                    guard.check(database, "number", lease.token)
                    database.execute(WRITE, (value + 1, "fenced"))
                    database.execute(ACCEPT, ("fenced", lease.token))
                say("wrote")
            except StaleToken:
                say("stale")


def work_plain(client: KazooClient, database: sqlite3.Connection, name: str) -> None:
    while True:
        with client.Lock("/locks/plain", name):
            (value,) = database.execute(NUMBER, ("plain",)).fetchone()
            say("holding")
            time.sleep(random.uniform(*THINKS_S))
            with database:
                database.execute(WRITE, (value + 1, "plain"))
                database.execute(ACCEPT, ("plain", None))
            say("wrote")


def say(word: str) -> None:
    print(word, flush=True)


def main(servers: str, database_path: str, name: str, kind: str) -> None:
    client = KazooClient(servers, timeout=SESSION_TIMEOUT_S, connection_retry=RETRY, command_retry=RETRY)
    client.start(timeout=DATABASE_PATIENCE_S)
    work = {"fenced": work_fenced, "plain": work_plain}[kind]
    with closing(sqlite3.connect(database_path, timeout=DATABASE_PATIENCE_S)) as database:
        work(client, database, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
