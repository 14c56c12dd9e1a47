"""The guard in SQLite and PostgreSQL: in the transaction of the write, or not at all."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.fencing.databases import Database, postgresql, sqlite
from tests.interop.conftest import Parts
from znoded.fencing import FencingGuard, OutsideTransaction, StaleToken


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.interop)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(sqlite(tmp_path_factory.mktemp("fencing")))
        else:
            yield stack.enter_context(postgresql(Parts()))


@pytest.fixture
def database(server: Database) -> Database:
    with closing(server.connect()) as connection:
        for table in ("fencing_tokens", "account"):
            connection.cursor().execute(f"DROP TABLE IF EXISTS {table}")
        connection.cursor().execute("CREATE TABLE account (balance BIGINT)")
        connection.cursor().execute("INSERT INTO account VALUES (0)")
        FencingGuard(server.paramstyle).create_table(connection)
        connection.commit()
    return server


@pytest.fixture
def guard(database: Database) -> FencingGuard:
    return FencingGuard(database.paramstyle)


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    with closing(database.connect()) as connection:
        yield connection


def balance(connection: Any) -> int:
    cursor = connection.cursor()
    cursor.execute("SELECT balance FROM account")
    return int(cursor.fetchone()[0])


def test_a_lower_token_is_rejected_and_the_same_is_not(guard: FencingGuard, connection: Any) -> None:
    assert guard.highest(connection, "account") is None
    for token in (5, 5, 1 << 40):
        guard.check(connection, "account", token)
    with pytest.raises(StaleToken, match="token 6 for 'account' is stale: token 1099511627776") as raised:
        guard.check(connection, "account", 6)
    assert (raised.value.object_name, raised.value.token, raised.value.highest) == ("account", 6, 1 << 40)
    guard.check(connection, "another account", 1)
    connection.commit()
    assert guard.highest(connection, "account") == 1 << 40


def test_a_token_is_let_in_and_rejected_where_answers_come_late(guard: FencingGuard, connection: Any) -> None:
    """In a pipeline of psycopg's it is not known at once how many rows a statement changed."""
    guard.check(connection, "account", 5)
    with getattr(connection, "pipeline", nullcontext)():
        guard.check(connection, "account", 6)
        guard.check(connection, "account", 6)
        with pytest.raises(StaleToken, match="6"):
            guard.check(connection, "account", 5)
    assert guard.highest(connection, "account") == 6


def test_a_token_counts_only_if_its_transaction_does(guard: FencingGuard, connection: Any) -> None:
    guard.check(connection, "account", 9)
    connection.cursor().execute("UPDATE account SET balance = 9")
    connection.rollback()
    assert balance(connection) == 0
    guard.check(connection, "account", 8)
    connection.cursor().execute("UPDATE account SET balance = 8")
    connection.commit()
    assert (balance(connection), guard.highest(connection, "account")) == (8, 8)


def test_a_check_outside_a_transaction_is_refused(guard: FencingGuard, database: Database) -> None:
    with closing(database.connect_plain()) as connection, pytest.raises(OutsideTransaction):
        guard.check(connection, "account", 1)


def test_a_check_outside_a_transaction_is_refused_where_answers_come_late(
    guard: FencingGuard, database: Database
) -> None:
    with closing(database.connect_plain()) as connection:
        pipeline = getattr(connection, "pipeline", nullcontext)
        with pipeline(), pytest.raises(OutsideTransaction):
            guard.check(connection, "account", 1)
        connection.cursor().execute("BEGIN")
        with pipeline():
            guard.check(connection, "account", 1)
            connection.cursor().execute("ROLLBACK")


def test_a_check_in_a_transaction_that_was_begun_by_hand_is_good(guard: FencingGuard, database: Database) -> None:
    with closing(database.connect_plain()) as connection:
        connection.cursor().execute("BEGIN")
        guard.check(connection, "account", 1)
        connection.cursor().execute("ROLLBACK")


def test_checks_of_many_at_once_let_no_older_one_in_behind_a_newer_one(guard: FencingGuard, database: Database) -> None:
    accepted: list[int] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with closing(database.connect()) as connection:
            for _ in range(20):
                token = chance.randrange(1, 100)
                try:
                    guard.check(connection, "account", token)
                except StaleToken:
                    connection.rollback()
                else:
                    accepted.append(token)  # while nobody else is let in
                    connection.commit()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accepted
    assert accepted == sorted(accepted)


def test_the_table_may_have_another_name(database: Database, connection: Any) -> None:
    guard = FencingGuard(database.paramstyle, "tokens_of_mine")
    guard.create_table(connection)
    guard.create_table(connection)
    guard.check(connection, "account", 3)
    assert guard.highest(connection, "account") == 3
    connection.rollback()


@pytest.mark.parametrize("how", ["in a transaction", "outside"])
def test_many_may_make_the_table_at_one_time(database: Database, connection: Any, how: str) -> None:
    """PostgreSQL fails one that waited for another: `IF NOT EXISTS` was true when both looked."""
    guard = FencingGuard(database.paramstyle, "tokens_of_many")
    connect = database.connect if how == "in a transaction" else database.connect_plain
    workers = 4
    begin = threading.Barrier(workers)
    failures: list[Exception] = []

    def work() -> None:
        with closing(connect()) as own:
            begin.wait()
            try:
                guard.create_table(own)
                own.commit()
            except Exception as failure:
                failures.append(failure)

    for _ in range(20):
        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        connection.cursor().execute("DROP TABLE tokens_of_many")
        connection.commit()
    assert failures == []


def test_what_else_is_in_the_transaction_stays_when_the_table_is_made(guard: FencingGuard, connection: Any) -> None:
    connection.cursor().execute("UPDATE account SET balance = 7")
    guard.create_table(connection)
    connection.rollback()
    assert balance(connection) == 0
    connection.cursor().execute("UPDATE account SET balance = 7")
    guard.create_table(connection)
    connection.commit()
    assert balance(connection) == 7


def test_a_table_that_cannot_be_made_leaves_no_transaction(guard: FencingGuard, database: Database) -> None:
    with closing(database.connect_plain()) as failed, closing(database.connect()) as other:
        with pytest.raises(Exception, match="(?i)nowhere"):
            FencingGuard(database.paramstyle, "nowhere.tokens").create_table(failed)
        failed.cursor().execute("UPDATE account SET balance = 7")
        assert balance(other) == 7


def test_the_table_is_made_in_a_pipeline(guard: FencingGuard, database: Database) -> None:
    for connect in (database.connect, database.connect_plain):
        with closing(connect()) as connection:
            with getattr(connection, "pipeline", nullcontext)():
                guard.create_table(connection)
            connection.commit()


@pytest.mark.parametrize("server", [pytest.param("postgresql", marks=pytest.mark.interop)], indirect=True)
def test_who_waits_for_the_table_may_be_interrupted(database: Database) -> None:
    """What interrupted it is told, not what could not be done after it. SQLite lets nobody interrupt who waits."""
    guard = FencingGuard(database.paramstyle, "tokens_of_one")
    with closing(database.connect()) as first, closing(database.connect()) as second:
        guard.create_table(first)
        interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            guard.create_table(second)
        interrupt.join()
        first.rollback()


def test_a_name_that_is_none_and_an_unknown_style_are_refused() -> None:
    with pytest.raises(ValueError, match="plain name"):
        FencingGuard("qmark", "tokens; DROP TABLE account")
    with pytest.raises(ValueError, match="one of qmark, numeric, named, format, pyformat, not 'dollar'"):
        FencingGuard("dollar")


@pytest.mark.parametrize("paramstyle", ["qmark", "named"])
def test_every_style_that_sqlite_knows_does(tmp_path: Path, paramstyle: str) -> None:
    with sqlite(tmp_path) as database, closing(database.connect()) as connection:
        guard = FencingGuard(paramstyle)
        guard.create_table(connection)
        guard.check(connection, "account", 3)
        with pytest.raises(StaleToken):
            guard.check(connection, "account", 2)
        assert guard.highest(connection, "account") == 3
        connection.rollback()


def test_what_has_no_name_is_no_object(guard: FencingGuard, connection: Any) -> None:
    """SQLite would take each NULL for another key."""
    with pytest.raises(Exception, match="(?i)null"):
        guard.check(connection, None, 9)  # type: ignore[arg-type]
    connection.rollback()
