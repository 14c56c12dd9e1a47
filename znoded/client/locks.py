"""Locks, and elections, which are locks: what is held always comes with its token."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from znoded.client.errors import ApiError, LockLost, Unavailable
from znoded.client.values import encoded

if TYPE_CHECKING:
    from znoded.client.client import Client
    from znoded.client.sessions import Session
    from znoded.client.txn import Acl, Txn

#: What tells that no contender of this attempt is in line. Others may come from a member that did not know of one.
NOT_IN_LINE = frozenset(("lock_timeout", "lock_lost", "session_expired"))

log = logging.getLogger("znoded.client")


class Held:
    """A lock that is held, with the fencing token that goes with every write it guards; an async context manager."""

    def __init__(self, client: Client, session: Session, lock: str, key: str, token: int) -> None:
        self.session = session
        self.lock = lock
        self.key = key
        self.token = token
        self._client = client

    def check(self) -> None:
        """Raises LockLost if the session may be over. That it does not is no promise: the token is what protects."""
        if self.session.is_lost:
            raise LockLost(f"the session that held {self.lock} may be over")

    def guard(self, txn: Txn) -> Txn:
        """Let a transaction be done only while the lock is held, which is decided where it is applied.

        It does not succeed when the lock was released, and is refused with session_expired when the session is over: a
        lock-delay may keep the contender for longer. Raises ValueError for a transaction in another session.
        """
        return txn.in_session(self.session).when_create_revision(self.key, "=", self.token)

    async def release(self) -> bool:
        """Give it back: whether it was held still."""
        fields = {"session": self.session.secret, "lock": self.lock, "token": self.token}
        try:
            return bool((await self._client.call("lock/release", fields))["released"])
        except ApiError as error:
            if error.code == "session_expired":
                return False
            raise

    async def __aenter__(self) -> Held:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            await self.release()
        except (ApiError, Unavailable):
            if error is None:
                raise
            # What went wrong under the lock is what its user has to hear of.
            log.exception("%s may stay locked until its session ends", self.lock)


async def acquire(client: Client, session: Session, lock: str, timeout_s: float, value: bytes, acl: Acl | None) -> Held:
    """Stand in line until the lock is there, at whichever member; one contender, one place in line."""
    deadline_s = client.io.now_s() + timeout_s
    contender = secrets.token_hex(16)
    fields: dict[str, Any] = {"session": session.secret, "lock": lock, "contender": contender, "value": encoded(value)}
    if acl is not None:
        fields["acl"] = acl
    try:
        while True:
            is_in_time = client.io.now_s() < deadline_s
            try:
                answer = await client.call("lock/acquire", fields, wait_until_s=deadline_s)
            except ApiError as error:
                if error.code == "outcome_unknown" and is_in_time:
                    continue
                raise
            return Held(client, session, lock, answer["key"], answer["token"])
    except BaseException as error:
        if isinstance(error, ApiError) and error.code in NOT_IN_LINE:
            raise
        client.io.spawn(_withdraw(client, session, lock, fields))
        raise


async def _withdraw(client: Client, session: Session, lock: str, fields: dict[str, Any]) -> None:
    """Leave the line, where a member that is gone may have left this contender: ask for what is there at once."""
    try:
        answer = await client.call("lock/acquire", {**fields, "timeout_ms": 0})
        await Held(client, session, lock, answer["key"], answer["token"]).release()
    except (ApiError, Unavailable):
        pass  # it has left the line, or goes with the session
