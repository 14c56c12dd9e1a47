"""The client: asks one member, and another one when that cannot answer."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from znoded.client.errors import TRY_ELSEWHERE, ApiError, Unavailable
from znoded.client.http import Exchange, Lines, ProtocolError, basic
from znoded.client.io import Io, Stream
from znoded.client.locks import Held, acquire
from znoded.client.sessions import KEEP_ALIVES, Session
from znoded.client.txn import Acl, Txn
from znoded.client.values import Event, Events, Item, Leader, Page, Progress, decoded

Fields = Mapping[str, Any]

CONNECT_TIMEOUT_S = 3.0
#: A member answers sooner than this, if only that it cannot.
ANSWER_TIMEOUT_S = 15.0
#: A member lets a request wait for so long at most.
WAIT_MOST_S = 600.0
#: Between one member and the next, growing.
PAUSE_S, PAUSE_MOST_S = 0.05, 1.0
#: Of the time that a member has, where that is short, so much is for the pause after it.
PAUSE_SHARE = 0.2
#: A connection is used again for so long: a member keeps it open for a minute.
IDLE_MOST_S = 30.0
#: A stream of which nothing is heard for so long is broken: there is a progress line every ten seconds.
STREAM_TIMEOUT_S = 25.0

Member = tuple[str, int]


class Client:
    """Speaks to the members of one cell.

    `members` are (host, port) of their API listeners. `patience_s` is how long it looks for one that answers, from the
    first failure on: however long a member was waited for before, another one is asked.
    """

    def __init__(
        self,
        io: Io,
        members: Sequence[Member],
        *,
        user: tuple[str, str] | None = None,
        tls: Any = None,
        patience_s: float = 30.0,
    ) -> None:
        """`user` is a name with its password, the identity of scheme digest. `tls` is as the io wants it.

        Raises ValueError if there is no member.
        """
        if not members:
            raise ValueError("members is empty; give the address of at least one")
        self.io = io
        self.patience_s = patience_s
        self._members = list(members)
        random.shuffle(self._members)
        self._tls = tls
        self._authorization = None if user is None else basic(*user)
        self._idle: tuple[Stream, Exchange] | None = None
        self._idle_since_s = 0.0

    def close(self) -> None:
        """Close the connection that is kept for the next request."""
        if self._idle is not None:
            self._idle[0].close()
            self._idle = None

    # ---- keys

    async def get(self, key: str, *, revision: int | None = None, serializable: bool = False) -> Item | None:
        """A key now, or as of a past revision; None if it is not there."""
        try:
            answer = await self.call("get", {"key": key, **_when(revision, serializable)})
        except ApiError as error:
            if error.code == "no_such_key":
                return None
            raise
        return Item.of(answer["item"])

    async def range(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = 100,
        keys_only: bool = False,
        revision: int | None = None,
        serializable: bool = False,
    ) -> Page:
        """A page of a key and all below it, behind the key `after`."""
        fields = {"prefix": prefix, "limit": limit, "keys_only": keys_only, **_when(revision, serializable)}
        answer = await self.call("range", {**fields, **({"after": after} if after else {})})
        return Page(tuple(map(Item.of, answer["items"])), answer["more"], answer["revision"])

    async def all(self, prefix: str, *, revision: int | None = None) -> Page:
        """A key and all below it, as of one revision: all pages of it."""
        page = await self.range(prefix, limit=1000, revision=revision)
        items = list(page.items)
        while page.more:
            page = await self.range(prefix, limit=1000, after=items[-1].key, revision=page.revision)
            items += page.items
        return Page(tuple(items), False, page.revision)

    def txn(self, session: Session | None = None) -> Txn:
        """A transaction to be put together."""
        return Txn(self, session)

    async def put(self, key: str, value: bytes, *, parents: bool = False, acl: Acl | None = None) -> int:
        """Set or create a key: the revision."""
        return (await self.txn().put(key, value, parents=parents, acl=acl).commit()).revision

    async def delete(self, key: str, version: int = -1) -> int:
        """Delete a key: the revision."""
        return (await self.txn().delete(key, version).commit()).revision

    # ---- sessions, locks, elections

    async def session(self, timeout_ms: int = 10_000) -> Session:
        """A session that is kept alive until it is closed, or cannot be kept alive any more."""
        asked_s = self.io.now_s()
        answer = await self.call("session/create", {"timeout_ms": timeout_ms})
        if self.io.now_s() - asked_s > answer["timeout_ms"] / 1000 / KEEP_ALIVES:
            # Nobody knows how old it is: several members may have been asked.
            asked_s = self.io.now_s()
            await self.call("session/keepalive", {"session": answer["session"]})
        return Session(self, answer["session"], answer["id"], answer["timeout_ms"], asked_s)

    async def lock(
        self, session: Session, lock: str, *, timeout_s: float = 30.0, value: bytes = b"", acl: Acl | None = None
    ) -> Held:
        """Wait for a lock, for 600 s at most. Leaves nothing in line behind when it is cancelled.

        Raises ApiError, with lock_timeout if it was not free in time; ValueError.
        """
        if not 0 <= timeout_s <= WAIT_MOST_S:
            raise ValueError(f"timeout_s is {timeout_s:g}; it has to be from 0 to {WAIT_MOST_S:g}")
        return await acquire(self, session, lock, timeout_s, value, acl)

    #: An election is a lock whose holder leads; its token is the epoch, its value what observers are told.
    campaign = lock

    async def check_fence(self, lock: str, token: int) -> bool:
        """Whether the lock is held with this token now."""
        return bool((await self.call("fence/check", {"lock": lock, "token": token}))["valid"])

    # ---- streams

    async def watch(
        self, *, key: str | None = None, prefix: str | None = None, after: int | None = None
    ) -> AsyncGenerator[Events | Progress, None]:
        """Follow the changes of a key, or of a key and all below it, after a revision (None: from now on).

        Goes on at another member when one is gone; each change is told once, in order. Raises ApiError: compacted if
        what was missed is not known any more; Unavailable; ValueError unless it is one of the two.
        """
        if (key is None) == (prefix is None):
            raise ValueError("give either key or prefix")
        query: dict[str, object] = {"key": key} if key is not None else {"prefix": prefix}
        async with aclosing(self._resumed("watch", query, after)) as lines:
            async for line in lines:
                if line["type"] == "events":
                    yield Events(line["revision"], tuple(map(Event.of, line["events"])))
                else:
                    yield Progress(line["revision"])

    async def observe(self, election: str) -> AsyncGenerator[Leader, None]:
        """Follow who leads. The first line comes at once; after a break, the same leader may be told again."""
        async with aclosing(self._resumed("election/observe", {"election": election}, None)) as lines:
            async for line in lines:
                if line["type"] != "leader":
                    continue
                leader = line["leader"] or {"token": None, "value": None, "key": None, "session": None}
                told = leader["token"], decoded(leader["value"]), leader["key"], leader["session"]
                yield Leader(line["revision"], *told)

    async def _resumed(self, path: str, query: Mapping[str, object], after: int | None) -> AsyncGenerator[Fields, None]:
        """The lines of a stream, over as many connections as it takes."""
        pauses = self._pauses()
        while True:
            member = self._members[0]
            asked = {**query, **({} if after is None else {"after": after})}
            try:
                async with aclosing(self._stream(member, path, asked)) as lines:
                    async for line in lines:
                        if line["type"] == "error":
                            raise ApiError(0, line["error"])
                        if path == "watch":
                            after = line["revision"]
                        pauses = self._pauses()
                        yield line
            except (OSError, ProtocolError, TimeoutError) as failure:
                await pauses.next(member, failure)
            except ApiError as error:
                if error.code not in TRY_ELSEWHERE | {"slow_reader"}:
                    raise
                await pauses.next(member, error)

    async def _stream(self, member: Member, path: str, query: Mapping[str, object]) -> AsyncGenerator[Fields, None]:
        """The lines of one connection, until it breaks. Raises ApiError, OSError, ProtocolError, TimeoutError."""
        stream, exchange = await self._connect(member, CONNECT_TIMEOUT_S)
        try:
            await stream.write(exchange.get(f"/v1/{path}", query))
            lines, refusal = Lines(), b""
            while not exchange.is_done:
                data = await self.io.within(STREAM_TIMEOUT_S, stream.read())
                for content in exchange.receive(data):
                    if exchange.status == 200:
                        for line in lines.feed(content):
                            yield line
                    else:
                        refusal += content
            if exchange.status != 200:
                raise _refusal(exchange.status, refusal)
            raise ConnectionError("the stream ended")
        finally:
            stream.close()

    # ---- requests

    async def call(
        self,
        path: str,
        fields: Fields,
        *,
        is_repeatable: bool = True,
        wait_until_s: float | None = None,
        within_s: float | None = None,
    ) -> Fields:
        """The answer to a request, of whichever member has one.

        One that is not repeatable is not sent again where it may have taken effect. One that waits at the member does
        so until `wait_until_s`: whenever it is sent, its timeout is what is left of that. With `within_s`, each member
        has its share of that time. Raises ApiError, Unavailable.
        """
        timeout_s, pauses = ANSWER_TIMEOUT_S, self._pauses()
        if within_s is not None:
            share_s = within_s / len(self._members)
            timeout_s = (1 - PAUSE_SHARE) * share_s
            pauses = _Pauses(self, within_s, PAUSE_SHARE * share_s)
        while True:
            member = self._members[0]
            failure: Exception
            answer_by_s = self.io.now_s() + timeout_s
            try:
                stream, exchange = await self._connection(member, min(CONNECT_TIMEOUT_S, timeout_s))
            except (OSError, TimeoutError) as error:
                await pauses.next(member, error)
                continue
            left_s = max(answer_by_s - self.io.now_s(), 0)
            if wait_until_s is not None:
                wait_s = max(wait_until_s - self.io.now_s(), 0)
                fields = {**fields, "timeout_ms": int(wait_s * 1000)}
                left_s += wait_s
            try:
                answer = await self.io.within(left_s, _exchanged(stream, exchange, path, fields))
            except (OSError, ProtocolError, TimeoutError) as error:
                stream.close()
                if not is_repeatable:
                    self.next_member(member)
                    raise Unavailable("the connection broke before the answer came") from error
                failure = error
            except BaseException:
                stream.close()  # which tells the member that nobody waits any more
                raise
            else:
                self._keep(member, stream, exchange)
                if not isinstance(answer, ApiError):
                    return answer
                if answer.code not in TRY_ELSEWHERE:
                    raise answer
                failure = answer
            await pauses.next(member, failure)

    async def _connection(self, member: Member, timeout_s: float) -> tuple[Stream, Exchange]:
        """One to the first member: the idle one, if there is one that can be used."""
        if self._idle is not None:
            (stream, exchange), self._idle = self._idle, None
            # A request on one that the member has closed was never received, but nobody could tell from what comes of
            # it, and a transaction could not be sent again. So it is looked at before: a new connection each time
            # would be as safe, and a client that writes without a break would run out of ports.
            if self.io.now_s() - self._idle_since_s < IDLE_MOST_S and not stream.is_closed():
                return stream, exchange
            stream.close()
        return await self._connect(member, timeout_s)

    def _keep(self, member: Member, stream: Stream, exchange: Exchange) -> None:
        """Keep a connection for the next request, which is for the first member."""
        if self._idle is None and member == self._members[0] and exchange.next():
            self._idle = stream, exchange
            self._idle_since_s = self.io.now_s()
        else:
            stream.close()

    async def _connect(self, member: Member, timeout_s: float) -> tuple[Stream, Exchange]:
        host, port = member
        stream = await self.io.within(timeout_s, self.io.connect(host, port, self._tls))
        return stream, Exchange(f"{host}:{port}", self._authorization)

    def next_member(self, failed: Member) -> None:
        """Ask another member from now on, unless somebody saw to that who failed at the same one."""
        if self._members[0] == failed:
            self.close()
            self._members.append(self._members.pop(0))

    def _pauses(self) -> _Pauses:
        return _Pauses(self, self.patience_s, PAUSE_MOST_S)


class _Pauses:
    """The pauses between attempts, until patience is at its end."""

    def __init__(self, client: Client, patience_s: float, pause_most_s: float) -> None:
        self._client = client
        self._patience_s = patience_s
        self._pause_most_s = pause_most_s
        self._pause_s = min(PAUSE_S, pause_most_s)
        #: From the first failure on: what went before may have been a long wait, at a member that was well.
        self._deadline_s: float | None = None

    async def next(self, member: Member, failure: Exception) -> None:
        """Turn from the member that failed to another one, after a while. Raises Unavailable."""
        io = self._client.io
        self._client.next_member(member)
        if self._deadline_s is None:
            self._deadline_s = io.now_s() + self._patience_s
        if io.now_s() >= self._deadline_s:
            raise Unavailable(f"no member answered within {self._patience_s:g} s") from failure
        await io.sleep(self._pause_s * random.uniform(0.5, 1))
        self._pause_s = min(2 * self._pause_s, self._pause_most_s)


async def _exchanged(stream: Stream, exchange: Exchange, path: str, fields: Fields) -> Fields | ApiError:
    await stream.write(exchange.post(f"/v1/{path}", fields))
    body = b""
    while not exchange.is_done:
        body += b"".join(exchange.receive(await stream.read()))
    if exchange.status != 200:
        return _refusal(exchange.status, body)
    try:
        content: dict[str, Any] = json.loads(body)
    except ValueError as error:
        raise ProtocolError("an answer that is not JSON") from error
    return content


def _refusal(status: int, body: bytes) -> ApiError:
    """The error that an answer tells. Raises ProtocolError for one that no member gives, but a proxy may."""
    try:
        return ApiError(status, json.loads(body)["error"])
    except (ValueError, LookupError, TypeError) as error:
        raise ProtocolError(f"an answer of status {status} that names no error") from error


def _when(revision: int | None, serializable: bool) -> dict[str, object]:
    if revision is not None:
        return {"revision": revision}
    return {"consistency": "serializable"} if serializable else {}
