"""A member of a cell: what it does beside a member that stands alone.

Any member serves clients: it hands their writes to the leader, waits with their reads until they are confirmed, and
tells the leader whom it heard. Only the leader ends sessions and sweeps. A member that knows no leader for long sends
its clients away, so that they look for another one, and serves those who are content to read what it knows.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from functools import partial
from math import ceil
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from znoded.config import Config
from znoded.config_values import read_secret
from znoded.jute.primitives import Reader
from znoded.server.connection import ClientConnection, State
from znoded.server.member import NOT_SERVING, Member, storage_options
from znoded.server.membership import (
    CellRoster,
    conf_lines,
    configured_roster,
    founding_table,
    plan_change,
    refused_change,
    roster_command,
)
from znoded.server.peer_tls import PeerContext
from znoded.server.read_gate import ReadGate
from znoded.server.readiness import PATIENCE_S, Readiness
from znoded.server.sessions import LiveSession
from znoded.server.wall_clock import wall_ms
from znoded.tree import reconfig
from znoded.tree.tables import NODES, ReadTable
from znoded.zab_raft.cell.machine import Refusal
from znoded.zab_raft.cell.options import CellOptions
from znoded.zab_raft.cell.replica import CellReplica
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.core.conf_change import ConfChange
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler, Peers, Tls

log = Logger()

#: A member tells its leader so many times in a tick whom it heard. The shortest session timeout is two ticks.
REPORTS_PER_TICK = 4
#: But not more often than that, however short a tick is.
REPORT_MS_LEAST = 25
#: Without a leader for so many ticks a member sends its clients away, so that those with the shortest timeout, of two
#: ticks, have time to come back to another one; but not before an election can have ended.
LEADERLESS_TICKS = 1.5
LEADERLESS_ELECTIONS = 2
#: What was told within this time before the connection to the leader was lost may be lost with it: a connection that
#: was cut silently takes what it is given for 5 s (`UNACKNOWLEDGED_MS`), and it is dialled anew after that.
TELL_AGAIN_MS = 10_000

#: What a member does, by its mode, in the words of ZooKeeper's `zk_peer_state`.
PEER_STATES = {
    "leader": "leading - broadcast",
    "follower": "following - broadcast",
    "observer": "observing - broadcast",
}
LOOKING = "looking - election"
#: Sizes of the last, the smallest and the largest command, before a leader has made one.
NO_PROPOSAL = (-1, -1, -1)


def cell_options(config: Config) -> CellOptions:
    """The part of the configuration that the replica of a cell needs."""
    roster = configured_roster(config)
    cell = config.cell
    return CellOptions(
        storage=storage_options(config),
        roster=roster,
        table=founding_table(roster),
        heartbeat_ms=cell.heartbeat_ms,
        election_ms=cell.election_ms,
        log_tail_bytes=cell.log_tail_bytes,
    )


def make_peers(config: Config, reactor: Any, identity: Identity, directory: str, handler: PeerHandler) -> Peers:
    """The connections to the other members that a configuration describes."""
    cell = config.cell
    context = PeerContext(cell.tls) if cell.tls else None
    return Peers(
        reactor,
        config.peer_listen,
        cell.members[config.member].peer,
        identity,
        directory,
        handler,
        read_secret(cell.secret_file) if cell.secret_file else b"",
        random.SystemRandom().random,
        tls=Tls(context, context) if context else None,
        snapshot_bytes_per_second=cell.snapshot_bytes_per_second,
    )


class CellMember(Member):
    """One of the members of a cell."""

    def __init__(self, config: Config, reactor: Any) -> None:
        super().__init__(config, reactor, partial(_make_replica, config))
        self.cell = cast(CellReplica, self.replica)
        self.gate = ReadGate(reactor, self.pipeline, self.cell.confirm_reads, self._report)
        self._readiness = Readiness(reactor, self.cell.confirm_reads, self._missing)
        self._roster = CellRoster(self.tree)
        self._reporting = LoopingCall(self._report_sessions)
        self._reporting.clock = reactor
        self._last_report_ms = 0
        self._heard_unconnected: set[int] = set()
        self._leaderless_since_ms: int | None = self.monotonic_ms()
        self._is_cut_off = False
        self._leads_since_ms = 0
        self._proposal_bytes = NO_PROPOSAL

    def _begin(self) -> Deferred[None]:
        """There may be no leader yet, and clients may come already."""
        self._leaderless_since_ms = self.monotonic_ms()
        report_ms = max(self.config.tick_ms / REPORTS_PER_TICK, REPORT_MS_LEAST)
        self._reporting.start(report_ms / 1000, now=False)
        return succeed(None)

    def stop(self) -> Any:
        if self._reporting.running:
            self._reporting.stop()
        return super().stop()

    def look_at_readiness(self) -> Deferred[str]:
        """Whether a linearizable read is answered: so not by a member that is cut off, or has yet to catch up."""
        if not self.serving:
            return succeed(f"{NOT_SERVING}, or waits for the others of its cell")
        if self._is_cut_off:
            return succeed(self._missing())
        return self._readiness.look()

    def _missing(self) -> str:
        """What a linearizable read waits for."""
        if not self.serving:
            return NOT_SERVING
        if not self.cell.has_leader:
            return f"no leader is known, so that reads and writes wait: {self._voters_in_reach()}"
        if not self.cell.reaches_leader:
            return f"member {self.cell.leader} leads and cannot be reached, so that reads and writes wait"
        return (
            f"member {self.cell.leader} leads, but no read was confirmed within {int(PATIENCE_S * 1000)} ms: either it "
            "lost its majority, or this member has not caught up; znoded members tells more"
        )

    def _voters_in_reach(self) -> str:
        members = self.cell.members()
        if self.config.member not in {status.number for status in members}:
            return f"this is member {self.config.member}, which was removed from the cell and can be ended"
        voters = [status for status in members if status.phase == "voter"]
        reached = ", ".join(f"member {status.number}" for status in voters if status.connected)
        return f"{len(voters) // 2 + 1} of {len(voters)} voters are needed, and within reach is {reached or 'none'}"

    # ---- its part in the cell

    @property
    def ends_sessions(self) -> bool:
        return self.cell.leads

    def propose_ends(self, commands: list[bytes]) -> bool:
        """Wherever their clients are: a linearizable read finds its session ended, and is not answered."""
        return self.cell.propose_ahead_of_reads(commands)

    @property
    def turns_clients_away(self) -> bool:
        return not self.serving or self._is_cut_off

    @property
    def is_read_only(self) -> bool:
        return self.serving and self._is_cut_off

    def heard(self, live: LiveSession) -> None:
        super().heard(live)
        if self.cell.reaches_leader and not self.cell.leads:
            self._tell_heard([live.session_id])  # before it confirms the read of whoever was heard
        elif not self.cell.leads:
            self._heard_unconnected.add(live.session_id)

    def connection_lost(self, connection: ClientConnection) -> None:
        """A client's connection is gone: what was heard by it since the last report is still to be told."""
        live = connection.live
        if live is not None and live.heard_ms >= self._last_report_ms and not self.cell.leads:
            self._heard_unconnected.add(live.session_id)
        super().connection_lost(connection)

    def cell_counters(self) -> Iterable[tuple[str, int | str]]:
        """Under ZooKeeper's names; who is synced, only the leader knows (protocol facts 1.7)."""
        voters = len(self.roster.voters)
        peer_state = PEER_STATES[self.cell.mode] if self.cell.reaches_leader else LOOKING
        if not self.cell.leads:
            return (("peer_state", peer_state), ("quorum_size", voters))
        others = [status for status in self.cell.members() if not status.leads]
        synced = [status for status in others if not status.blocks]
        followers = sum(status.phase == "voter" for status in synced)
        last, least, most = self._proposal_bytes
        return (
            ("peer_state", peer_state),
            ("leader_uptime", self.monotonic_ms() - self._leads_since_ms),
            ("last_proposal_size", last),
            ("min_proposal_size", least),
            ("max_proposal_size", most),
            ("quorum_size", voters),
            ("learners", sum(status.connected for status in others)),
            ("synced_followers", followers),
            ("synced_non_voting_followers", 0),
            ("synced_observers", len(synced) - followers),
            ("pending_syncs", sum(status.connected for status in others) - len(synced)),
        )

    def cell_lines(self) -> str:
        raft_id = self.roster.raft_id(self.config.member)
        if raft_id is None:
            return ""
        text = Reader(self.tree.nodes[reconfig.CONFIG]).buffer() or b""
        election_ticks = ceil(self.config.cell.election_ms / self.config.tick_ms)
        return conf_lines(self.roster.members[raft_id], text, election_ticks)

    def _report_sessions(self) -> None:
        """Tell the leader whose clients were heard since the last time; and see if there still is one."""
        now_ms = self.monotonic_ms()
        self._look_for_leader(now_ms)
        if self.cell.leads:
            self._last_report_ms = now_ms  # what is heard by a leader is no news for the next one, which grants all
            return
        if not self.cell.reaches_leader:
            return
        since_ms, self._last_report_ms = self._last_report_ms, now_ms
        heard = [
            connection.session_id
            for connection in self.admission
            if connection.live is not None and connection.live.heard_ms >= since_ms
        ]
        self._tell_heard([*heard, *self._heard_unconnected])
        self._heard_unconnected.clear()

    def _report(self, connections: Iterable[ClientConnection]) -> None:
        """Tell the leader, if that is another member, that the clients of these connections were heard."""
        if self.cell.leads or not self.cell.reaches_leader:
            return
        self._tell_heard([connection.session_id for connection in connections if connection.live is not None])

    def _tell_heard(self, heard: list[int]) -> None:
        if heard:
            self.cell.tell_leader(struct.pack(f">{len(heard)}q", *heard))

    def told(self, member: int, payload: bytes) -> None:
        """CellMachine: another member heard these sessions."""
        now_ms = self.monotonic_ms()
        count = len(payload) // 8
        for session_id in struct.unpack(f">{count}q", payload[: 8 * count]):
            live = self.sessions.get(session_id)
            if live is not None:
                live.heard_ms = now_ms

    def _look_for_leader(self, now_ms: int) -> None:
        """A leader that is heard and cannot be told anything is as good as none: no write or read gets anywhere."""
        if self.cell.reaches_leader:
            self._leaderless_since_ms = None
            if self._is_cut_off:
                self._is_cut_off = False
                self._abort_clients(lambda connection: connection.is_read_only)
            return
        if self._leaderless_since_ms is None:
            self._leaderless_since_ms = now_ms
        patience_ms = max(LEADERLESS_TICKS * self.config.tick_ms, LEADERLESS_ELECTIONS * self.config.cell.election_ms)
        if not self._is_cut_off and now_ms - self._leaderless_since_ms > patience_ms:
            self._is_cut_off = True
            log.warn("No leader was reached for {ms} ms: clients are sent away", ms=now_ms - self._leaderless_since_ms)
            self._abort_clients(lambda connection: not connection.is_serializable or connection.state is State.OPENING)
        if self._is_cut_off:
            # Those that are content with what is known here stay; but not for longer than their sessions do elsewhere.
            silent_ms = now_ms - self._leaderless_since_ms
            self._abort_clients(lambda each: each.live is not None and silent_ms > each.live.timeout_ms)

    def _abort_clients(self, are_meant: Callable[[ClientConnection], bool]) -> None:
        for connection in self.admission:
            if not connection.has_ended and are_meant(connection):
                connection.abort()

    # ---- CellMachine

    @property
    def roster(self) -> Roster:
        return self._roster.current

    def found(self, roster: Roster) -> None:
        self._roster.found(roster)

    def lead(self, term: int) -> list[bytes]:
        self._leads_since_ms = self.monotonic_ms()
        self._proposal_bytes = NO_PROPOSAL
        self.sessions.grant_all(self._leads_since_ms)
        self._heard_unconnected.clear()  # the grant covers them, and to a later leader they would be news
        return [self.new_term(), roster_command(self.tree, wall_ms())]

    def leader_changed(self, leader: int, term: int) -> None:
        if leader:
            log.info("Member {leader} leads in term {term}", leader=leader, term=term)
            self._look_for_leader(self.monotonic_ms())

    def leader_reached(self) -> None:
        """CellMachine: whoever was heard lately is told with the next report."""
        self._last_report_ms = min(self._last_report_ms, self.monotonic_ms() - TELL_AGAIN_MS)

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        super().apply_batch(first_index, commands)
        if self.cell.leads:
            _, least, most = self._proposal_bytes
            smallest = min(map(len, commands))
            least = smallest if least < 0 else min(least, smallest)
            self._proposal_bytes = (len(commands[-1]), least, max(most, max(map(len, commands))))

    @staticmethod
    def read_ahead(read_table: ReadTable) -> ReadTable:
        """CellMachine: of all tables that of the znodes is the one that takes long."""
        nodes: Any = dict(read_table(NODES))  # which a dict is made of faster than of its items
        return lambda table: nodes if table == NODES else read_table(table)

    def load(self, read_table: ReadTable) -> None:
        """CellMachine: a checkpoint, at the start or from the leader. Clients have to ask anew for what they watch."""
        self._abort_clients(lambda _connection: True)
        self.handshake.forget_all()
        super().load(read_table)
        self.sessions.forget_all()
        self.track_sessions()

    def plan_change(self, command: bytes) -> ConfChange | bytes:
        return plan_change(self.tree, self.cell.configuration, command)

    def refused_change(self, command: bytes, refusal: Refusal) -> bytes:
        return refused_change(command, refusal)

    def original(self, command: bytes) -> bytes:
        return reconfig.original(command)


def _make_replica(config: Config, reactor: Any, _storage: Any, member: Any, on_fatal: Any) -> CellReplica:
    return CellReplica(reactor, cell_options(config), member, on_fatal, partial(make_peers, config, reactor))
