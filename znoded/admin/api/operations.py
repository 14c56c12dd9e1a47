"""The operations that answer at once: sessions, get, range, txn."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import CancelledError

from znoded.admin.api import errors
from znoded.admin.api.backend import Backend
from znoded.admin.api.history_errors import named_errors
from znoded.admin.api.items import Fields, acl_of, bytes_of, item_of, session_id_of, text_of
from znoded.admin.api.sessions import Sessions, secret_of
from znoded.admin.api.slices import SortedChildren
from znoded.jute.ops import CreateFlags
from znoded.tree.acl import READ, Identities, allowed
from znoded.tree.history import PastNode
from znoded.tree.txn_records import Compare, Kind, OpResult, Relation, Target, TxnOp, TxnRequest

LINEARIZABLE = "linearizable"
PAST = "past"
#: A page of a range ends when it has so much, in the form of the tree.
PAGE_BYTES = 4 * 1024 * 1024
SLICE_KEYS = 200

_RELATIONS = {"=": Relation.EQUAL, "!=": Relation.NOT_EQUAL, "<": Relation.LESS, ">": Relation.GREATER}
_TARGETS = {target.name.lower(): target for target in Target}
_KINDS = {kind.name.lower(): kind for kind in Kind}


class Operations:
    """Each takes the fields of a checked request and who is asking, and gives those of the answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._sessions = Sessions(backend)
        self._sorted_children = SortedChildren(backend)

    # ---- sessions

    async def session_create(self, asked: Fields, identities: Identities) -> Fields:
        """Begin a session."""
        session = await self._sessions.open(asked["timeout_ms"])
        granted = {"id": session_id_of(session.id), "timeout_ms": session.timeout_ms}
        return {"session": secret_of(session), **granted, **after_barrier(self._backend)}

    async def session_keepalive(self, asked: Fields, identities: Identities) -> Fields:
        """Hear of it, and answer when the leader has: whoever is answered has its full timeout."""
        session = await self._sessions.opened_by(asked["session"])
        await self._backend.fresh()
        if session.id not in self._backend.tree.sessions:
            raise errors.session_expired()
        return {"id": session_id_of(session.id), "timeout_ms": session.timeout_ms, **after_barrier(self._backend)}

    async def session_close(self, asked: Fields, identities: Identities) -> Fields:
        """End it."""
        await self._sessions.close(await self._sessions.opened_by(asked["session"]))
        return {"closed": True, **after_barrier(self._backend)}

    # ---- reads

    async def get(self, asked: Fields, identities: Identities) -> Fields:
        """One key, now or as it was."""
        path = asked["key"].encode()
        told = await self._read(asked)
        with named_errors():
            past = self._backend.history.node_at(path, told["revision"])
        if past is None:
            raise errors.no_such_key(asked["key"])
        if not allowed(past.acl, READ, identities):
            raise errors.no_auth(asked["key"])
        return {"item": item_of(path, past.node), **told}

    async def range(self, asked: Fields, identities: Identities) -> Fields:
        """A page of a key and all below it, as of one revision, read in slices: others have their turn in between."""
        prefix, limit = asked["prefix"].encode(), asked["limit"]
        told = await self._read(asked)
        found: list[PastNode] = []
        children: dict[bytes, Sequence[bytes]] = {}
        page_bytes = 0
        resume_after: bytes | None = asked.get("after", "").encode()
        while resume_after is not None and len(found) <= limit and page_bytes < PAGE_BYTES:
            with named_errors():
                nodes, resume_after, unsorted = self._backend.history.range_slice(
                    prefix, told["revision"], resume_after, min(limit + 1 - len(found), SLICE_KEYS), children
                )
            readable = [past for past in nodes if allowed(past.acl, READ, identities)]
            page_bytes += sum(len(past.node) for past in readable)
            found += readable
            if unsorted is not None:
                children[unsorted] = await self._sorted_children.of(unsorted, told["revision"])
            elif resume_after is not None:
                await self._backend.waiting.sleep(0)
        page = found[: _page_length(found, limit)]
        items = [item_of(past.path, past.node, not asked["keys_only"]) for past in page]
        return {"items": items, "more": resume_after is not None or len(found) > len(page), **told}

    async def _read(self, asked: Fields) -> Fields:
        """Wait until what is asked for can be told: the revision and the consistency of the answer."""
        revision = asked.get("revision")
        if revision is None:
            if asked["consistency"] == LINEARIZABLE:
                await self._backend.fresh()
            return {"revision": self._backend.revision, "consistency": asked["consistency"]}
        if revision > self._backend.revision:
            await self._backend.fresh()
        if revision > self._backend.revision:
            raise errors.future_revision(self._backend.revision)
        return {"revision": revision, "consistency": PAST}

    # ---- writes

    async def txn(self, asked: Fields, identities: Identities) -> Fields:
        """Compare, then do one list of ops or the other."""
        owner = 0
        if "session" in asked:
            owner = (await self._sessions.opened_by(asked["session"])).id
        request = TxnRequest(
            owner,
            tuple(map(_compare, asked["compare"])),
            tuple(map(_op, asked["then"])),
            tuple(map(_op, asked["else"])),
        )
        try:
            reply, revision = await self._backend.write(request, identities)
        except CancelledError:
            # It may be in the log. Who is told that nothing was done, since the member stops, would ask for it again.
            raise errors.outcome_unknown() from None
        results = [_result(result) for result in reply.results or ()]
        return {"succeeded": reply.holds, "results": results, "revision": revision, "consistency": LINEARIZABLE}


def after_barrier(backend: Backend) -> Fields:
    """The revision and the consistency of an answer that comes after a write, or after the read barrier."""
    return {"revision": backend.revision, "consistency": LINEARIZABLE}


def _page_length(found: list[PastNode], limit: int) -> int:
    """How many of these a page has: at least one, if there is one."""
    page_bytes = 0
    for length, past in enumerate(found[:limit], 1):
        page_bytes += len(past.node)
        if page_bytes >= PAGE_BYTES:
            return length
    return min(len(found), limit)


def _compare(asked: Fields) -> Compare:
    target = _TARGETS[asked["target"]]
    value = bytes_of(asked["value"]) if target is Target.VALUE else None
    return Compare(asked["key"].encode(), target, _RELATIONS[asked["is"]], value, asked.get("number", 0))


def _op(asked: Fields) -> TxnOp:
    flags = CreateFlags.EPHEMERAL * asked.get("ephemeral", False)
    flags |= CreateFlags.PERSISTENT_SEQUENTIAL * asked.get("sequential", False)
    return TxnOp(
        _KINDS[asked["op"]],
        asked["key"].encode(),
        bytes_of(asked.get("value", "")),
        acl_of(asked.get("acl")),
        flags,
        asked.get("version", -1),
        None,
        asked.get("parents", False),
    )


def _result(result: OpResult) -> Fields:
    path = result.path or b""
    return {"key": text_of(path), "item": None if result.node is None else item_of(path, result.node)}
