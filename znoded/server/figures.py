"""A member in figures: what the four-letter words and the admin pages tell of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from twisted.internet.address import IPv4Address, IPv6Address

from znoded.config import Config
from znoded.server.connection import ClientConnection
from znoded.server.server_view import READ_ONLY
from znoded.server.sessions import SessionTracker
from znoded.server.stats import RequestStats
from znoded.watches.table import Watches

if TYPE_CHECKING:
    from znoded.server.member import Member

#: The Stat and the length of the data, which do not count as data.
NODE_OVERHEAD_BYTES = 72
#: How many times as long as counting took a count is good for.
COUNT_GOOD_FOR = 100
#: The unit of `st_blocks`, whatever the file system's own blocks are (stat(2)).
BLOCK_BYTES = 512


class Figures:
    """The `ServerView` of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._started_ms = member.monotonic_ms()
        self._data_bytes = 0
        self._data_bytes_good_until_ms = 0

    @property
    def config(self) -> Config:
        return self._member.config

    @property
    def serving(self) -> bool:
        return self._member.serving

    @property
    def mode(self) -> str:
        return READ_ONLY if self._member.is_read_only else self._member.replica.mode

    @property
    def zxid(self) -> int:
        return self._member.zxid

    @property
    def client_port(self) -> int:
        return _first_port(self._member.listeners.plain_addresses)

    @property
    def secure_client_port(self) -> int:
        return _first_port(self._member.listeners.tls_addresses)

    @property
    def uptime_ms(self) -> int:
        return self._member.monotonic_ms() - self._started_ms

    @property
    def stats(self) -> RequestStats:
        return self._member.stats

    @property
    def outstanding(self) -> int:
        return self._member.outstanding

    @property
    def node_count(self) -> int:
        """One more than there are: ZooKeeper counts its root twice, and tools compare."""
        return len(self._member.tree.nodes) + 1

    @property
    def ephemeral_count(self) -> int:
        return sum(len(paths) for _, paths in self.ephemerals())

    @property
    def data_bytes(self) -> int:
        """Anyone may ask for it as often as they like: the longer it takes to count, the longer the count is good."""
        began_ms = self._member.monotonic_ms()
        if began_ms >= self._data_bytes_good_until_ms:
            nodes = self._member.tree.nodes
            sizes_bytes = sum(map(len, nodes)) + sum(map(len, nodes.values()))
            self._data_bytes = sizes_bytes - NODE_OVERHEAD_BYTES * len(nodes)
            took_ms = self._member.monotonic_ms() - began_ms
            self._data_bytes_good_until_ms = began_ms + COUNT_GOOD_FOR * took_ms
        return self._data_bytes

    @property
    def sessions(self) -> SessionTracker:
        return self._member.sessions

    @property
    def watches(self) -> Watches[Any]:
        return self._member.watches

    def monotonic_ms(self) -> int:
        """The clock that sessions live by."""
        return self._member.monotonic_ms()

    def connections(self) -> Collection[ClientConnection]:
        """Every open connection."""
        return list(self._member.admission)

    def ephemerals(self) -> Iterable[tuple[int, Collection[bytes]]]:
        """The id of each session that has ephemeral nodes, with their paths."""
        sessions = self._member.tree.sessions.values()
        return ((session.id, session.ephemerals) for session in sessions if session.ephemerals)

    def directory_bytes(self) -> tuple[int, int]:
        """Sizes on disk of the checkpoint and of the log."""
        directory = self._member.replica.directory
        return _bytes_in(directory.state_path), _bytes_in(directory.log_path)

    def counters(self) -> Iterable[tuple[str, int | float | str]]:
        """Counts under the names that ZooKeeper's `mntr` has for them, and whether the disk has room."""
        member = self._member
        return (
            ("writes_accepted", int(member.replica.writable)),
            ("commit_count", member.replica.applied_index),
            ("proposal_count", member.replica.last_index),
            ("connection_request_count", member.handshake.request_count),
            ("connection_revalidate_count", member.handshake.revalidate_count),
            ("connection_rejected", member.admission.rejected),
            ("sessionless_connections_expired", member.admission.overstayed_count),
            ("stale_sessions_expired", member.sessions.expired_count),
            ("history_bytes", member.tree.history.size_bytes),
            ("history_oldest_revision", member.tree.history.oldest),
            *member.cell_counters(),
        )

    def cell_lines(self) -> str:
        """What the word `conf` tells of the cell; nothing of a member that is alone."""
        return self._member.cell_lines()

    def reset_connection_stats(self) -> None:
        """Zero the packet counts and latencies of every connection."""
        for connection in self._member.admission:
            connection.stats.reset()


def _first_port(addresses: Iterable[Any]) -> int:
    return next((address.port for address in addresses if isinstance(address, IPv4Address | IPv6Address)), -1)


def _bytes_in(path: str) -> int:
    """What the files in a folder take on disk; one that vanishes meanwhile counts nothing."""
    total_bytes = 0
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                total_bytes += entry.stat().st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
    return total_bytes
