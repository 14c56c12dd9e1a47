"""A member without socket, disk or clock: the log commits when the test says so, clients talk in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import MemoryReactorClock, StringTransport

from tests.jute.factory import frame, i4, i8, request, string
from znoded.config import parse
from znoded.jute.frames import FrameSplitter
from znoded.jute.ops import Op
from znoded.jute.primitives import Reader
from znoded.server.connection import ClientConnection
from znoded.server.member import Member

OPEN_ACL = i4(1) + i4(31) + string(b"world") + string(b"anyone")


class HandReplica:
    """A log that commits by hand."""

    mode = "standalone"

    def __init__(self, reactor: Any, config: Any, machine: Any, on_fatal: Callable[[Exception], None]) -> None:
        self.machine = machine
        self._reactor = reactor
        self.term = 1
        self.writable = True
        self._index = 0
        self.collected: list[bytes] = []
        self._drained: list[tuple[int, Deferred[None]]] = []

    def start(self) -> None:
        """There is nothing to recover."""

    def stop(self) -> Deferred[None]:
        return succeed(None)

    def propose(self, commands: list[bytes]) -> bool:
        if self.writable:
            self.collected += commands
        return self.writable

    @property
    def applied_index(self) -> int:
        return self._index

    @property
    def last_index(self) -> int:
        return self._index + len(self.collected)

    @property
    def outstanding(self) -> int:
        return len(self.collected)

    @property
    def outstanding_bytes(self) -> int:
        return sum(map(len, self.collected))

    def drained(self) -> Deferred[None]:
        drained: Deferred[None] = Deferred()
        self._drained.append((self.last_index, drained))
        self._tell_drained()
        return drained

    def _tell_drained(self) -> None:
        while self._drained and self._drained[0][0] <= self._index:
            self._drained.pop(0)[1].callback(None)

    def read_stored(self, table: bytes, key: bytes, part: slice) -> bytes | None:
        return None

    def propose_attach(self, command: bytes) -> bool:
        return self.propose([command])

    def propose_change(self, command: bytes) -> bool:
        return self.propose([command])

    def commit(self, count: int | None = None) -> None:
        """Commit what was proposed, or the first `count` of it."""
        commands = self.collected[:count]
        del self.collected[: len(commands)]
        first_index = self._index + 1
        self._index += len(commands)
        self.machine.apply_batch(first_index, commands)
        self._tell_drained()
        self._reactor.advance(0)


class Transport(StringTransport):
    """Remembers how it was closed, and can be too slow to read."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()

    def block(self) -> None:
        """The client stops reading."""
        assert self.producer is not None
        self.producer.pauseProducing()

    def unblock(self) -> None:
        """The client reads again."""
        assert self.producer is not None
        self.producer.resumeProducing()


class House:
    """A member and its clients."""

    def __init__(self, **keys: Any) -> None:
        table = {
            "auth": {"super_digest": "super:D/InIHSb7yEEbrWz8b9l71RjZJU="},
            "words": {"allow": ["*"]},
        }
        self.clock = MemoryReactorClock()
        self.member = Member(parse(table, keys), self.clock, HandReplica)  # type: ignore[arg-type]
        self.replica: HandReplica = self.member.replica  # type: ignore[assignment]
        self.member.start()
        self.replica.commit()

    def connect(self, host: str = "127.0.0.1") -> Client:
        """A connection that has said nothing yet."""
        return Client(self, host)

    def client(self, timeout_ms: int = 10_000) -> Client:
        """A connection with a new session."""
        client = self.connect()
        client.shake(timeout_ms=timeout_ms)
        self.replica.commit()
        client.established()
        return client


class Client:
    """One client connection, seen from the client."""

    def __init__(self, house: House, host: str) -> None:
        self.house = house
        self.transport = Transport(peerAddress=None)
        self.transport.getPeer = lambda: Peer(host)  # type: ignore[method-assign]
        self.connection = ClientConnection(house.member)
        self.connection.makeConnection(self.transport)
        self._splitter = FrameSplitter(1 << 30)
        self.session_id = 0
        self.password = bytes(16)

    def send(self, *frames: bytes) -> None:
        """The frames arrive in one segment."""
        self.connection.dataReceived(b"".join(frames))
        self.house.clock.advance(0)  # whoever stands in line has its turn

    def frames(self) -> list[bytes]:
        """The payloads that came since the last look."""
        data = self.transport.value()
        self.transport.clear()
        return self._splitter.feed(data)

    def shake(self, session_id: int = 0, password: bytes = bytes(16), timeout_ms: int = 10_000, zxid: int = 0) -> None:
        """Send the connect request."""
        self.send(frame(i4(0), i8(zxid), i4(timeout_ms), i8(session_id), string(password), b"\0"))

    def resume(self, session_id: int, password: bytes, timeout_ms: int = 10_000) -> None:
        """Take a session over, which the log has to decide."""
        self.shake(session_id, password, timeout_ms)
        self.house.replica.commit()

    def established(self) -> int:
        """Read the connect response: the timeout granted."""
        (payload,) = self.frames()
        reader = Reader(payload)
        assert reader.int() == 0
        timeout_ms = reader.int()
        self.session_id = reader.long()
        self.password = reader.buffer() or b""
        return timeout_ms

    def replies(self) -> list[tuple[int, int]]:
        """(xid, error) of each frame that came since the last look; notifications are (-1, event type)."""
        found = []
        for payload in self.frames():
            reader = Reader(payload)
            xid, _, error = reader.int(), reader.long(), reader.int()
            found.append((xid, reader.int() if xid == -1 else error))
        return found

    def drop(self) -> None:
        """The connection breaks."""
        self.connection.connectionLost()

    @property
    def is_closed(self) -> bool:
        """Whether the server closed the connection."""
        return bool(self.transport.disconnecting)


class Peer:
    """The address of a client."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.port = 50_000


def create(xid: int, path: bytes, data: bytes = b"", flags: int = 0) -> bytes:
    """A create request with the open ACL."""
    return request(xid, Op.CREATE, string(path), string(data), OPEN_ACL, i4(flags))


def set_data(xid: int, path: bytes, data: bytes = b"x") -> bytes:
    """A setData request for any version."""
    return request(xid, Op.SET_DATA, string(path), string(data), i4(-1))


def get_data(xid: int, path: bytes, watch: bool = False) -> bytes:
    """A getData request."""
    return request(xid, Op.GET_DATA, string(path), bytes([watch]))


def get_children(xid: int, path: bytes, watch: bool = False) -> bytes:
    """A getChildren request."""
    return request(xid, Op.GET_CHILDREN, string(path), bytes([watch]))


def exists(xid: int, path: bytes, watch: bool = False) -> bytes:
    """An exists request."""
    return request(xid, Op.EXISTS, string(path), bytes([watch]))


def ping() -> bytes:
    """A ping."""
    return request(-2, Op.PING)


def close(xid: int) -> bytes:
    """A closeSession request."""
    return request(xid, Op.CLOSE_SESSION)
