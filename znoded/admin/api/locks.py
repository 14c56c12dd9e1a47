"""Locks and elections: contenders in line below a path, each waiting only for the one before it.

A contender is an ephemeral sequential znode, as in the recipes of Kazoo and Curator. Its name has its number twice,
`CONTENDER-REQUEST-lock-NNNNNNNNNN__lock__NNNNNNNNNN`: Curator orders by what follows `lock-`, Kazoo by what follows
`__lock__`. So either waits for a lock that was taken here. Here whoever has a number at the end of its name is in line,
whatever recipe made it, in the order of creation; the revision of that is its fencing token.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError

from znoded.admin.api import errors
from znoded.admin.api.attempts import Attempt, Held, Wish
from znoded.admin.api.backend import Backend, Committed
from znoded.admin.api.items import Fields, session_id_of, text_of, value_of
from znoded.admin.api.queues import Contender, Queues, contender_of
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import CreateFlags
from znoded.tree.acl import READ, Identities, allowed
from znoded.tree.paths import parent_of
from znoded.tree.sessions import Session
from znoded.tree.txn_records import Compare, Kind, Relation, Target, TxnOp, TxnRequest
from znoded.tree.znode import czxid_of, next_version, parsed_stat, version_of

INFIX = b"__lock__"
#: How long until a contender that could not be withdrawn is tried again.
WITHDRAW_RETRY_S = 1.0
#: How long an answer waits for that. A member without a quorum withdraws it when there is one again.
WITHDRAW_PATIENCE_S = 2.0


class Locks:
    """The locks of one member's tree."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.queues = Queues(backend)
        #: How many wait for their turn.
        self.waiting_count = 0

    def told(self, path: bytes, identities: Identities) -> Fields:
        """What may be told of a contender: the schema Contender."""
        node = self._backend.tree.nodes[path]
        stat = parsed_stat(node)
        may_read = allowed(self._backend.tree.acls.get(path), READ, identities)
        return {
            "token": stat.czxid,
            "key": text_of(path),
            "value": value_of(node) if may_read else None,
            "session": session_id_of(stat.ephemeral_owner),
            "since_ms": stat.ctime,
        }

    # ---- taking one

    async def acquire(self, wish: Wish, timeout_s: float) -> Held:
        """Wait for a lock. Whatever ends the wait, the contender does not stay in line longer than it has to.

        Raises lock_timeout, session_expired, lock_lost, and what a write is refused for; outcome_unknown, if nothing
        came of it and the contender is in line still.
        """
        deadline_s = self._backend.reactor.seconds() + timeout_s
        attempt = Attempt(wish)
        try:
            await self._backend.fresh()
            await self._take_over(attempt)
            if not any(self._own(attempt)):
                await self._enqueue(attempt)
            held = await self._wait(attempt, deadline_s)
            nodes = self._backend.tree.nodes
            for path, token in [(path, czxid_of(nodes[path])) for path in self._own(attempt)[1:]]:
                await self._delete(path, token, wish.identities)
            return held
        except CancelledError:
            self._backend.waiting.spawn(self._withdraw(attempt))
            raise
        except Exception as error:
            withdrawing = self._backend.waiting.spawn(self._withdraw(attempt))
            if not await self._backend.waiting.for_work(withdrawing, WITHDRAW_PATIENCE_S):
                raise errors.outcome_unknown() from error  # it goes on, but not if this member ends
            raise

    async def _enqueue(self, attempt: Attempt) -> None:
        wish = attempt.wish
        flags = CreateFlags.EPHEMERAL_SEQUENTIAL
        op = TxnOp(Kind.CREATE, attempt.path, wish.value, wish.acl, flags, -1, INFIX, parents=True)
        await self._write(attempt, TxnRequest(wish.session.id, (), (op,), ()))

    async def _write(self, attempt: Attempt, request: TxnRequest) -> Committed:
        """Write what puts a contender of the attempt in line, or makes it one of the attempt."""
        before, attempt.may_be_in_line = attempt.may_be_in_line, True
        try:
            return await self._backend.write(request, attempt.wish.identities)
        except errors.ApiError as error:
            attempt.may_be_in_line = before or error.code == "outcome_unknown"
            raise

    async def _take_over(self, attempt: Attempt) -> None:
        """Make the contenders of earlier requests for the same wish those of this one. Raises lock_lost."""
        wish = attempt.wish
        nodes = self._backend.tree.nodes
        for path in self._named(attempt):
            node = nodes.get(path)
            if node is None or attempt.has(path, node):
                continue
            if attempt.had(path):
                raise errors.lock_lost(text_of(wish.lock))  # to a later request
            version = version_of(node)
            as_it_was = (_created(path, czxid_of(node)), Compare(path, Target.VERSION, Relation.EQUAL, None, version))
            op = TxnOp(Kind.SET, path, wish.value, None, 0, -1, None, parents=False)
            done = await self._write(attempt, TxnRequest(wish.session.id, as_it_was, (op,), ()))
            if done.reply.holds:
                attempt.taken[path] = next_version(version)

    async def _wait(self, attempt: Attempt, deadline_s: float) -> Held:
        wish = attempt.wish
        is_confirmed = False
        while True:
            await self._take_over(attempt)
            queue = await self.queues.of(wish.lock)
            if wish.session.id not in self._backend.tree.sessions:
                raise errors.session_expired()
            own = self._first_own(attempt)
            ahead = queue.ahead_of(own)
            if ahead is None and is_confirmed:
                return Held(own.path, own.token)
            if ahead is None:
                # So it is here; the newest may be that the session is over.
                await self._backend.fresh()
                is_confirmed = True
                continue
            is_confirmed = False
            left_s = deadline_s - self._backend.reactor.seconds()
            self.waiting_count += 1
            try:
                is_any_gone = await self._backend.waiting.until_any_gone((ahead.path, own.path), left_s)
            finally:
                self.waiting_count -= 1
            if not is_any_gone:
                raise errors.lock_timeout(text_of(wish.lock))

    def _named(self, attempt: Attempt) -> list[bytes]:
        """The contenders of this session and name, whichever request they belong to, in their order."""
        nodes = self._backend.tree.nodes
        named = [
            path
            for path in self._ephemerals(attempt.wish.lock, attempt.wish.session.id)
            if path.startswith(attempt.prefix)
        ]
        return sorted(named, key=lambda path: (czxid_of(nodes[path]), path))

    def _ephemerals(self, lock: bytes, session_id: int) -> list[bytes]:
        """The children of the lock's path that go with this session."""
        session = self._backend.tree.sessions.get(session_id)
        paths = () if session is None else session.ephemerals or ()
        return [path for path in paths if parent_of(path) == lock]

    def _own(self, attempt: Attempt) -> list[bytes]:
        """Those that belong to this request: several, after a write whose outcome was unknown."""
        nodes = self._backend.tree.nodes
        return [path for path in self._named(attempt) if attempt.has(path, nodes[path])]

    def _first_own(self, attempt: Attempt) -> Contender:
        """The place in line. Raises lock_lost."""
        nodes = self._backend.tree.nodes
        contenders = (contender_of(path, nodes[path]) for path in self._own(attempt)[:1])
        own = next(contenders, None)
        if own is None:
            raise errors.lock_lost(text_of(attempt.wish.lock))
        return own

    async def _withdraw(self, attempt: Attempt) -> None:
        """Leave the line, whatever it takes; a session that ended has left it."""
        wish = attempt.wish
        nodes = self._backend.tree.nodes
        while (
            attempt.may_be_in_line and wish.session.id in self._backend.tree.sessions and self._backend.member.serving
        ):
            try:
                # Behind this write, all that was written for this attempt before is applied.
                await self._backend.write(TxnRequest(0, (), (), ()), ())
                for path, node in [(path, nodes[path]) for path in self._own(attempt)]:
                    version = Compare(path, Target.VERSION, Relation.EQUAL, None, version_of(node))
                    await self._delete(path, czxid_of(node), wish.identities, version)
                if not self._own(attempt):
                    return
            except errors.ApiError as error:
                if error.code == "no_auth":
                    return  # nor could its client take it away: it goes with the session
            await self._backend.waiting.sleep(WITHDRAW_RETRY_S)

    # ---- giving it back

    async def release(self, lock: bytes, session: Session, token: int, identities: Identities) -> bool:
        """Take away the session's contender with this token: whether it was there."""
        await self._backend.fresh()
        nodes = self._backend.tree.nodes
        found = [contender_of(path, nodes[path]) for path in self._ephemerals(lock, session.id)]
        own = sorted(contender for contender in found if contender is not None and contender.token == token)
        return await self._delete(own[0].path, token, identities) if own else False

    async def _delete(self, path: bytes, token: int, identities: Identities, *compares: Compare) -> bool:
        delete = TxnOp(Kind.DELETE, path, None, None, 0, -1, None, parents=False)
        done = await self._backend.write(TxnRequest(0, (_created(path, token), *compares), (delete,), ()), identities)
        return done.reply.holds

    # ---- looking

    def is_held(self, holder: Contender) -> bool:
        """Whether the first in line holds the lock: not if its session expired and a lock-delay left it there."""
        return holder.path not in self._backend.tree.kept

    def require_readable(self, lock: bytes, identities: Identities) -> None:
        """Raise no_auth for who may not read the lock's own znode."""
        if not allowed(self._backend.tree.acls.get(lock), READ, identities):
            raise errors.of_refusal(ErrorCode.NO_AUTH, text_of(lock))


def _created(path: bytes, token: int) -> Compare:
    """That it is the one that was created at this revision."""
    return Compare(path, Target.CREATE_REVISION, Relation.EQUAL, None, token)
