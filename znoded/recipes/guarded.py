"""A transaction that is carried out only while a lock is held: its first operation checks the lock's znode."""

from __future__ import annotations

from typing import Any, Self

from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError

from znoded.recipes.errors import LeaseLost

#: Nobody sets the data of a lock's znode. Who does takes its place from the holder.
HELD_VERSION = 0


class GuardedTransaction:
    """Kazoo's transaction, with a check of the lock in front. As a context manager it commits at the block's end."""

    def __init__(self, client: Any, node: str, token: int) -> None:
        self._token = token
        self._node = node
        self._transaction = client.transaction()
        self._transaction.check(node, HELD_VERSION)

    def create(
        self, path: str, value: bytes = b"", acl: Any = None, ephemeral: bool = False, sequence: bool = False
    ) -> None:
        """Create a znode."""
        self._transaction.create(path, value, acl, ephemeral, sequence)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode."""
        self._transaction.delete(path, version)

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """Set the data of a znode."""
        self._transaction.set_data(path, value, version)

    def check(self, path: str, version: int) -> None:
        """Check the version of another znode."""
        self._transaction.check(path, version)

    def commit(self) -> list[Any]:
        """Carry out all of it, or nothing: the results, without that of the check.

        Raises LeaseLost if the lock is not held any more, and what Kazoo raises for the operation that failed else.
        After a ConnectionLoss nobody knows whether it was carried out.
        """
        results = self._transaction.commit()
        if isinstance(results[0], NoNodeError | BadVersionError):
            raise LeaseLost(f"{self._node} with token {self._token} does not hold its lock any more")
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                raise result
        return list(results[1:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            self.commit()
