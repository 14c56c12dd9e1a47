"""What the four-letter words ask of a server. Times are milliseconds of the monotonic clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from typing import Any, Protocol

from znoded.config import Config
from znoded.server.stats import RequestStats
from znoded.watches.table import Watches


class LiveView(Protocol):
    """What the words tell of the session of a connection."""

    @property
    def timeout_ms(self) -> int: ...
    @property
    def heard_ms(self) -> int:
        """When it was last heard, on the monotonic clock."""


class ConnectionView(Protocol):
    """What the words tell of a connection. `live` is None and `session_id` 0 until it has a session."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def live(self) -> LiveView | None: ...
    @property
    def is_reading(self) -> bool:
        """Whether what it sends is read."""

    @property
    def is_blocked(self) -> bool:
        """Whether it does not read what it is sent."""

    @property
    def pending(self) -> Sized | None:
        """Its requests that are not answered yet."""

    @property
    def accepted_ms(self) -> int:
        """When it connected, on the monotonic clock."""

    @property
    def stats(self) -> RequestStats: ...
    @property
    def last_op(self) -> int: ...
    @property
    def last_xid(self) -> int:
        """Of its last ordinary request; negative before the first."""

    @property
    def last_zxid(self) -> int: ...


class SessionsView(Protocol):
    """What the words tell of the live sessions."""

    def __len__(self) -> int: ...
    def expiry_buckets(self) -> dict[int, list[int]]:
        """Deadline on the monotonic clock in ms to the ids of the sessions that end then."""


#: The mode of a member that is cut off from the others.
READ_ONLY = "read-only"


class ServerView(Protocol):
    """What the words tell of the server."""

    @property
    def config(self) -> Config: ...
    @property
    def serving(self) -> bool: ...
    @property
    def mode(self) -> str:
        """`standalone`, `leader`, `follower` or `observer`."""

    @property
    def zxid(self) -> int:
        """That of the last change applied."""

    @property
    def client_port(self) -> int:
        """The first port that is listened on without TLS, -1 if there is none."""

    @property
    def secure_client_port(self) -> int:
        """The first port that is listened on with TLS, -1 if there is none."""

    @property
    def uptime_ms(self) -> int: ...
    @property
    def stats(self) -> RequestStats: ...
    @property
    def outstanding(self) -> int:
        """Requests received and not answered yet."""

    @property
    def node_count(self) -> int: ...
    @property
    def ephemeral_count(self) -> int: ...
    @property
    def data_bytes(self) -> int:
        """About the bytes of all paths and data."""

    @property
    def sessions(self) -> SessionsView: ...
    @property
    def watches(self) -> Watches[Any]:
        """Each watcher is a ConnectionView."""

    def monotonic_ms(self) -> int: ...
    def connections(self) -> Collection[ConnectionView]: ...
    def ephemerals(self) -> Iterable[tuple[int, Collection[bytes]]]:
        """The id of each session that has ephemeral nodes, with their paths."""

    def directory_bytes(self) -> tuple[int, int]:
        """Sizes on disk of the checkpoint and of the log."""

    def counters(self) -> Iterable[tuple[str, int | float | str]]:
        """More lines for `mntr`: names without `zk_`."""

    def cell_lines(self) -> str:
        """What the word `conf` tells of the cell; nothing of a member that is alone."""

    def reset_connection_stats(self) -> None:
        """Zero the packet counts and latencies of every connection."""
