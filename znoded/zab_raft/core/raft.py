"""The Raft machine: terms, elections, and what a follower does; `leadership` is what a leader does.

Every message passes the term rule first (Raft paper 5.1), whatever it is: there is no other way to this state.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from znoded.zab_raft.core.conf_change import ConfChange, changed
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken, Reason, Refused
from znoded.zab_raft.core.leadership import Leadership
from znoded.zab_raft.core.log import RaftLog
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.quorum import VoteResult
from znoded.zab_raft.core.read_queue import ForwardedReads, Read
from znoded.zab_raft.core.stored import StoredLog
from znoded.zab_raft.core.tally import Tally

REQUEST_IDS = 1 << 62


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Raft:
    """One member's protocol state. `random_below(n)` gives a number from 0 to before n.

    What it wants to say is in two outboxes: `messages` may leave at once, `messages_after_sync` only when everything
    that is in memory here now is durable.
    """

    def __init__(
        self,
        member: int,
        stored: StoredLog,
        hard_state: HardState,
        options: Options,
        random_below: Callable[[int], int],
    ) -> None:
        self.id = member
        self.options = options
        self.log = RaftLog(stored, hard_state.commit)
        self.configuration = stored.snapshot.configuration
        self.term = hard_state.term
        self.vote = hard_state.vote
        self._durable_term = hard_state.term
        self.leader = NOBODY
        self.leadership: Leadership | None = None
        self.tally: Tally | None = None
        self.messages: list[Message] = []
        self.messages_after_sync: list[Message] = []
        self.confirmed_reads: list[tuple[int, int]] = []
        self.failed_reads: list[int] = []
        self._random_below = random_below
        self._forwarded = ForwardedReads(random_below(REQUEST_IDS), options.reads)
        self._election_elapsed = 0
        self._request_elapsed = 0
        self._draw_timeout()
        self.configuration.check()
        self.log.check_changes()
        if self.log.last_term > self.term:
            raise InvariantBroken(f"the log ends in term {self.log.last_term}, the member is in term {self.term}")
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            AppendRequest: self._on_append,
            AppendResponse: self._on_append_response,
            Heartbeat: self._on_heartbeat,
            HeartbeatResponse: self._on_heartbeat_response,
            VoteRequest: self._on_vote_request,
            VoteResponse: self._on_vote_response,
            InstallSnapshot: self._on_snapshot,
            TimeoutNow: self._on_timeout_now,
            ReadRequest: self._on_read_request,
            ReadResponse: self._on_read_response,
        }

    @property
    def role(self) -> Role:
        if self.leadership:
            return Role.LEADER
        if self.tally:
            return Role.PRE_CANDIDATE if self.tally.pre_vote else Role.CANDIDATE
        return Role.FOLLOWER

    # Inputs

    def step(self, message: Message) -> None:
        """A message came."""
        if message.to != self.id or self.configuration.has_left(message.sender):
            return
        if message.term > self.term:
            if not self._enter_term_of(message):
                return
        elif message.term < self.term:
            self._answer_stale(message)
            return
        self._handlers[type(message)](message)

    def tick(self) -> None:
        """A tick of time passed."""
        if self.leadership:
            self.leadership.tick()
            return
        self._election_elapsed += 1
        if self._election_elapsed >= self._election_timeout:
            self.campaign()
            if not self.tally:
                self.become_follower(self.term, NOBODY)  # who may not stand has to know, too, that it has no leader
        self._repeat_read_request()

    def campaign(self) -> None:
        """Ask whether this member would be elected, and if so, stand. Nothing happens if it may not."""
        if self._may_campaign():
            self._begin_pre_vote()

    def forget_leader(self) -> None:
        """The leader is known to be gone: others' votes are no longer refused for its sake."""
        if not self.leadership and not self.tally:
            self.become_follower(self.term, NOBODY)

    def read_index(self, context: int) -> None:
        """Have a read confirmed, here or by the leader. Raises Refused."""
        if self.leadership:
            self.leadership.read_index(Read(self.id, context))
        elif self.leader == NOBODY:
            raise Refused(Reason.NO_LEADER)
        elif self._forwarded.full:
            raise Refused(Reason.READS_FULL)
        else:
            self._forwarded.add(context)
            self._request_reads()

    def stored(self, term: int, last_index: int, last_term: int) -> None:
        """A write became durable that was the newest when `term` was, and the log ended so.

        In a newer term the log may have been replaced, twice, by one that looks the same: then the write says nothing.
        """
        self._durable_term = term
        if term != self.term:
            return
        self.log.stable_to(last_index, last_term)
        if self.leadership:
            self.leadership.stored()
        elif self.tally and not self.tally.pre_vote:
            self._election_elapsed = 0  # the others are asked only now
            self._count_vote(self.id, granted=True)

    def apply_change(self, entry: Entry) -> None:
        """A committed change of the configuration takes effect."""
        try:
            self._reconfigure(changed(self.configuration, ConfChange.decode(entry.data)))
        except (Refused, ValueError) as error:
            raise InvariantBroken(f"the change at {entry.index} cannot be made here: {error}") from error

    def applied(self) -> None:
        """More is applied."""
        if self.leadership:
            self.leadership.leave_joint()

    # For the leadership

    def send(self, message: Message) -> None:
        self.messages.append(message)

    def read_confirmed(self, context: int, index: int) -> None:
        self.confirmed_reads.append((context, index))

    def refuse_read(self, request: ReadRequest) -> None:
        self.send(ReadResponse(self.id, request.sender, self.term, request.request, 0, refused=True))

    def become_follower(self, term: int, leader: int) -> None:
        """Follow a leader, or none for now. Reads that were not confirmed fail."""
        if term < self.term:
            raise InvariantBroken(f"from term {self.term} back to {term}")
        if term > self.term:
            self.term = term
            self.vote = NOBODY
        self._fail_reads()
        self.leadership = None
        self.tally = None
        self.leader = leader
        self._election_elapsed = 0
        self._draw_timeout()

    # The term rule

    def _enter_term_of(self, message: Message) -> bool:
        """Go to the later term of a message. False if it means nothing to a member that hears from its leader."""
        if type(message) is VoteRequest:
            if not message.transfer and self._hears_leader:
                return False
            if message.pre_vote:
                return True
        elif type(message) is VoteResponse and message.pre_vote and message.granted:
            return True
        from_leader = isinstance(message, AppendRequest | Heartbeat | InstallSnapshot)
        self.become_follower(message.term, message.sender if from_leader else NOBODY)
        return True

    def _answer_stale(self, message: Message) -> None:
        """Tell of the newer term who would otherwise never hear of it, as pre-votes are silent and leases refuse."""
        if isinstance(message, AppendRequest | Heartbeat | InstallSnapshot):
            self.messages_after_sync.append(AppendResponse(self.id, message.sender, self.term, 0))
        elif type(message) is VoteRequest and message.pre_vote:
            self._answer_vote(message, granted=False)

    @property
    def _hears_leader(self) -> bool:
        return self.leader != NOBODY and (
            self.leadership is not None or self._election_elapsed < self.options.election_ticks
        )

    # Elections

    def _may_campaign(self) -> bool:
        """Only a voter does, and none that knows of a change it did not make yet: it would count the wrong votes.

        Nor one whose disk does not take its term: it would go from term to term without asking anybody, and hear
        nothing of those who lead meanwhile.
        """
        if self.leadership or self.id not in self.configuration.deciders or self.log.unstable.snapshot:
            return False
        if self._durable_term != self.term:
            return False
        return not any(self.log.changes(self.log.applied + 1, self.log.committed + 1))

    def _begin_pre_vote(self) -> None:
        self.become_follower(self.term, NOBODY)
        self.tally = Tally(pre_vote=True)
        self._ask_for_votes(self.messages, self.term + 1, transfer=False)
        self._count_vote(self.id, granted=True)

    def _begin_election(self, transfer: bool) -> None:
        """Stand for the next term. The own vote counts, and the others are asked, once it is durable.

        Were they asked sooner, a crash could take back the vote, or entries that the request promised, and their
        answers would still be on the way.
        """
        self.become_follower(self.term + 1, NOBODY)
        self.vote = self.id
        self.tally = Tally(pre_vote=False)
        self._ask_for_votes(self.messages_after_sync, self.term, transfer)

    def _ask_for_votes(self, outbox: list[Message], term: int, transfer: bool) -> None:
        log = self.log
        pre_vote = term > self.term
        last, committed = (log.last_index, log.last_term), (log.committed, self._committed_term)
        outbox += [
            VoteRequest(self.id, voter, term, pre_vote, transfer, *last, *committed)
            for voter in sorted(self.configuration.deciders - {self.id})
        ]

    def _on_vote_request(self, request: VoteRequest) -> None:
        # Learners answer too: one that was promoted may not know it yet, and the quorum may need it.
        self._learn_commit(request.commit_index, request.commit_term)
        free = self.vote == request.sender or (self.vote == NOBODY and self.leader == NOBODY)
        ahead = request.pre_vote and request.term > self.term
        granted = (free or ahead) and self.log.is_up_to_date(request.last_index, request.last_term)
        if granted and not request.pre_vote:
            self.vote = request.sender
            self._election_elapsed = 0
        self._answer_vote(request, granted)

    def _answer_vote(self, request: VoteRequest, granted: bool) -> None:
        self.messages_after_sync.append(
            VoteResponse(
                self.id,
                request.sender,
                request.term if granted else self.term,
                request.pre_vote,
                granted,
                self.log.committed,
                self._committed_term,
            )
        )

    def _on_vote_response(self, response: VoteResponse) -> None:
        self._learn_commit(response.commit_index, response.commit_term)
        if self.tally is None or response.pre_vote != self.tally.pre_vote:
            return
        if response.granted and response.term != self.term + response.pre_vote:
            return
        self._count_vote(response.sender, response.granted)

    def _count_vote(self, voter: int, granted: bool) -> None:
        if self.tally is None:
            return
        self.tally.record(voter, granted)
        result = self.tally.result(self.configuration)
        if result is VoteResult.LOST:
            self.become_follower(self.term, NOBODY)
        elif result is VoteResult.WON and self.tally.pre_vote:
            self._begin_election(transfer=False)
        elif result is VoteResult.WON:
            self._become_leader()

    def _become_leader(self) -> None:
        self.become_follower(self.term, self.id)
        self.leadership = Leadership(self)
        self.leadership.begin()

    def _learn_commit(self, index: int, term: int) -> None:
        """Another member's last committed entry is committed here too, if it is here.

        Without this, members of either half of a joint change could each lack what the other one knows, and elect
        nobody. Who learns of a change of the configuration does not go on with a campaign under the old one.
        """
        if self.leadership or index <= self.log.committed or not self.log.matches(index, term):
            return
        first_new = self.log.committed + 1
        self.log.commit_to(index)
        if self.tally and any(self.log.changes(first_new, index + 1)):
            self.become_follower(self.term, NOBODY)

    @property
    def _committed_term(self) -> int:
        return self.log.term(self.log.committed) or 0

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        if message.sender == self.leader and self._may_campaign():
            self._begin_election(transfer=True)

    # A follower

    def _follow(self, leader: int) -> None:
        """A message of the term's leader came."""
        if self.leadership or self.leader not in (NOBODY, leader):
            raise InvariantBroken(f"{self.leader} and {leader} both lead term {self.term}")
        if self.leader == NOBODY:
            self.become_follower(self.term, leader)
        self._election_elapsed = 0

    def _on_append(self, request: AppendRequest) -> None:
        self._follow(request.sender)
        if not self.configuration.members:
            self._answer_append(request, request.previous_index, rejected=True, blank=True)
            return
        if request.previous_index < self.log.committed:
            self._answer_append(request, self.log.committed)
            return
        last_index = self.log.try_append(request.previous_index, request.previous_term, request.entries, request.commit)
        if last_index is None:
            self._reject(request)
            return
        if any(entry.kind is EntryKind.CONFIGURATION for entry in request.entries):
            self.log.check_changes()
        self._answer_append(request, last_index)

    def _reject(self, request: AppendRequest) -> None:
        hint_index, hint_term = self.log.last_possible_match(
            min(request.previous_index, self.log.last_index), request.previous_term
        )
        self._answer_append(request, request.previous_index, rejected=True, hint_index=hint_index, hint_term=hint_term)

    def _answer_append(self, request: AppendRequest | InstallSnapshot, index: int, **rejection: Any) -> None:
        self.messages_after_sync.append(AppendResponse(self.id, request.sender, self.term, index, **rejection))

    def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._follow(heartbeat.sender)
        self.log.commit_to(heartbeat.commit)
        self.send(HeartbeatResponse(self.id, heartbeat.sender, self.term, heartbeat.position))

    def _on_snapshot(self, message: InstallSnapshot) -> None:
        self._follow(message.sender)
        snapshot = message.snapshot
        if snapshot.index > self.log.committed and self.id in snapshot.configuration.members:
            self._restore(snapshot)
        self._answer_append(message, self.log.committed)

    def _restore(self, snapshot: Snapshot) -> None:
        if self.configuration.members and self.log.matches(snapshot.index, snapshot.term):
            self.log.commit_to(snapshot.index)  # it brings nothing new, and the entries behind it stay
            return
        self.log.restore(snapshot)
        self._reconfigure(snapshot.configuration)

    def _reconfigure(self, configuration: Configuration) -> None:
        configuration.check()
        self.configuration = configuration
        if self.leadership:
            self.leadership.reconfigured()

    # What only a leader takes

    def _on_append_response(self, response: AppendResponse) -> None:
        if self.leadership:
            self.leadership.on_append_response(response)

    def _on_heartbeat_response(self, response: HeartbeatResponse) -> None:
        if self.leadership:
            self.leadership.on_heartbeat_response(response)

    def _on_read_request(self, request: ReadRequest) -> None:
        if self.leadership:
            self.leadership.on_read_request(request)
        else:
            self.refuse_read(request)

    # Reads that the leader is asked for

    def _request_reads(self) -> None:
        if self._forwarded.begin_request():
            self._request_elapsed = 0
            self._send_read_request()

    def _send_read_request(self) -> None:
        self.send(ReadRequest(self.id, self.leader, self.term, self._forwarded.request))

    def _repeat_read_request(self) -> None:
        """Ask again what was perhaps lost. That an earlier answer may come as well does no harm: it is as good."""
        self._request_elapsed += 1
        if self._forwarded.in_flight and self._request_elapsed >= self.options.heartbeat_ticks:
            self._request_elapsed = 0
            self._send_read_request()

    def _on_read_response(self, response: ReadResponse) -> None:
        if response.sender != self.leader:
            return
        contexts = self._forwarded.answered(response.request)
        if response.refused:
            self.failed_reads += contexts
        else:
            self.confirmed_reads += [(context, response.index) for context in contexts]
        self._request_reads()

    def _fail_reads(self) -> None:
        self.failed_reads += self._forwarded.take_all()
        if self.leadership:
            waiting = self.leadership.reads_waiting()
            self.failed_reads += [read.context for read in waiting if read.origin == self.id]

    def _draw_timeout(self) -> None:
        self._election_timeout = self.options.election_ticks + self._random_below(self.options.election_ticks)
