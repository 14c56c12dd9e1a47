"""The first bytes of a connection: a four-letter word, or the request that opens or resumes a session.

Protocol facts 1.4 to 1.7 have the rules.
"""

from __future__ import annotations

import hmac
import secrets
from functools import partial
from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.frames import frame
from znoded.jute.ops import Op
from znoded.jute.primitives import INT, JuteError, Reader
from znoded.jute.records import ConnectRequest, ConnectResponse
from znoded.server.connection import ClientConnection, State
from znoded.server.sessions import LiveSession
from znoded.server.wall_clock import wall_ms
from znoded.tree.proposals import attach_session, new_session
from znoded.tree.sessions import MARK_BITS, PASSWORD_BYTES, attach_member, next_attach

if TYPE_CHECKING:
    from znoded.server.member import Member

CONNECT_REQUEST_BYTES = 28  # without a password and the read-only byte
#: Those of all clients are below 50, and ZooKeeper takes any frame; but who has no session yet may hold only so much.
CONNECT_REQUEST_BYTES_MOST = 128 * 1024


class Handshake:
    """Opens and resumes sessions for one member, and answers four-letter words."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._mark = int.from_bytes(secrets.token_bytes(MARK_BITS // 8))
        #: Connections that wait for a session, by its id and their attach: its command is on its way through the log.
        self._opening: dict[tuple[int, int], ClientConnection] = {}
        self.request_count = 0
        self.revalidate_count = 0  # those that asked for a session they had

    def forget_all(self) -> None:
        """What would answer those that wait may have been applied unseen; they are closed."""
        self._opening.clear()

    def consume(self, connection: ClientConnection, data: bytes) -> bytes:
        """Take the first frame from `data`, and return the rest; or have it kept, until the frame is whole."""
        if len(data) < 4:
            connection.keep(data, 4)
            return b""
        words = self._member.words
        word = data[:4]
        if words.is_word(word):
            self._received(connection)
            connection.is_reading = False  # nothing more is, and `stat` and `cons` show it
            answer = words.answer(word, data[4:])
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
        self._received(connection)
        self.request_count += 1
        self.revalidate_count += request.session_id != 0
        self._connect(connection, request)
        return data[4 + length :]

    def _received(self, connection: ClientConnection) -> None:
        """Count a packet that the pipeline does not see."""
        connection.stats.packets_received += 1
        self._member.stats.packets_received += 1

    def _connect(self, connection: ClientConnection, request: ConnectRequest, is_confirmed: bool = False) -> None:
        """`is_confirmed`: all that was committed when the request came is applied here."""
        member = self._member
        if member.turns_clients_away and not (member.is_read_only and request.read_only):
            connection.abort()
            return
        may_be_behind = request.last_zxid_seen > member.zxid or (
            request.session_id != 0 and request.session_id not in member.tree.sessions
        )
        if may_be_behind and member.gate is not None and not is_confirmed and not member.is_read_only:
            connection.state = State.OPENING
            member.gate.confirm(partial(self._confirmed, connection, request))
            return
        if request.last_zxid_seen > member.zxid:
            # A client that has seen more than this member knows must look for another; ZooKeeper closes without a word,
            # too.
            connection.abort()
            return
        connection.read_only_byte = request.read_only is not None
        config = member.config
        timeout_ms = min(max(request.timeout_ms, config.session_timeout_min_ms), config.session_timeout_max_ms)
        member.admission.leave_lobby(connection)
        if member.is_read_only:
            self._open_read_only(connection, request, timeout_ms)
            return
        if request.session_id:
            self._resume(connection, request, timeout_ms)
        else:
            self._open(connection, timeout_ms)

    def _confirmed(self, connection: ClientConnection, request: ConnectRequest, is_confirmed: bool) -> None:
        if connection.state is not State.OPENING:
            return
        connection.state = State.NEW
        if is_confirmed:
            self._connect(connection, request, is_confirmed)
        else:
            connection.abort()

    def _open(self, connection: ClientConnection, timeout_ms: int) -> None:
        member = self._member
        if len(member.sessions) + len(self._opening) >= member.limits.sessions:
            member.cut_off(connection, f"there are {len(member.sessions)} sessions already (limits.sessions)")
            return
        session_id = member.next_session_id()
        attach = self._next_attach(0)
        if not member.propose(new_session(wall_ms(), session_id, attach, timeout_ms, None)):
            connection.abort()
            return
        connection.state = State.OPENING
        self._opening[session_id, attach] = connection

    def open_unconnected(self, timeout_ms: int) -> int | None:
        """Propose a session that no connection waits for: its id, or None while the log takes nothing."""
        session_id = self._member.next_session_id()
        proposed = new_session(wall_ms(), session_id, self._next_attach(0), timeout_ms, None)
        return session_id if self._member.propose(proposed) else None

    def _next_attach(self, attach: int) -> int:
        return next_attach(attach, self._member.config.member, self._mark)

    def session_created(self, session_id: int, attach: int, error: int) -> None:
        """A new session came out of the log: watch over it, and let its client in if it waits here.

        One that was refused is a repetition, or its id is old: so is that of a member whose clock was set back, and
        that did not know of its last sessions. The client comes back.
        """
        member = self._member
        if error:
            if connection := self._opening.pop((session_id, attach), None):
                connection.abort()
            return
        session = member.tree.sessions[session_id]
        live = member.sessions.add(session_id, session.timeout_ms, member.monotonic_ms(), attach)
        self._let_in(live, session.password)

    def _resume(self, connection: ClientConnection, request: ConnectRequest, timeout_ms: int) -> None:
        member = self._member
        session = member.tree.sessions.get(request.session_id)
        live = member.sessions.get(request.session_id)
        # The password is checked before anything else is touched: a wrong one must not disturb the owner of the
        # session.
        password = request.password or b""
        if session is None or live is None or not hmac.compare_digest(session.password, password):
            self._turn_away(connection)
            return
        # What the session sent on its old connection takes effect before anything it sends on this one, or never.
        live.attach_asked = attach = self._next_attach(max(session.attach, live.attach_asked))
        if not member.replica.propose_attach(attach_session(wall_ms(), session.id, attach, timeout_ms)):
            connection.abort()
            return
        connection.state = State.OPENING
        self._opening[session.id, attach] = connection

    def session_attached(self, session_id: int, attach: int, error: int) -> None:
        """A connection, here or at another member, took a session over, or may not."""
        member = self._member
        live = member.sessions.get(session_id)
        if error or live is None:
            connection = self._opening.pop((session_id, attach), None)
            if connection is not None and error == ErrorCode.SESSION_EXPIRED:
                self._turn_away(connection)
                member.delivery.flush_later(connection)
            elif connection is not None:
                connection.abort()  # another one was later; its client comes back, if it still wants the session
            return
        if live.former is not None:
            live.former.abort()
        if live.connection is not None:
            self._detach(live, live.connection, attach)
        session = member.tree.sessions[session_id]
        live.attach = attach
        member.sessions.renew(live, session.timeout_ms, member.monotonic_ms())
        self._let_in(live, session.password)

    def _detach(self, live: LiveSession, connection: ClientConnection, attach: int) -> None:
        """The session goes on without this connection. One that another member took may read on, as in ZooKeeper.

        It still keeps the session alive: the client may never have heard of the other connection, as when it gave up
        on a member that was cut off, and whose wish to take the session over came through later.
        """
        live.connection = None
        connection.forbid_writes()
        if attach_member(attach) == self._member.config.member or connection.pending:
            connection.abort()
        else:
            live.former = connection

    def _turn_away(self, connection: ClientConnection) -> None:
        """The session is gone, or never was this client's."""
        self._respond(connection, 0, 0, bytes(PASSWORD_BYTES))
        connection.finish()

    def _let_in(self, live: LiveSession, password: bytes) -> None:
        """Open the connection that asked for this hold of the session, if it is here and still there."""
        connection = self._opening.pop((live.session_id, live.attach), None)
        if connection is None or connection.state is not State.OPENING:
            return
        live.connection = connection
        connection.live = live
        connection.session_id = live.session_id
        connection.attach = live.attach
        connection.last_op = Op.CREATE_SESSION
        connection.last_xid = 0
        connection.last_zxid = self._member.zxid
        connection.state = State.OPEN
        self._respond(connection, live.timeout_ms, live.session_id, password)
        self._member.delivery.flush_later(connection)

    def _open_read_only(self, connection: ClientConnection, request: ConnectRequest, timeout_ms: int) -> None:
        """Serve a client that asked for it with what is known here. It keeps its session if it has one."""
        member = self._member
        session = member.tree.sessions.get(request.session_id)
        if session is not None and hmac.compare_digest(session.password, request.password or b""):
            session_id, password = session.id, session.password
        elif request.session_id:
            self._turn_away(connection)
            return
        else:
            session_id, password = member.next_session_id(), secrets.token_bytes(PASSWORD_BYTES)
        connection.session_id = session_id
        connection.is_read_only = True
        connection.forbid_writes()
        connection.is_serializable = True
        connection.state = State.OPEN
        self._respond(connection, timeout_ms, session_id, password)

    def _respond(self, connection: ClientConnection, timeout_ms: int, session_id: int, password: bytes) -> None:
        """Answer in kind: an old client that sent no read-only byte must not get one."""
        read_only = connection.is_read_only if connection.read_only_byte else None
        connection.put(frame(ConnectResponse(0, timeout_ms, session_id, password, read_only).encode()))
