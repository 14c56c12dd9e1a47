"""The other members, as the replica sees them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import (
    IListeningPort,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
)
from twisted.python.threadpool import ThreadPool

from znoded.jute.frames import frame
from znoded.jute.primitives import JuteError
from znoded.zab_raft.core.messages import InstallSnapshot, Message
from znoded.zab_raft.peers.acceptor import Acceptor, Incoming
from znoded.zab_raft.peers.dialler import Connect, Dialler, connector, secured
from znoded.zab_raft.peers.entering import Entering
from znoded.zab_raft.peers.founding import (
    ANSWER_BYTES_LIMIT,
    DIGEST_BYTES_LIMIT,
    Answer,
    Blank,
    Decision,
    Denied,
    Table,
    Welcome,
    encode_answer,
)
from znoded.zab_raft.peers.gate import Gate
from znoded.zab_raft.peers.handshake import Hello, Purpose
from znoded.zab_raft.peers.identity import NO_RAFT_ID, Identity
from znoded.zab_raft.peers.incarnations import Incarnations
from znoded.zab_raft.peers.link import Link
from znoded.zab_raft.peers.refusal_log import RefusalLog
from znoded.zab_raft.peers.snapshot_receive import SnapshotReceiver
from znoded.zab_raft.peers.snapshot_send import SnapshotSource, SnapshotStream
from znoded.zab_raft.peers.wire import FRAME_BYTES_LIMIT, FrameKind, FrameRecord, decode_frame, encode_frame

ANSWERS_BYTES_LIMIT = 1024
#: Members that dialled here and are not known yet, to which there is a link.
NEWCOMERS_LIMIT = 16
SENDING_THREADS = 2


class Tls(NamedTuple):
    """What makes the TLS side of each connection. Both must demand the other's certificate."""

    server: IOpenSSLServerConnectionCreator
    client: IOpenSSLClientConnectionCreator


class PeerHandler(Protocol):
    """What the connections tell the replica, always from the reactor, and never within a call to `Peers`."""

    def received(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> None:
        """A frame came from a member: a `Message` (its sender and receiver are right), `Forward`, `Change` or bytes.

        An `InstallSnapshot` comes as `snapshot_arrived` only.
        """

    def opened(self, raft_id: int) -> None:
        """From now on frames can be sent to the member. What was sent before may be lost: forward it again."""

    def closed(self, raft_id: int) -> None:
        """The member closed its connection, most often because its process has ended. Told once for each time."""

    def unreachable(self, raft_id: int) -> None:
        """The connection to the member is lost, and what was sent last may be."""

    def welcome(self, number: int) -> Welcome | None:
        """What a blank member of this number is to be told; None if the number is not in the roster.

        Only asked of a member that is in a cell.
        """

    def wants_snapshot(self, message: InstallSnapshot) -> bool:
        """Whether a leader may stream this snapshot to here. Not while one that arrived is being installed."""

    def snapshot_arrived(self, message: InstallSnapshot, path: str) -> None:
        """All of a snapshot is durable in the directory `path`, for `Checkpoint.install`; step the message."""

    def snapshot_progressed(self, raft_id: int) -> None:
        """The member took a part of the snapshot that is streamed to it."""

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        """The stream to the member ended; its source is closed."""

    def abandoned(self, reason: str) -> None:
        """The cell was given up, and goes on as another one: this member must not go on."""


class Peers:
    """All connections to and from the other members."""

    def __init__(
        self,
        reactor: Any,
        listen: str,
        address: str,
        identity: Identity,
        directory: str,
        handler: PeerHandler,
        secret: bytes,
        random: Callable[[], float],
        *,
        tls: Tls | None = None,
        snapshot_bytes_per_second: int = 0,
        random_bytes: Callable[[int], bytes] = os.urandom,
        connect: Connect | None = None,
    ) -> None:
        """`listen` is the Twisted endpoint of the peer port, `address` ("host:port") where the others reach it.

        `directory` is the data directory, for the file `peers` and the directory `incoming`. `secret`, if not empty, is
        what all members prove to know. `random` gives numbers from 0 to 1, `random_bytes(n)` bytes that nobody can
        guess. `connect` makes the connections, by default over TCP, with TLS if that is given.

        Raises DirectoryError if the file `peers` is damaged.
        """
        self._reactor = reactor
        self._listen = listen
        self._handler = handler
        self._random = random
        self._tls = tls
        self._snapshot_bytes_per_second = snapshot_bytes_per_second
        self._incoming_path = os.path.join(directory, "incoming")
        self._refusals = RefusalLog(reactor.seconds)
        self._gate = Gate(identity, address, secret, Incarnations(directory))
        self._gate.on_abandoned = lambda reason: self._reactor.callLater(0, self._abandoned, reason)
        connect = connect or connector(reactor, tls.client if tls else None)
        self._dialler = Dialler(reactor, self._gate, self._refusals, connect, random_bytes)
        self.acceptor = Acceptor(reactor, self._gate, self._refusals, self, random_bytes)
        self._port: IListeningPort | None = None
        self._links: dict[int, Link] = {}
        self._connections: set[Incoming] = set()
        self._incoming: dict[int, Incoming] = {}
        self._absent: set[int] = set()
        self._entering: Entering | None = None
        self._digest = b""
        self._streams: dict[int, SnapshotStream] = {}
        self._receivers: dict[Incoming, SnapshotReceiver] = {}
        self._sending_pool = ThreadPool(0, SENDING_THREADS, "snapshots out")
        self._receiving_pool = ThreadPool(0, 1, "snapshot in")
        self._stopped = False

    @property
    def identity(self) -> Identity:
        """Who this member is."""
        return self._gate.identity

    def start(self) -> Deferred[None]:
        """Listen. Fails with CannotListenError."""
        self._sending_pool.start()
        self._receiving_pool.start()
        factory: Any = self.acceptor
        if self._tls is not None:
            factory = secured(self._tls.server, False, factory, self._reactor)
        listening = maybeDeferred(serverFromString(self._reactor, self._listen).listen, factory)
        return listening.addCallback(self._listening)

    def stop(self) -> Deferred[None]:
        """Close everything; nothing is told to the handler from here on."""
        self._stopped = True
        if self._entering is not None:
            self._entering.decided.cancel()
        for link in self._links.values():
            link.stop()
        self._links.clear()
        for stream in self._streams.values():
            stream.stop()
        self._streams.clear()
        for receiver in list(self._receivers.values()):
            receiver.stop()
        for connection in list(self._connections):
            connection.close()
        port, self._port = self._port, None
        closed = maybeDeferred(port.stopListening) if port else maybeDeferred(lambda: None)
        return closed.addCallback(self._stop_pools)

    def enter_cell(self, table: Table) -> Deferred[Decision]:
        """For a blank member: ask the others until it is clear that it is to `Found` a cell or to `Join` one.

        It can be cancelled, and is by `stop`.
        """
        self._digest = table.digest
        self._entering = Entering(self._dialler, table, self._random)
        self._entering.start()
        return self._entering.decided

    def adopt(self, identity: Identity) -> None:
        """The blank member is in a cell now, and has this identity durably."""
        self._gate.identity = identity

    def set_members(self, members: Mapping[int, tuple[int, str]], highest_id: int) -> None:
        """Who is in the cell now: raft id -> (member number, "host:port"). Its own entry may be among them.

        Connections from and to members that were removed are closed. A raft id above `highest_id` is not refused: this
        member may not have heard of its joining yet.
        """
        self._gate.members = dict(members)
        self._gate.highest_id = highest_id
        for raft_id, link in list(self._links.items()):
            newcomer = raft_id not in members and raft_id > highest_id
            if not newcomer and members.get(raft_id) != (link.number, link.address):
                self._drop_link(raft_id)
        for raft_id, (number, address) in members.items():
            self._add_link(raft_id, number, address)
        for raft_id, connection in list(self._incoming.items()):
            if raft_id not in members and raft_id <= highest_id:
                connection.refuse(f"raft id {raft_id} was removed from the cell")

    def send(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> bool:
        """Send a frame; false if it was not: there is no connection or no room.

        A FORWARD or CHANGE that finds no room closes the connection, so that none can overtake it: `opened` comes
        again. Raises ValueError if the frame would be too long.
        """
        link = self._links.get(raft_id)
        if link is None or not link.connected:
            return False
        sent = link.send(encode_frame(kind, record))
        if not sent and kind in (FrameKind.FORWARD, FrameKind.CHANGE):
            link.break_off()
        return sent

    def connected(self, raft_id: int) -> bool:
        """Whether frames can be sent to the member now."""
        link = self._links.get(raft_id)
        return link is not None and link.connected

    def send_snapshot(self, message: InstallSnapshot, source: SnapshotSource) -> None:
        """Stream a checkpoint to the receiver of `message`, in place of any stream to it that is under way.

        `source` must be at the snapshot's index and term; it is closed here. It ends in `snapshot_finished`, unless the
        member is removed, or another stream takes its place.
        """
        if (source.index, source.term) != (message.snapshot.index, message.snapshot.term):
            source.close()
            raise ValueError(f"a source of index {source.index} for the snapshot of index {message.snapshot.index}")
        raft_id = message.to
        if earlier := self._streams.pop(raft_id, None):
            earlier.stop()
        link = self._links.get(raft_id)
        if link is None:
            source.close()
            self._reactor.callLater(0, self.snapshot_finished, raft_id, False)
            return
        stream = SnapshotStream(
            self._reactor,
            self._sending_pool,
            partial(self._dialler.dial, Purpose.SNAPSHOT, raft_id, link.number, link.address),
            message,
            source,
            self._snapshot_bytes_per_second,
            self,
            self._random,
        )
        self._streams[raft_id] = stream
        stream.start()

    def end_snapshots(self) -> None:
        """This member leads no longer: end all streams, and tell nothing of them."""
        for stream in self._streams.values():
            stream.stop()
        self._streams.clear()

    # What the connections tell

    def accepted(self, connection: Incoming, hello: Hello) -> None:
        """Guests: a connection whose handshake is done."""
        self._connections.add(connection)
        if hello.purpose is Purpose.FRAMES:
            self._accept_frames(connection, hello)
        elif hello.purpose is Purpose.SNAPSHOT:
            self._accept_snapshot(connection)
        else:
            connection.open(ANSWER_BYTES_LIMIT, DIGEST_BYTES_LIMIT, partial(self._answer, connection, hello.identity))

    def gone(self, connection: Incoming, by_other: bool) -> None:
        """Guests: a connection that was accepted is closed."""
        self._connections.discard(connection)
        if receiver := self._receivers.pop(connection, None):
            receiver.stop()
        raft_id = connection.hello.identity.raft_id
        if self._incoming.get(raft_id) is not connection:
            return
        del self._incoming[raft_id]
        if raft_id not in self._gate.members:
            self._drop_link(raft_id)
        if by_other:
            self._report_closed(raft_id)

    def link_opened(self, raft_id: int) -> None:
        """LinkEvents: frames can be sent."""
        self._absent.discard(raft_id)
        if not self._stopped:
            self._handler.opened(raft_id)

    def link_lost(self, raft_id: int, by_other: bool) -> None:
        """LinkEvents: what was sent last may be lost."""
        if not self._stopped:
            self._handler.unreachable(raft_id)
        if by_other and raft_id not in self._incoming:
            self._report_closed(raft_id)

    def snapshot_progressed(self, raft_id: int) -> None:
        """StreamEvents."""
        self._handler.snapshot_progressed(raft_id)

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        """StreamEvents."""
        self._streams.pop(raft_id, None)
        if not self._stopped:
            self._handler.snapshot_finished(raft_id, delivered)

    def _abandoned(self, reason: str) -> None:
        if not self._stopped:
            self._handler.abandoned(reason)

    def _accept_frames(self, connection: Incoming, hello: Hello) -> None:
        raft_id = hello.identity.raft_id
        earlier = self._incoming.get(raft_id)
        self._incoming[raft_id] = connection
        if earlier is not None:
            earlier.close()
        self._absent.discard(raft_id)
        connection.open(ANSWERS_BYTES_LIMIT, FRAME_BYTES_LIMIT, partial(self._received, raft_id))
        if raft_id not in self._gate.members:
            self._add_newcomer(raft_id, hello)
        if link := self._links.get(raft_id):
            link.hurry()

    def _accept_snapshot(self, connection: Incoming) -> None:
        for earlier in list(self._receivers.values()):
            earlier.stop()
        self._receivers[connection] = SnapshotReceiver(
            self._reactor,
            self._receiving_pool,
            connection,
            self._gate.identity.raft_id,
            self._incoming_path,
            self._handler,
        )

    def _received(self, raft_id: int, payload: bytes) -> None:
        kind, record = decode_frame(payload)
        if kind is FrameKind.RAFT:
            message = cast(Message, record)
            if (message.sender, message.to) != (raft_id, self._gate.identity.raft_id):
                raise JuteError(f"a message from {message.sender} to {message.to} came from {raft_id}")
            if isinstance(message, InstallSnapshot):
                raise JuteError("a snapshot came without its state")
        self._handler.received(raft_id, kind, record)

    def _answer(self, connection: Incoming, other: Identity, digest: bytes) -> None:
        answer = self._answer_to(other)
        if isinstance(answer, Denied):
            self._refusals.add(connection.host, f"member {other.number} at {connection.where}", answer.reason)
        connection.send(frame(encode_answer(answer)))

    def _answer_to(self, other: Identity) -> Answer:
        if self._gate.identity.blank:
            return Blank(self._digest)
        welcome = self._handler.welcome(other.number)
        if welcome is None:
            return Denied(NO_RAFT_ID, f"member {other.number} is not in the cell; add it with reconfig")
        why = self._gate.why_not_incarnation(other, welcome.raft_id)
        return Denied(welcome.raft_id, why) if why else welcome

    def _add_newcomer(self, raft_id: int, hello: Hello) -> None:
        """A member that this one has not heard of yet gets answers where it says it can be reached."""
        newcomers = len(self._links.keys() - self._gate.members.keys())
        if newcomers < NEWCOMERS_LIMIT and hello.address:
            self._add_link(raft_id, hello.identity.number, hello.address)

    def _add_link(self, raft_id: int, number: int, address: str) -> None:
        if raft_id == self._gate.identity.raft_id or raft_id in self._links:
            return
        link = Link(self._dialler, raft_id, number, address, self, self._random)
        self._links[raft_id] = link
        link.start()

    def _drop_link(self, raft_id: int) -> None:
        if link := self._links.pop(raft_id, None):
            link.stop()
        if stream := self._streams.pop(raft_id, None):
            stream.stop()

    def _report_closed(self, raft_id: int) -> None:
        if raft_id not in self._absent and not self._stopped:
            self._absent.add(raft_id)
            self._handler.closed(raft_id)

    def _listening(self, port: IListeningPort) -> None:
        self._port = port

    def _stop_pools(self, _: object) -> None:
        self._sending_pool.stop()
        self._receiving_pool.stop()
