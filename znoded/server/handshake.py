"""The first bytes of a connection: a four-letter word, or the request that opens or resumes a session.

Protocol facts 1.4 to 1.7 have the rules.
"""

from __future__ import annotations

import hmac
import time
from typing import TYPE_CHECKING

from znoded.jute.frames import frame
from znoded.jute.primitives import INT, JuteError, Reader
from znoded.jute.records import ConnectRequest, ConnectResponse
from znoded.server.connection import ClientConnection, State
from znoded.tree.proposals import new_session
from znoded.tree.sessions import PASSWORD_BYTES

if TYPE_CHECKING:
    from znoded.server.member import Member

CONNECT_REQUEST_BYTES = 28  # without a password and the read-only byte
#: Those of all clients are below 50; room is left for what later ones may add.
CONNECT_REQUEST_BYTES_MOST = 1024


class Handshake:
    """Opens and resumes sessions for one member, and answers four-letter words."""

    def __init__(self, member: Member) -> None:
        self._member = member
        #: Connections whose new session is on its way through the log, by its id.
        self._opening: dict[int, tuple[ClientConnection, int]] = {}

    def consume(self, connection: ClientConnection, data: bytes) -> bytes:
        """Take the first frame from `data`, and return the rest; or have it kept, until the frame is whole."""
        if len(data) < 4:
            connection.keep(data, 4)
            return b""
        words = self._member.words
        word = data[:4]
        if words.is_word(word):
            argument_bytes = words.argument_bytes(word)
            if len(data) < 4 + argument_bytes:
                connection.keep(data, 4 + argument_bytes)
                return b""
            answer = words.answer(word, data[4 : 4 + argument_bytes])
            if answer:
                connection.put(answer)
            connection.finish()
            return b""
        (length,) = INT.unpack(word)
        if not CONNECT_REQUEST_BYTES <= length <= CONNECT_REQUEST_BYTES_MOST:
            most = CONNECT_REQUEST_BYTES_MOST
            self._member.cut_off(
                connection,
                f"sent a first frame of {length} bytes, and a connect request has {CONNECT_REQUEST_BYTES} to {most}",
            )
            return b""
        if len(data) < 4 + length:
            connection.keep(data, 4 + length)
            return b""
        try:
            request = ConnectRequest.decode(Reader(data, 4, 4 + length))
        except JuteError as error:
            self._member.cut_off(connection, f"sent no connect request: {error}")
            return b""
        self._connect(connection, request)
        return data[4 + length :]

    def _connect(self, connection: ClientConnection, request: ConnectRequest) -> None:
        member = self._member
        if not member.serving or request.last_zxid_seen > member.zxid:
            # A client that has seen more than this member knows must look for another; ZooKeeper closes without a word,
            # too.
            connection.abort()
            return
        connection.read_only_byte = request.read_only is not None
        config = member.config
        timeout_ms = min(max(request.timeout_ms, config.session_timeout_min_ms), config.session_timeout_max_ms)
        member.admission.leave_lobby(connection)
        if request.session_id:
            self._resume(connection, request, timeout_ms)
        else:
            self._open(connection, timeout_ms)

    def _open(self, connection: ClientConnection, timeout_ms: int) -> None:
        member = self._member
        if len(member.sessions) + len(self._opening) >= member.limits.sessions:
            member.cut_off(connection, f"there are {len(member.sessions)} sessions already (limits.sessions)")
            return
        session_id = member.next_session_id()
        if not member.propose(new_session(int(time.time() * 1000), session_id, member.new_attach(), timeout_ms, None)):
            connection.abort()
            return
        connection.state = State.OPENING
        self._opening[session_id] = connection, timeout_ms

    def session_created(self, session_id: int, attach: int) -> None:
        """A new session came out of the log: watch over it, and let its client in if it is still there."""
        member = self._member
        session = member.tree.sessions[session_id]
        member.sessions.add(session_id, session.timeout_ms, member.monotonic_ms(), attach)
        connection, timeout_ms = self._opening.pop(session_id, (None, 0))
        if connection is not None and connection.state is State.OPENING:
            self._let_in(connection, session_id, timeout_ms)
            member.delivery.flush_later(connection)

    def _resume(self, connection: ClientConnection, request: ConnectRequest, timeout_ms: int) -> None:
        member = self._member
        session = member.tree.sessions.get(request.session_id)
        live = member.sessions.get(request.session_id)
        # The password is checked before anything else is touched: a wrong one must not disturb the owner of the
        # session.
        password = request.password or b""
        if session is None or live is None or live.closing or not hmac.compare_digest(session.password, password):
            self._respond(connection, 0, 0, bytes(PASSWORD_BYTES))
            connection.finish()
            return
        if live.connection is not None:
            live.connection.abort()
            live.connection = None
        live.attach = member.new_attach()
        member.sessions.renew(live, timeout_ms, member.monotonic_ms())
        connection.state = State.OPENING
        # What the session sent on its old connection takes effect before anything it sends on this one.
        attach = live.attach
        member.when_applied(lambda: self._resumed(connection, request.session_id, attach, timeout_ms))

    def _resumed(self, connection: ClientConnection, session_id: int, attach: int, timeout_ms: int) -> None:
        member = self._member
        live = member.sessions.get(session_id)
        if connection.state is not State.OPENING:
            return
        if live is None or live.attach != attach:
            connection.abort()  # closed or taken over meanwhile; the client comes back and is told
            return
        self._let_in(connection, session_id, timeout_ms)
        connection.flush()
        connection.go_on()

    def _let_in(self, connection: ClientConnection, session_id: int, timeout_ms: int) -> None:
        member = self._member
        live = member.sessions.get(session_id)
        assert live is not None
        live.connection = connection
        connection.live = live
        connection.session_id = session_id
        connection.attach = live.attach
        connection.state = State.OPEN
        self._respond(connection, timeout_ms, session_id, member.tree.sessions[session_id].password)

    def _respond(self, connection: ClientConnection, timeout_ms: int, session_id: int, password: bytes) -> None:
        """Answer in kind: an old client that sent no read-only byte must not get one."""
        read_only = False if connection.read_only_byte else None
        connection.put(frame(ConnectResponse(0, timeout_ms, session_id, password, read_only).encode()))
