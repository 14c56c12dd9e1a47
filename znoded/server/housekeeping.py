"""What a member does by the clock: ends silent sessions, sweeps containers and TTL nodes, closes mute connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from znoded.server.wall_clock import wall_ms
from znoded.tree.lock_delay import Delays
from znoded.tree.proposals import expire_session, sweep_node
from znoded.tree.sweep import sweep_candidates

if TYPE_CHECKING:
    from znoded.server.member import Member

#: Sessions ended at one look, at most: thousands that fall silent together must not stand before everybody's writes.
EXPIRIES_PER_LOOK = 2_000
#: The same for nodes swept per round.
SWEEPS_PER_ROUND = 10_000
LOBBY_CHECK_S = 1.0
#: Who seems to be silent may have been heard already, and not served, by a process that was busy or stopped until now.
HEARING_S = 0.1
#: Between two looks at the sessions, however short a tick is: a hearing is over before the next one begins, and a
#: process that is a little late does not count as paused.
LOOK_MS_LEAST = 200
#: Between two looks at what lock-delays keep: somebody waits for each lock.
DELAYS_LOOK_S = 0.2

log = Logger()


class Housekeeping:
    """The timers of one member. Each decision becomes a command; the log decides when it takes effect."""

    def __init__(self, member: Member, reactor: Any) -> None:
        self._member = member
        self._reactor = reactor
        self._last_look_ms = 0
        self._ending: Any = None
        self._delays = Delays()
        self._look_ms = max(member.config.tick_ms, LOOK_MS_LEAST)
        tree = member.config.tree
        self._timers = (
            (LoopingCall(self._end_silent_sessions), self._look_ms / 1000),
            (LoopingCall(self._end_delays), DELAYS_LOOK_S),
            (LoopingCall(self._sweep), tree.sweep_interval_ms / 1000),
            (LoopingCall(self._close_silent_connections), LOBBY_CHECK_S),
        )
        for timer, _ in self._timers:
            timer.clock = reactor

    def start(self) -> None:
        """Start all timers."""
        self._last_look_ms = self._member.monotonic_ms()
        for timer, interval_s in self._timers:
            timer.start(interval_s, now=False)

    def stop(self) -> None:
        """Stop those that run."""
        for timer, _ in self._timers:
            if timer.running:
                timer.stop()
        if self._ending is not None and self._ending.active():
            self._ending.cancel()

    def _end_silent_sessions(self) -> None:
        member = self._member
        now_ms = member.monotonic_ms()
        gap_ms = now_ms - self._last_look_ms
        self._last_look_ms = now_ms
        if gap_ms > 2 * self._look_ms:
            # The process was paused, so it could not hear its clients: nobody's silence counts.
            log.warn("the clock jumped by {gap_ms} ms; every session gets its full timeout again", gap_ms=gap_ms)
            member.sessions.grant_all(now_ms)
        elif member.ends_sessions:
            self._ending = self._reactor.callLater(HEARING_S, self._after_hearing, now_ms)
        else:
            member.sessions.pass_over(now_ms)

    def _after_hearing(self, now_ms: int) -> None:
        """End the sessions that were silent at `now_ms` and were not heard since."""
        member = self._member
        late_ms = member.monotonic_ms() - now_ms - HEARING_S * 1000
        if not member.ends_sessions or late_ms > self._look_ms:
            return  # in the latter case it was paused meanwhile, and has not heard them yet: the next look sees
        time_ms, term = wall_ms(), member.replica.term
        ended = member.sessions.due(now_ms, EXPIRIES_PER_LOOK)
        commands = [expire_session(time_ms, live.session_id, live.attach, term) for live in ended]
        if commands and not member.propose_ends(commands):
            member.sessions.reopen(ended)
            return
        for live in ended:
            if live.connection is not None:
                live.connection.stop_reading()  # an answer would let its client count on another timeout

    def _end_delays(self) -> None:
        """Every member looks at what a lock-delay keeps, so that whoever leads next knows since when."""
        member = self._member
        over = self._delays.over(member.tree, member.monotonic_ms(), SWEEPS_PER_ROUND)
        if member.ends_sessions:
            self._propose_sweeps(over)

    def _sweep(self) -> None:
        member = self._member
        if member.ends_sessions:
            self._propose_sweeps(sweep_candidates(member.tree, wall_ms(), SWEEPS_PER_ROUND))

    def _propose_sweeps(self, candidates: list[tuple[bytes, int, int]]) -> None:
        """Have these nodes deleted, as many as the log takes for now."""
        time_ms = wall_ms()
        for path, mzxid, pzxid in candidates:
            if not self._member.propose(sweep_node(time_ms, path, mzxid, pzxid)):
                return

    def _close_silent_connections(self) -> None:
        member = self._member
        member.complaints.end_period()
        for connection in member.admission.overstayed(member.monotonic_ms()):
            if connection.has_ended:
                connection.abort()  # it was told to go, and does not take what was left to tell
            else:
                limit_ms = member.limits.handshake_timeout_ms
                member.cut_off(
                    connection, f"did not ask for a session within {limit_ms} ms (limits.handshake_timeout_ms)"
                )
