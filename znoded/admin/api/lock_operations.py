"""The operations on locks and elections, which may wait for their turn."""

from __future__ import annotations

from itertools import islice

from znoded.admin.api.attempts import Wish, new_contender
from znoded.admin.api.backend import Backend
from znoded.admin.api.items import Fields, acl_of, bytes_of, text_of
from znoded.admin.api.locks import Locks
from znoded.admin.api.operations import LINEARIZABLE, after_barrier
from znoded.admin.api.sessions import Sessions
from znoded.tree.acl import Identities

#: How many waiters are told by name, as long as what is told of them, in the form of the tree, is no more than this.
WAITERS_TOLD = 1000
TOLD_BYTES = 1024 * 1024


class LockOperations:
    """The operations on locks and elections, as `Operations` has the others."""

    def __init__(self, backend: Backend, locks: Locks) -> None:
        self._backend = backend
        self._sessions = Sessions(backend)
        self._locks = locks

    async def lock_acquire(self, asked: Fields, identities: Identities) -> Fields:
        """Wait for a lock."""
        return await self._acquire(asked, asked["lock"], "token", identities)

    async def election_campaign(self, asked: Fields, identities: Identities) -> Fields:
        """Wait to be elected: an election is a lock whose token is the epoch."""
        return await self._acquire(asked, asked["election"], "epoch", identities)

    async def _acquire(self, asked: Fields, lock: str, called: str, identities: Identities) -> Fields:
        session = await self._sessions.opened_by(asked["session"])
        contender = asked["contender"].encode() if "contender" in asked else new_contender()
        acl, value = acl_of(asked.get("acl")), bytes_of(asked["value"])
        wish = Wish(lock.encode(), session, contender, value, acl, identities)
        held = await self._locks.acquire(wish, asked["timeout_ms"] / 1000)
        told = {called: held.token, "key": text_of(held.path), "contender": contender.decode()}
        return {**told, **after_barrier(self._backend)}

    async def lock_release(self, asked: Fields, identities: Identities) -> Fields:
        """Give a lock back; it may be gone already."""
        session = await self._sessions.opened_by(asked["session"])
        released = await self._locks.release(asked["lock"].encode(), session, asked["token"], identities)
        return {"released": released, **after_barrier(self._backend)}

    async def lock_info(self, asked: Fields, identities: Identities) -> Fields:
        """Who has it, since when, and who waits."""
        if asked["consistency"] == LINEARIZABLE:
            await self._backend.fresh()
        lock = asked["lock"].encode()
        queue = await self._locks.queues.of(lock)
        self._locks.require_readable(lock, identities)
        told: list[Fields] = []
        told_bytes = 0
        for contender in islice(queue, WAITERS_TOLD + 1):
            told_bytes += len(self._backend.tree.nodes[contender.path])
            if told and told_bytes > TOLD_BYTES:
                break
            told.append(self._locks.told(contender.path, identities))
        is_held = queue.first is not None and self._locks.is_held(queue.first)
        return {
            "holder": told[0] if told and is_held else None,
            "waiters": told[1:],
            "waiting": max(len(queue) - 1, 0),
            "revision": self._backend.revision,
            "consistency": asked["consistency"],
        }

    async def fence_check(self, asked: Fields, identities: Identities) -> Fields:
        """Whether the holder's token is this one."""
        await self._backend.fresh()
        lock = asked["lock"].encode()
        holder = await self._locks.queues.first(lock)
        self._locks.require_readable(lock, identities)
        if holder is None:
            return {"valid": False, "holder": None, **after_barrier(self._backend)}
        is_valid = self._locks.is_held(holder) and holder.token == asked["token"]
        return {"valid": is_valid, "holder": holder.token, **after_barrier(self._backend)}
