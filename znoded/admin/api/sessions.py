"""Sessions without a connection: kept alive by what is asked for in them, and opened by a secret."""

from __future__ import annotations

import base64
import hmac

from znoded.admin.api import errors
from znoded.admin.api.backend import Backend
from znoded.jute.primitives import LONG
from znoded.server.wall_clock import wall_ms
from znoded.tree.proposals import close_unconnected
from znoded.tree.sessions import Session


class Sessions:
    """The sessions of one member's API."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._member = backend.member
        self._tree = backend.tree

    async def open(self, timeout_ms: int) -> Session:
        """A new session, kept alive by what is asked for in it."""
        config = self._member.config
        timeout_ms = min(max(timeout_ms, config.session_timeout_min_ms), config.session_timeout_max_ms)
        if not self._member.serving or self._member.turns_clients_away:
            raise errors.not_leader()
        if len(self._member.sessions) >= self._member.limits.sessions:
            raise errors.busy()
        session_id = self._member.handshake.open_unconnected(timeout_ms)
        if session_id is None:
            raise errors.disk_full()
        await self._backend.waiting.until(lambda: session_id in self._tree.sessions)
        return self._tree.sessions[session_id]

    async def opened_by(self, secret: str) -> Session:
        """The session that a secret opens; it was heard of just now. Raises session_expired."""
        session_id, password = _parse_secret(secret)
        if session_id not in self._tree.sessions:
            await self._backend.fresh()
        session = self._tree.sessions.get(session_id)
        live = self._member.sessions.get(session_id)
        if session is None or live is None or not hmac.compare_digest(session.password, password):
            raise errors.session_expired()
        self._member.heard(live)
        return session

    async def close(self, session: Session) -> None:
        """End it; what it held is free then."""
        time_ms = wall_ms()
        attach, sequence = session.attach, session.sequence
        if not self._member.propose(close_unconnected(time_ms, session.id, attach, sequence + 1)):
            raise errors.disk_full()
        # A socket client may have had it, and written: then the command was refused, and another is needed.
        await self._backend.waiting.until(lambda: session.id not in self._tree.sessions or session.attach != attach)
        if session.id in self._tree.sessions:
            raise errors.outcome_unknown()


def secret_of(session: Session) -> str:
    """The secret that opens a session: its id and its password, which nobody can guess."""
    return base64.urlsafe_b64encode(LONG.pack(session.id) + session.password).decode()


def _parse_secret(secret: str) -> tuple[int, bytes]:
    content = base64.urlsafe_b64decode(secret)
    session_id: int = LONG.unpack(content[:8])[0]
    return session_id, content[8:]
