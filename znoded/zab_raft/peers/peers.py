"""The other members, as the replica sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator

from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.peers.founding import Decision, Table, Welcome
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.wire import FrameKind, FrameRecord


class Tls(NamedTuple):
    """What makes the TLS side of each connection. Both must demand the other's certificate."""

    server: IOpenSSLServerConnectionCreator
    client: IOpenSSLClientConnectionCreator


class SnapshotSource(Protocol):
    """A read transaction of a checkpoint. Used by one thread at a time, and closed by whom it was given to."""

    index: int
    term: int

    def tables(self) -> list[bytes]:
        """The names of all stored tables."""

    def items(self, table: bytes, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next items of a table, at most `count`, in the order of their keys, behind the key `after`."""

    def close(self) -> None:
        """End the transaction."""


class PeerHandler(Protocol):
    """What the connections tell the replica, always from the reactor, and never within a call to `Peers`."""

    def received(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> None:
        """A frame came from a member: a `Message` (its sender and receiver are right), `Forward`, `Change` or bytes."""

    def opened(self, raft_id: int) -> None:
        """From now on frames can be sent to the member. What was sent before may be lost: forward it again."""

    def closed(self, raft_id: int) -> None:
        """The member closed its connection, most often because its process has ended."""

    def unreachable(self, raft_id: int) -> None:
        """What was sent to the member last may be lost."""

    def welcome(self, number: int) -> Welcome | None:
        """What a blank member of this number is to be told; None if the number is not in the roster.

        Only asked of a member that is in a cell.
        """

    def wants_snapshot(self, message: InstallSnapshot) -> bool:
        """Whether a leader may stream this snapshot to here."""

    def snapshot_arrived(self, message: InstallSnapshot, path: str) -> None:
        """All of a snapshot is durable in the directory `path`; `install` it, then step the message."""

    def snapshot_progressed(self, raft_id: int) -> None:
        """The member took a part of the snapshot that is streamed to it."""

    def snapshot_finished(self, raft_id: int, delivered: bool) -> None:
        """The stream to the member ended."""


class Peers:
    """All connections to and from the other members.

    `listen` is the Twisted endpoint string of the peer port, `address` ("host:port") is where the others reach it.
    `directory` is the data directory, for `peers` (incarnations) and `incoming/`. `secret`, if not empty, is what all
    members prove to know. `random` gives numbers from 0 to 1, `random_bytes(n)` unguessable bytes.
    """

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
    ) -> None: ...

    identity: Identity

    def start(self) -> Deferred[None]:
        """Listen. Fails with CannotListenError, or StorageError if `DATA/peers` is damaged."""
        raise NotImplementedError

    def stop(self) -> Deferred[None]:
        """Close everything; nothing is told to the handler from here on."""
        raise NotImplementedError

    def enter_cell(self, table: Table) -> Deferred[Decision]:
        """For a blank member: ask the others until it is clear that it is to `Found` a cell or to `Join` one."""
        raise NotImplementedError

    def adopt(self, identity: Identity) -> None:
        """The blank member is in a cell now, and has this identity durably."""
        raise NotImplementedError

    def set_members(self, members: Mapping[int, tuple[int, str]], highest_id: int) -> None:
        """Who is in the cell now: raft id -> (member number, "host:port"). Its own entry may be among them.

        Connections from and to all others are closed. A raft id above `highest_id` is not refused: this member may
        not have heard of its joining yet.
        """
        raise NotImplementedError

    def send(self, raft_id: int, kind: FrameKind, record: FrameRecord) -> bool:
        """Send a frame; false if it was not: there is no connection or no room.

        A FORWARD or CHANGE that finds no room closes the connection, so that none can overtake it. Raises ValueError
        if the frame would be too long.
        """
        raise NotImplementedError

    def connected(self, raft_id: int) -> bool:
        """Whether frames can be sent to the member now."""
        raise NotImplementedError

    def send_snapshot(self, message: InstallSnapshot, source: SnapshotSource) -> None:
        """Stream a checkpoint to the receiver of `message`, in place of any stream to it that is under way.

        `source` must be at the snapshot's index and term; it is closed here. It ends in `snapshot_finished`.
        """
        raise NotImplementedError
