"""A tree and sessions that write to it: a case reads as what each session does and what the tree says."""

from __future__ import annotations

from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Record
from znoded.jute.multi import MultiReply, MultiRequest
from znoded.jute.ops import CreateFlags, Op, Perm
from znoded.jute.primitives import Reader
from znoded.jute.records import (
    Acl,
    CheckRequest,
    CreateRequest,
    CreateTtlRequest,
    DeleteRequest,
    SetAclRequest,
    SetDataRequest,
)
from znoded.jute.stat import Stat
from znoded.tree import reads
from znoded.tree.acl import OPEN_ACL, Identity
from znoded.tree.commands import encode_command, encode_identities
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import attach_session, expire_session, new_session, new_term, sweep_node
from znoded.tree.sessions import next_attach
from znoded.tree.tree import Event, Tree

MEMBER = 1
TIMEOUT_MS = 10_000

OPEN = OPEN_ACL
EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL = (
    CreateFlags.EPHEMERAL,
    CreateFlags.PERSISTENT_SEQUENTIAL,
    CreateFlags.EPHEMERAL_SEQUENTIAL,
)
TTL, TTL_SEQUENTIAL = CreateFlags.PERSISTENT_WITH_TTL, CreateFlags.PERSISTENT_SEQUENTIAL_WITH_TTL
START_MS = 1_700_000_000_000
SECRET = b"s" * 32
CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4


def world(perms: int) -> tuple[Acl, ...]:
    """An ACL that gives everyone these rights."""
    return (Acl(int(perms), b"world", b"anyone"),)


def only(scheme: bytes, acl_id: bytes, perms: int = Perm.ALL) -> tuple[Acl, ...]:
    """An ACL that gives one identity these rights."""
    return (Acl(int(perms), scheme, acl_id),)


class World:
    """A tree with a clock of one ms a command; zxids count the commands."""

    def __init__(self, options: TreeOptions = TreeOptions()) -> None:
        self.tree = Tree(options)
        self.log: list[bytes] = []
        self.now_ms = START_MS
        self.begin_term(1)

    def apply(self, command: bytes) -> tuple[int, bytes]:
        """Apply the next command: its error and its reply record."""
        self.log.append(command)
        _, _, _, err, body = self.tree.apply(self.tree.zxid + 1, command)
        return err, body

    def command(self, op: int, record: bytes, session: int = 0, attach: int = 0, sequence: int = 0) -> int:
        """Apply a command that no client sent: its error."""
        self.now_ms += 1
        return self.apply(encode_command(self.now_ms, session, attach, sequence, op, b"", record))[0]

    def begin_term(self, term: int, secret: bytes = SECRET, options: TreeOptions | None = None) -> None:
        self.now_ms += 1
        assert self.apply(new_term(self.now_ms, term, secret, options or self.tree.options)) == (0, b"")

    def session(self, session_id: int = 1 << 56 | 0x100, *identities: Identity, timeout_ms: int = 10_000) -> Client:
        """A new session."""
        client = Client(self, session_id, *identities)
        self.now_ms += 1
        assert self.apply(new_session(self.now_ms, session_id, client.attach, timeout_ms, None)) == (0, b"")
        return client

    def expire(self, client: Client, term: int | None = None) -> int:
        """The leader finds a session silent too long: the error."""
        self.now_ms += 1
        decided_in = self.tree.term if term is None else term
        return self.apply(expire_session(self.now_ms, client.id, client.attach, decided_in))[0]

    def sweep(self, path: bytes, mzxid: int, pzxid: int) -> int:
        """The leader decided to delete an empty container or TTL node: the error."""
        self.now_ms += 1
        return self.apply(sweep_node(self.now_ms, path, mzxid, pzxid))[0]

    def events(self) -> list[tuple[int, bytes]]:
        """The events since the last call, without their ACLs."""
        return [(event_type, path) for event_type, path, _ in self.events_with_acls()]

    def events_with_acls(self) -> list[Event]:
        events = list(self.tree.events)
        self.tree.events.clear()
        return events

    def stat(self, path: bytes) -> Stat:
        """The Stat of a znode that is there."""
        return Stat.decode(Reader(self.tree.nodes[path][-68:]))

    def data(self, path: bytes) -> bytes | None:
        """The data of a znode that is there."""
        return Reader(self.tree.nodes[path]).buffer()

    def acl(self, path: bytes) -> tuple[Acl, ...]:
        """The ACL of a znode."""
        return self.tree.acls.get(path, OPEN_ACL)

    def children(self, path: bytes) -> list[bytes]:
        """The paths of the children."""
        return sorted(self.tree.children.get(path, ()))


class Client:
    """A session, on one connection after the other."""

    def __init__(self, house: World, session_id: int, *identities: Identity) -> None:
        self.house = house
        self.id = session_id
        self.identities: tuple[Identity, ...] = ((b"ip", b"127.0.0.1"), *identities)
        self.reconnect()

    def reconnect(self) -> None:
        """Take the session over by a new connection, if there is a session."""
        session = self.house.tree.sessions.get(self.id)
        self.attach = next_attach(session.attach if session else 0, MEMBER, 0)
        self.sequence = 0
        if session:
            assert self.house.apply(attach_session(self.house.now_ms, self.id, self.attach, TIMEOUT_MS)) == (0, b"")

    def send(self, op: int, record: bytes) -> tuple[int, bytes]:
        """Send a write: its error and its reply record."""
        self.sequence += 1
        self.house.now_ms += 1
        head = self.house.now_ms, self.id, self.attach, self.sequence, op
        return self.house.apply(encode_command(*head, encode_identities(self.identities), record))

    def create(
        self, path: bytes | None, data: bytes | None = b"", flags: int = 0, acl: tuple[Acl, ...] | None = OPEN_ACL
    ) -> bytes | int:
        """The path made, or the error."""
        err, body = self.send(Op.CREATE, CreateRequest(path, data, acl, flags).encode())
        return err or (Reader(body).ustring() or b"")

    def create2(self, path: bytes, data: bytes | None = b"", flags: int = 0, op: int = Op.CREATE2) -> Stat | int:
        """The Stat answered, or the error."""
        err, body = self.send(op, CreateRequest(path, data, OPEN_ACL, flags).encode())
        return err or _path_and_stat(body)[1]

    def create_container(self, path: bytes, flags: int = CreateFlags.CONTAINER) -> bytes | int:
        """The path made, or the error."""
        err, body = self.send(Op.CREATE_CONTAINER, CreateRequest(path, b"", OPEN_ACL, flags).encode())
        return err or _path_and_stat(body)[0]

    def create_ttl(self, path: bytes, ttl_ms: int, flags: int = TTL) -> bytes | int:
        """The path made, or the error."""
        err, body = self.send(Op.CREATE_TTL, CreateTtlRequest(path, b"", OPEN_ACL, flags, ttl_ms).encode())
        return err or _path_and_stat(body)[0]

    def delete(self, path: bytes | None, version: int = -1) -> int:
        return self.send(Op.DELETE, DeleteRequest(path, version).encode())[0]

    def set(self, path: bytes | None, data: bytes | None = b"x", version: int = -1) -> Stat | int:
        """The Stat answered, or the error."""
        err, body = self.send(Op.SET_DATA, SetDataRequest(path, data, version).encode())
        return err or Stat.decode(Reader(body))

    def set_acl(self, path: bytes | None, acl: tuple[Acl, ...] | None, version: int = -1) -> Stat | int:
        """The Stat answered, or the error."""
        err, body = self.send(Op.SET_ACL, SetAclRequest(path, acl, version).encode())
        return err or Stat.decode(Reader(body))

    def multi(self, *operations: tuple[Op, Record]) -> list[tuple[Op, Record]] | int:
        """The results, or the error of the request as a whole."""
        err, body = self.send(Op.MULTI, MultiRequest(operations).encode())
        return err or list(MultiReply.decode(Reader(body)).results)

    def multi_errors(self, *operations: tuple[Op, Record]) -> list[int]:
        """The errors of the operations of a multi that fails."""
        results = self.multi(*operations)
        assert isinstance(results, list)
        assert all(op == Op.ERROR for op, _ in results)
        return [record.err for _, record in results]  # type: ignore[attr-defined]

    def close(self) -> int:
        return self.send(Op.CLOSE_SESSION, b"")[0]

    def ephemerals(self, prefix: bytes | None = None) -> list[bytes]:
        err, body = reads.get_ephemerals(self.house.tree, self.id, prefix)
        assert err == ErrorCode.OK
        return sorted(Reader(body).strings() or ())


def _path_and_stat(body: bytes) -> tuple[bytes, Stat]:
    reader = Reader(body)
    path = reader.ustring() or b""
    stat = Stat.decode(reader)
    assert reader.remaining == 0
    return path, stat


# The operations of a multi.


def create(
    path: bytes | None,
    data: bytes | None = b"",
    flags: int = 0,
    acl: tuple[Acl, ...] | None = OPEN_ACL,
    op: Op = Op.CREATE,
) -> tuple[Op, Record]:
    return op, CreateRequest(path, data, acl, flags)


def create_ttl(path: bytes, flags: int, ttl_ms: int, acl: tuple[Acl, ...] | None = OPEN_ACL) -> tuple[Op, Record]:
    return Op.CREATE_TTL, CreateTtlRequest(path, b"", acl, flags, ttl_ms)


def delete(path: bytes | None, version: int = -1) -> tuple[Op, Record]:
    return Op.DELETE, DeleteRequest(path, version)


def set_data(path: bytes | None, data: bytes | None = b"x", version: int = -1) -> tuple[Op, Record]:
    return Op.SET_DATA, SetDataRequest(path, data, version)


def check(path: bytes | None, version: int = -1) -> tuple[Op, Record]:
    return Op.CHECK, CheckRequest(path, version)
