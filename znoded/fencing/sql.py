"""A guard in the database that it guards: one table, and one statement in the transaction of the write.

SQLite from 3.24 and PostgreSQL from 9.5 know the statement. It locks the object's row (in SQLite: the database) until
the transaction ends, so checks and writes of one object come one after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from znoded.fencing.errors import OutsideTransaction, StaleToken

#: Of the DB-API: paramstyle -> how a statement refers to its parameters.
_PLACES: Final[dict[str, Sequence[str]]] = {
    "qmark": ("?", "?"),
    "numeric": (":1", ":2"),
    "named": (":object", ":token"),
    "format": ("%s", "%s"),
    "pyformat": ("%(object)s", "%(token)s"),
}
_BY_NAME = frozenset(("named", "pyformat"))
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
#: The codes of PostgreSQL for a table that another transaction has made meanwhile: of its row in the catalogue, of the
#: table and of its type. None is of a driver that tells no code.
_MADE_BY_ANOTHER: Final = ("23505", "42P07", "42710", None)
#: psycopg's and libpq's PQTRANS_IDLE.
_IDLE = 0


class FencingGuard:
    """The highest token per object, in the table `table`.

    `paramstyle` is that of the DB-API module (`sqlite3.paramstyle`, `psycopg.paramstyle`). The connections given to the
    methods are the module's, and so are the exceptions they let through. Any number of guards may use one table.
    """

    def __init__(self, paramstyle: str, table: str = "fencing_tokens") -> None:
        if paramstyle not in _PLACES:
            raise ValueError(f"paramstyle is one of {', '.join(_PLACES)}, not {paramstyle!r}")
        if not _TABLE.fullmatch(table):
            raise ValueError(f"table is a plain name, with or without a schema, not {table!r}")
        object_place, token_place = _PLACES[paramstyle]
        self._is_by_name = paramstyle in _BY_NAME
        self._create = (
            f"CREATE TABLE IF NOT EXISTS {table}"
            " (object VARCHAR(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL)"  # SQLite's keys may be NULL else
        )
        self._advance = (
            f"INSERT INTO {table} AS known (object, token) VALUES ({object_place}, {token_place})"
            " ON CONFLICT (object) DO UPDATE SET token = excluded.token WHERE excluded.token >= known.token"
        )
        self._read = f"SELECT token FROM {table} WHERE object = {object_place}"

    def create_table(self, connection: Any) -> None:
        """Make the table if it is not there; committing is the caller's. One waits for another that has made it."""
        cursor = connection.cursor()
        try:
            with _savepoint(connection, cursor):
                cursor.execute(self._create)
        except Exception as error:
            # PostgreSQL fails the one that waited, IF NOT EXISTS or not; it finds the table now.
            if _sqlstate(error) not in _MADE_BY_ANOTHER:
                raise
            cursor.execute(self._create)

    def check(self, connection: Any, object_name: str, token: int) -> None:
        """Let this token in, and no lower one from here on: in the caller's transaction, before its reads and writes.

        Raises StaleToken if a higher one has been here: roll back. Raises OutsideTransaction if the connection is seen
        to have no transaction, where the check would guard nothing.
        """
        cursor = connection.cursor()
        cursor.execute(self._advance, self._parameters(object_name, token))
        # Not let in; or not known yet, as in a pipeline of psycopg's (-1), and then the row tells. Only behind that is
        # it known there whether there is a transaction; a BEGIN in the pipeline itself is not seen, `transaction()` is.
        highest = token if cursor.rowcount == 1 else self.highest(connection, object_name)
        if _is_outside_transaction(connection):
            raise OutsideTransaction("begin a transaction first: the check and the write have to be one")
        if highest != token:
            raise StaleToken(object_name, token, highest or 0)

    def highest(self, connection: Any, object_name: str) -> int | None:
        """The highest token let in; None if there was none."""
        cursor = connection.cursor()
        parameters = {"object": object_name} if self._is_by_name else (object_name,)
        cursor.execute(self._read, parameters)
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def _parameters(self, object_name: str, token: int) -> Any:
        return {"object": object_name, "token": token} if self._is_by_name else (object_name, token)


@contextmanager
def _savepoint(connection: Any, cursor: Any) -> Iterator[None]:
    """Undo the block if it fails, and nothing else of the transaction around it, if there is one."""
    is_set = not _is_outside_transaction(connection)
    if is_set:
        try:
            cursor.execute("SAVEPOINT fencing_guard")
        except Exception:  # outside of one after all, where PostgreSQL has none, with a driver that does not tell
            is_set = False
    try:
        yield
    except BaseException:
        if is_set:
            with suppress(Exception):  # what went wrong first is what is told
                cursor.execute("ROLLBACK TO SAVEPOINT fencing_guard")
                cursor.execute("RELEASE SAVEPOINT fencing_guard")
        raise
    if is_set:
        cursor.execute("RELEASE SAVEPOINT fencing_guard")


def _sqlstate(error: Exception) -> str | None:
    """The code of PostgreSQL's error, as psycopg or psycopg2 tells it."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _is_outside_transaction(connection: Any) -> bool:
    """Whether sqlite3 or psycopg says that it committed each statement by itself; others do not tell."""
    if getattr(connection, "in_transaction", True) is False:
        return True
    if getattr(connection, "autocommit", False) is not True:
        return False
    information = getattr(connection, "info", None)
    return getattr(information, "transaction_status", None) == _IDLE
