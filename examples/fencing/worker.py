"""A worker that adds to an account in a database, under a lock, with a fencing token. See README.md."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from contextlib import closing

from kazoo.client import KazooClient

from znoded.fencing import FencingGuard, StaleToken
from znoded.recipes import FencedLock

ACCOUNT = "accounts/1"
guard = FencingGuard(sqlite3.paramstyle)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--coordinator", default="127.0.0.1:2181", help="host:port,host:port,...")
    parser.add_argument("--database", default="accounts.sqlite3")
    parser.add_argument("--session-timeout", type=float, default=4.0, help="in seconds")
    options = parser.parse_args()
    client = KazooClient(options.coordinator, timeout=options.session_timeout)
    client.start()
    try:
        with closing(sqlite3.connect(options.database, timeout=30.0)) as database:
            set_up(database)
            return work(options.name, FencedLock(client, f"/locks/{ACCOUNT}", options.name), database)
    finally:
        client.stop()


def set_up(database: sqlite3.Connection) -> None:
    with database:
        guard.create_table(database)
        database.execute("CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, balance INTEGER)")
        database.execute("INSERT OR IGNORE INTO account VALUES (?, 0)", (ACCOUNT,))


def work(name: str, lock: FencedLock, database: sqlite3.Connection) -> int:
    with lock.acquire() as lease:
        with database:
            guard.check(database, ACCOUNT, lease.token)
            (balance,) = database.execute("SELECT balance FROM account WHERE id = ?", (ACCOUNT,)).fetchone()
        print(f"{name}: token {lease.token}, balance {balance}; Enter adds 10", flush=True)
        sys.stdin.readline()  # here a process may be stopped for as long as it pleases somebody
        try:
            with database:
                guard.check(database, ACCOUNT, lease.token)
                database.execute("UPDATE account SET balance = ? WHERE id = ?", (balance + 10, ACCOUNT))
        except StaleToken as stale:
            print(f"{name}: rejected, {stale}", flush=True)
            return 1
        print(f"{name}: balance {balance + 10}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
