"""One member of a cell: owns the tree, the log, the watches, the sessions and the connections, and joins them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred, succeed
from twisted.logger import Logger

from znoded.config import Config
from znoded.exit import exit_in_failure
from znoded.server.admission import Admission
from znoded.server.complaints import Complaints
from znoded.server.connection import ClientConnection, State
from znoded.server.delivery import Delivery
from znoded.server.figures import Figures
from znoded.server.handshake import Handshake
from znoded.server.housekeeping import Housekeeping
from znoded.server.listeners import Listeners
from znoded.server.open_files import grow_table, room_for_connections
from znoded.server.pipeline import Pipeline
from znoded.server.polling import SocketPoller
from znoded.server.read_gate import ReadGate
from znoded.server.sessions import LiveSession, SessionTracker
from znoded.server.stats import RequestStats
from znoded.server.turns import Turns
from znoded.server.wall_clock import wall_ms
from znoded.server.words import Words
from znoded.tree.history_segment import LOOSE_TABLES
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import new_term
from znoded.tree.sessions import SESSION_NUMBER_BITS, as_long
from znoded.tree.tree import Tree
from znoded.watches.table import Watches
from znoded.zab_raft.replica import Replica
from znoded.zab_raft.storage_options import StorageOptions

log = Logger()

SECRET_BYTES = 32
NOT_SERVING = "the member is starting or stopping"


def storage_options(config: Config) -> StorageOptions:
    """The part of the configuration that the replica needs."""
    return StorageOptions(
        data_dir=config.data_dir,
        member=config.member,
        segment_bytes=config.log.segment_bytes,
        checkpoint_interval_ms=config.log.checkpoint_interval_ms,
        checkpoint_bytes=config.log.checkpoint_bytes,
    )


def tree_options(config: Config) -> TreeOptions:
    """The part of the configuration that decides what commands do."""
    return TreeOptions(
        ttl_nodes=config.tree.ttl_nodes,
        enforce_quota=config.tree.enforce_quota,
        reconfig=config.tree.reconfig,
        history_bytes=config.history.bytes,
        history_retention_ms=config.history.retention_ms,
        children_bytes=config.limits.children_bytes,
        acl_entries=config.limits.acl_entries,
        sasl_ids=bool(config.auth.sasl_users),
        x509_ids=config.client.tls is not None and config.client.tls.client_ca is not None,
    )


class MemberReplica(Protocol):
    """What a member needs of its replica; see `Replica`."""

    writable: bool
    directory: Any  # has `state_path` and `log_path`

    @property
    def mode(self) -> str: ...

    @property
    def term(self) -> int: ...

    @property
    def last_index(self) -> int: ...

    @property
    def applied_index(self) -> int: ...

    @property
    def outstanding(self) -> int: ...

    @property
    def outstanding_bytes(self) -> int: ...

    def start(self) -> Deferred[None] | None: ...

    def stop(self) -> Deferred[None]: ...

    def drained(self) -> Deferred[None]: ...

    def propose(self, commands: list[bytes]) -> bool: ...

    def propose_attach(self, command: bytes) -> bool: ...

    def propose_change(self, command: bytes) -> bool: ...

    def backup(self, path: str) -> Deferred[None]: ...

    def read_stored(self, table: bytes, key: bytes, part: slice) -> bytes | None: ...


class Member:
    """A member that stands alone, and what it has in common with one of a cell.

    `start` recovers and listens; `stop` drains, makes everything durable and closes.
    """

    def __init__(self, config: Config, reactor: Any, make_replica: Callable[..., MemberReplica] = Replica) -> None:
        """`make_replica(reactor, storage, machine, on_fatal)` makes its log: that of a cell, or one a test drives."""
        self.config = config
        self.limits = config.limits
        self.tree = Tree(tree_options(config))
        self.watches: Watches[ClientConnection] = Watches()
        self.stats = RequestStats()
        self.admission = Admission(config.limits)
        self.complaints = Complaints(self.monotonic_ms)
        self.turns = Turns(reactor)
        self.sessions = SessionTracker(config.tick_ms, self.monotonic_ms())
        self.pipeline = Pipeline(self)
        self.poller = SocketPoller(reactor, self.pipeline.serve)
        self.handshake = Handshake(self)
        self.delivery = Delivery(self)
        self.replica = make_replica(reactor, storage_options(config), self, self._fatal)
        self.tree.history.read_stored = self.replica.read_stored
        self.serving = False
        self._reactor = reactor
        self.listeners = Listeners(reactor)
        self.words = Words(Figures(self), config.words.allow)
        self._housekeeping = Housekeeping(self, reactor)
        #: Where reads wait that another member could know better; None where there is no other member.
        self.gate: ReadGate | None = None
        self._last_session_number = 0
        #: How many connections the native API may have.
        self.api_connections = config.limits.api_connections

    # ---- life

    @inlineCallbacks
    def start(self) -> Any:
        """Recover what is on disk, then serve. Fails with the error that says what is in the way."""
        yield maybeDeferred(self.replica.start)
        yield self._begin()
        self.track_sessions()
        self._housekeeping.start()
        self._leave_room_for_files()
        self.serving = True
        self.poller.start()
        yield self.listeners.open(self.config.client, self)
        log.info(
            "Member {member} serves {path}: {nodes} znodes, {sessions} sessions",
            member=self.config.member,
            path=self.config.data_dir,
            nodes=len(self.tree.nodes),
            sessions=len(self.sessions),
        )

    def _begin(self) -> Deferred[None]:
        """A member that is alone begins its term at once."""
        self.propose(self.new_term())
        return self.replica.drained()

    def new_term(self) -> bytes:
        """The command that begins a term of this member."""
        secret, options = secrets.token_bytes(SECRET_BYTES), tree_options(self.config)
        return new_term(wall_ms(), self.replica.term, secret, options)

    def track_sessions(self) -> None:
        """Watch over the sessions of a state that was recovered. Nobody was heard meanwhile: each has its full timeout.

        Those that began in the log's tail are watched over already, but may have been taken over behind that.
        """
        now_ms = self.monotonic_ms()
        for session in self.tree.sessions.values():
            live = self.sessions.get(session.id)
            if live is None:
                live = self.sessions.add(session.id, session.timeout_ms, now_ms, session.attach)
            live.attach = session.attach
        self.sessions.grant_all(now_ms)

    @inlineCallbacks
    def stop(self) -> Any:
        """Take no more requests, answer those that were taken, and close. Sessions live on in the log."""
        self.serving = False
        self._housekeeping.stop()
        yield self.listeners.close()
        for connection in self.admission:
            connection.stop_reading()
        self.replica.drained().addCallback(lambda _none: self._dismiss_clients())
        yield self.replica.stop()
        self._dismiss_clients()  # whose last writes a full disk did not take
        self.poller.stop()

    def _leave_room_for_files(self) -> None:
        room = room_for_connections()
        if self.config.api.listen:
            left = room - min(self.limits.connections or room, room)
            self.api_connections = min(self.api_connections, max(left, room // 2))
            room -= self.api_connections
        self.admission.cap(room)
        grow_table()
        if not 0 < self.limits.connections <= room:
            log.warn(
                "limits.connections is {limit}, but open files are limited so that there is room for {room}: raise "
                "that limit (LimitNOFILE= for systemd, ulimit -n for a shell)",
                limit=self.limits.connections,
                room=room,
            )

    def _dismiss_clients(self) -> None:
        for connection in self.admission:
            connection.finish()

    def _fatal(self, error: BaseException) -> None:
        """The log is lost: acknowledge nothing more and end the process, loudly."""
        self.serving = False
        for connection in self.admission:
            connection.abort()
        exit_in_failure(self._reactor, str(error))

    def look_at_readiness(self) -> Deferred[str]:
        """Fires with what keeps clients from being answered, as a probe asks; empty if nothing does."""
        return succeed("" if self.serving else NOT_SERVING)

    @inlineCallbacks
    def back_up(self) -> Any:
        """Copy what is applied now into a new data directory beside this one, while serving; fires with its path."""
        path = f"{self.config.data_dir}.backup-{self.zxid:x}"
        yield self.replica.backup(path)
        return path

    # ---- clocks and numbers

    @staticmethod
    def monotonic_ms() -> int:
        """The clock that sessions live by, in ms from an arbitrary start."""
        return time.monotonic_ns() // 1_000_000

    @property
    def zxid(self) -> int:
        """The zxid of the last change applied here."""
        return self.tree.zxid

    def next_session_id(self) -> int:
        """A session id never used before: the member's number, 40 bits of the clock, 16 to count (protocol 1.6).

        The clock alone would not do: set back over a restart, it would give the id of a session that ended, and its
        password with it, to another client.
        """
        by_clock = (wall_ms() & (1 << 40) - 1) << 16
        last = self.tree.session_numbers.get(self.config.member, 0)
        self._last_session_number = max(self._last_session_number, last, by_clock - 1) + 1
        return as_long(self.config.member << SESSION_NUMBER_BITS | self._last_session_number)

    # ---- the way of a write

    def propose(self, command: bytes) -> bool:
        """Hand a command to the log. False when the log takes none for now, because the disk is full."""
        return self.replica.propose([command])

    def propose_ends(self, commands: list[bytes]) -> bool:
        """Propose to end sessions that were silent. False, and nothing done, if the log takes nothing for now."""
        return self.replica.propose(commands)

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        """StateMachine: apply committed commands."""
        self.delivery.apply_batch(first_index, commands)

    @property
    def outstanding(self) -> int:
        """Writes proposed and not applied yet."""
        return self.replica.outstanding

    def take_changes(self) -> Any:
        """StateMachine: what changed since the last checkpoint."""
        return self.tree.take_changes()

    def restore_changes(self, changes: Any) -> None:
        """StateMachine: a checkpoint failed; its changes belong to the next one."""
        self.tree.restore_changes(changes)

    def load(self, read_table: Callable[[bytes], Iterable[tuple[bytes, bytes]]]) -> None:
        """StateMachine: begin from a checkpoint."""
        self.tree.load(read_table)

    @property
    def loose_tables(self) -> Collection[bytes]:
        """StateMachine: those of the history."""
        return LOOSE_TABLES

    @property
    def dirty_bytes(self) -> int:
        """StateMachine: about how much a checkpoint would write now."""
        return max(self.tree.dirty_bytes, self.tree.history.unstored_bytes // 2)  # it has each znode twice

    # ---- its part in a cell

    @property
    def ends_sessions(self) -> bool:
        """Whether it is this member that decides which sessions were silent too long, and what is swept."""
        return True

    @property
    def turns_clients_away(self) -> bool:
        """Whether new clients are to look for another member."""
        return not self.serving

    @property
    def is_read_only(self) -> bool:
        """Whether only clients that asked for it are served, with what is known here, and no writes."""
        return False

    def heard(self, live: LiveSession) -> None:
        """A session is kept alive by who has no connection for it."""
        live.heard_ms = self.monotonic_ms()

    def cell_counters(self) -> Iterable[tuple[str, int | str]]:
        """What `mntr` tells of the other members."""
        return ()

    def cell_lines(self) -> str:
        """What `conf` tells of them."""
        return ""

    # ---- limits

    def is_over_outstanding_limit(self, pending: int, pending_bytes: int) -> bool:
        """Whether a connection with so many requests that wait must wait before it is read from again."""
        limits = self.limits
        return (
            pending >= limits.outstanding_per_connection
            or pending_bytes >= limits.outstanding_bytes_per_connection
            or self.outstanding >= limits.outstanding
            or self.replica.outstanding_bytes >= limits.outstanding_bytes
        )

    def room_for_writes(self) -> tuple[int, int]:
        """How many writes, and how many bytes of them, all connections together may send before they have to wait."""
        limits = self.limits
        return limits.outstanding - self.outstanding, limits.outstanding_bytes - self.replica.outstanding_bytes

    def may_watch(self, connection: ClientConnection, count: int, paths_bytes: int) -> bool:
        """Whether a connection may set so many more watches, on paths of that length together."""
        limits = self.limits
        return (
            self.watches.count_of(connection) + count <= limits.watches_per_session
            and self.watches.bytes_of(connection) + paths_bytes <= limits.watch_bytes_per_session
        )

    # ---- connections

    def connection_made(self, connection: ClientConnection) -> None:
        """A client connected."""
        refusal = self.admission.enter(connection)
        if refusal is not None:
            self.cut_off(connection, f"refused: {refusal}")

    def connection_lost(self, connection: ClientConnection) -> None:
        """A client's connection is gone. Its session goes on until its timeout."""
        self.admission.leave(connection)
        self.watches.drop(connection)
        if self.delivery.lagging.get(connection.session_id) is connection:
            del self.delivery.lagging[connection.session_id]
        live = connection.live
        if live is not None and live.connection is connection:
            live.connection = None
        elif live is not None and live.former is connection:
            live.former = None

    def cut_off(self, connection: ClientConnection, why: str) -> None:
        """Close a connection that broke a rule or met a limit."""
        if connection.state is not State.ENDED:
            self.complaints.add(connection.host, connection.port, why)
            connection.abort()
