"""What a leader does, for as long as it leads. All of it is forgotten with the term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from znoded.zab_raft.core import quorum
from znoded.zab_raft.core.conf_change import LEAVE_JOINT, ConfChange, changed
from znoded.zab_raft.core.errors import InvariantBroken, Reason, Refused
from znoded.zab_raft.core.inflights import Inflights
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    size_bytes,
)
from znoded.zab_raft.core.progress import Mode, Progress
from znoded.zab_raft.core.quorum import VoteResult
from znoded.zab_raft.core.read_queue import Read, ReadQueue

if TYPE_CHECKING:
    from znoded.zab_raft.core.raft import Raft

UNCOUNTED = 1 << 62


class Leadership:
    """One member's leadership of one term."""

    def __init__(self, raft: Raft) -> None:
        self.transferee = NOBODY
        self.checkpoint_wanted = False
        self.progress: dict[int, Progress] = {}
        self._raft = raft
        self._log = raft.log
        self._options = raft.options
        self._reads = ReadQueue(raft.options.reads)
        self._read_floor = 0
        self._tail = Inflights(UNCOUNTED, raft.options.tail_bytes)
        self._pending_change = raft.log.last_index
        self._commit_is_news = False
        self._heartbeat_elapsed = 0
        self._check_elapsed = 0
        self._transfer_elapsed = 0

    def begin(self) -> None:
        """Take office: nothing of an earlier term counts as committed before an entry of this one is."""
        self._sync_members(recently_active=False)
        self._append(EntryKind.TERM_START, [b""])
        self._replicate()

    # What the caller asks for

    def propose(self, commands: Sequence[bytes]) -> int:
        """Append commands; the index of the first. Raises Refused."""
        self._check_proposable()
        if self._tail.full:
            raise Refused(Reason.TAIL_FULL, f"{self._tail.bytes} bytes")
        index = self._append(EntryKind.COMMAND, commands)
        self._replicate()
        return index

    def propose_change(self, change: ConfChange) -> int:
        """Append a change of the configuration; its index. Raises Refused."""
        self._check_proposable()
        if not self._committed_in_term:
            raise Refused(Reason.NO_COMMIT_IN_TERM)
        if self._pending_change > self._log.applied:
            raise Refused(Reason.CHANGE_PENDING, f"at {self._pending_change}, applied is {self._log.applied}")
        changed(self._raft.configuration, change)
        index = self._append(EntryKind.CONFIGURATION, [change.encode()])
        self._pending_change = index
        self._replicate()
        return index

    def read_index(self, read: Read) -> None:
        """Have a read confirmed. Raises Refused."""
        if self._reads.full:
            raise Refused(Reason.READS_FULL)
        self._reads.add(read)
        self._begin_reads()

    def read_behind(self, index: int) -> None:
        """Have the reads that are not begun yet see this entry, which may have to be committed first."""
        self._read_floor = index

    def transfer(self, target: int) -> None:
        """Hand over to a voter, if it catches up within an election timeout. Raises Refused."""
        if target == self._raft.id or target not in self._raft.configuration.voters:
            raise Refused(Reason.BAD_TARGET, f"{target} is no other voter of {self._raft.configuration}")
        if target == self.transferee:
            return
        self.transferee = target
        self._transfer_elapsed = 0
        if not self._finish_transfer(target):
            self._send_append(target, even_if_empty=True)

    def snapshot_progressed(self, member: int) -> None:
        """A part of a snapshot was taken there: it lives, and the snapshot gets its time anew."""
        progress = self.progress.get(member)
        if progress is not None:
            progress.recently_active = True
            progress.snapshot_ticks = 0

    def snapshot_finished(self, member: int, delivered: bool) -> None:
        """The snapshot under way arrived, or did not."""
        progress = self.progress.get(member)
        if progress is None or progress.mode is not Mode.SNAPSHOT:
            return
        if delivered:
            progress.recently_active = True
            progress.become_probe()
        else:
            progress.snapshot_failed()
        progress.paused = True  # until it answers: a heartbeat's answer is enough

    def unreachable(self, member: int) -> None:
        """What was sent last may be lost."""
        progress = self.progress.get(member)
        if progress is not None and progress.mode is Mode.REPLICATE:
            progress.become_probe()

    def reads_waiting(self) -> list[Read]:
        return self._reads.waiting

    # Time

    def tick(self) -> None:
        self._check_elapsed += 1
        if self._check_elapsed >= self._options.election_ticks:
            self._check_elapsed = 0
            if not self._quorum_is_active():
                self._raft.become_follower(self._raft.term, NOBODY)
                return
        self._check_snapshots()
        self._check_transfer()
        self.leave_joint()
        self._heartbeat_elapsed += 1
        if self._heartbeat_elapsed >= self._options.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            for progress in self.progress.values():
                progress.may_retry = True
            self._send_heartbeats()

    # What the other members answer

    def on_append_response(self, response: AppendResponse) -> None:
        progress = self.progress.get(response.sender)
        if progress is None:
            return
        progress.recently_active = True
        if response.rejected:
            self._on_rejection(progress, response)
        else:
            self._on_acknowledgement(progress, response)

    def on_heartbeat_response(self, response: HeartbeatResponse) -> None:
        progress = self.progress.get(response.sender)
        if progress is None:
            return
        progress.recently_active = True
        progress.heartbeat_answered()
        if (
            progress.mode is Mode.PROBE
            or progress.match_index < self._log.last_index
            or progress.lacks_commit(self._log.committed)
        ):
            self._send_append(response.sender, even_if_empty=True)
        self._reads.acknowledge(response.sender, response.position)
        self._confirm_reads()

    def on_read_request(self, request: ReadRequest) -> None:
        try:
            self.read_index(Read(request.sender, request.request))
        except Refused:
            self._raft.refuse_read(request)

    # What happens here

    def stored(self) -> None:
        """More of the log became durable here."""
        progress = self.progress.get(self._raft.id)
        if progress is not None and progress.acknowledged(self._log.stable_index):
            self._advance_commit()

    def reconfigured(self) -> None:
        """The configuration changed."""
        configuration = self._raft.configuration
        if self._raft.id not in configuration.deciders:
            self._raft.become_follower(self._raft.term, NOBODY)
            return
        self._sync_members(recently_active=True)
        if self.transferee not in configuration.voters:
            self.transferee = NOBODY
        if not self._advance_commit():
            self._probe()
        self._confirm_reads()

    def tell_commit(self) -> None:
        """Send an append, though it be empty, to those that can learn from it how far the log is committed.

        Called once for all that came in meanwhile: most often the commit travels with the next entries.
        """
        if self._commit_is_news:
            self._commit_is_news = False
            for member, progress in self.progress.items():
                if progress.lacks_commit(self._log.committed):
                    self._send_append(member, even_if_empty=True)

    def leave_joint(self) -> None:
        """Leave a joint configuration that is to be left by itself, once it is applied; one try at a time."""
        if not self._raft.configuration.auto_leave or self.transferee or not self._committed_in_term:
            return
        if self._pending_change <= self._log.applied:
            self.propose_change(LEAVE_JOINT)

    # Commit

    @property
    def _committed_in_term(self) -> bool:
        return self._log.matches(self._log.committed, self._raft.term)

    def _advance_commit(self) -> bool:
        """Commit what a quorum stores, if it is of this term; what is before it comes along (Raft paper 5.4.2)."""
        configuration = self._raft.configuration
        stored = {member: progress.match_index for member, progress in self.progress.items()}
        index = quorum.joint_committed(configuration.voters, configuration.outgoing, stored)
        if index <= self._log.committed or not self._log.matches(index, self._raft.term):
            return False
        self._log.commit_to(index)
        self._tail.free_to(index)
        self._commit_is_news = True
        self._confirm_reads()
        self._begin_reads()
        return True

    # Replication

    def _append(self, kind: EntryKind, data: Sequence[bytes]) -> int:
        first = self._log.last_index + 1
        term = self._raft.term
        entries = [Entry(index, term, kind, item) for index, item in enumerate(data, first)]
        self._log.append(entries)
        self._tail.add(entries[-1].index, sum(map(len, data)))
        return first

    def _replicate(self) -> None:
        """Send what is new to all that can take it."""
        for member in self.progress:
            self._fill_window(member)

    def _probe(self) -> None:
        """Send an append to those whose match is not known, as to a new member."""
        for member, progress in self.progress.items():
            if progress.mode is Mode.PROBE:
                self._send_append(member, even_if_empty=True)

    def _fill_window(self, member: int) -> None:
        while self._send_append(member, even_if_empty=False):
            pass

    def _send_append(self, member: int, even_if_empty: bool) -> bool:
        """Send the next entries that fit, or a snapshot if they are gone. False if nothing was sent."""
        progress = self.progress[member]
        if member == self._raft.id or not progress.may_send:
            return False
        previous_index = progress.next_index - 1
        previous_term = self._log.term(previous_index)
        if previous_term is None:
            return self._send_snapshot(member, progress)
        entries: list[Entry] = []
        if not progress.window.full:
            entries = self._log.slice(progress.next_index, self._log.last_index + 1, self._options.message_bytes)
        if not entries and not even_if_empty:
            return False
        self._raft.send(
            AppendRequest(
                self._raft.id,
                member,
                self._raft.term,
                previous_index,
                previous_term,
                tuple(entries),
                self._log.committed,
            )
        )
        progress.sent(previous_index + len(entries), size_bytes(entries), self._log.committed)
        return True

    def _send_snapshot(self, member: int, progress: Progress) -> bool:
        """Send the newest snapshot, unless nobody listens, or the member is not in it yet."""
        snapshot = self._log.stored.snapshot
        if not progress.recently_active:
            return False
        if member not in snapshot.configuration.members or snapshot.index <= progress.match_index:
            self.checkpoint_wanted = True
            return False
        progress.become_snapshot(snapshot.index)
        self._raft.send(InstallSnapshot(self._raft.id, member, self._raft.term, snapshot))
        return True

    def _on_rejection(self, progress: Progress, response: AppendResponse) -> None:
        if response.blank:
            if progress.mode is not Mode.SNAPSHOT:
                self._send_snapshot(response.sender, progress)
            return
        hint_index = response.hint_index
        if response.hint_term:
            hint_index, _ = self._log.last_possible_match(hint_index, response.hint_term)
        if progress.rejected(response.index, hint_index):
            if progress.mode is Mode.REPLICATE:
                progress.become_probe()
            self._send_append(response.sender, even_if_empty=True)

    def _on_acknowledgement(self, progress: Progress, response: AppendResponse) -> None:
        if response.index > self._log.last_index:
            raise InvariantBroken(f"member {response.sender} stores up to {response.index}, beyond this leader's log")
        news = progress.acknowledged(response.index)
        if not news and not (progress.mode is Mode.PROBE and response.index == progress.match_index):
            return
        if progress.mode is Mode.PROBE:
            progress.become_replicate()
        elif progress.mode is Mode.SNAPSHOT:
            # Not only when it reached the snapshot's index: whatever connects its log to ours is enough.
            if progress.match_index + 1 >= self._log.first_index:
                progress.become_replicate()
        else:
            progress.window.free_to(response.index)
        progress.check()
        self._advance_commit()
        self._commit_is_news = True
        self._fill_window(response.sender)
        self._finish_transfer(response.sender)

    def _sync_members(self, recently_active: bool) -> None:
        """Keep a progress for each member. A new one counts as active, so that adding it does not cost the quorum."""
        members = self._raft.configuration.members
        for gone in self.progress.keys() - members:
            del self.progress[gone]
        for new in sorted(members - self.progress.keys()):
            window = Inflights(self._options.window_messages, self._options.window_bytes)
            self.progress[new] = Progress(self._log.last_index + 1, window, recently_active)
            if new == self._raft.id:
                self.progress[new].acknowledged(self._log.stable_index)

    def _check_snapshots(self) -> None:
        for progress in self.progress.values():
            if progress.mode is Mode.SNAPSHOT:
                progress.snapshot_ticks += 1
                if progress.snapshot_ticks >= self._options.snapshot_ticks:
                    progress.snapshot_failed()

    def _check_transfer(self) -> None:
        self._transfer_elapsed += 1
        if self._transfer_elapsed >= self._options.election_ticks:
            self.transferee = NOBODY

    # Heartbeats and reads

    def _send_heartbeats(self) -> None:
        for member, progress in self.progress.items():
            if member != self._raft.id:
                commit = min(progress.match_index, self._log.committed)
                self._raft.send(Heartbeat(self._raft.id, member, self._raft.term, commit, self._reads.position))

    def _quorum_is_active(self) -> bool:
        active = {member: progress.recently_active for member, progress in self.progress.items()}
        active[self._raft.id] = True
        for progress in self.progress.values():
            progress.recently_active = False
        configuration = self._raft.configuration
        return quorum.joint_vote(configuration.voters, configuration.outgoing, active) is VoteResult.WON

    def _begin_reads(self) -> None:
        """Begin a round, if an entry of this term is committed: until then older commits may not be known here."""
        index = max(self._log.committed, self._read_floor)
        if self._committed_in_term and self._reads.begin_round(index):
            self._send_heartbeats()
            self._confirm_reads()

    def _confirm_reads(self) -> None:
        if self._reads.index > self._log.committed:
            return
        configuration = self._raft.configuration
        index, reads = self._reads.confirmed(configuration.voters, configuration.outgoing, self._raft.id)
        for read in reads:
            if read.origin == self._raft.id:
                self._raft.read_confirmed(read.context, index)
            else:
                self._raft.send(
                    ReadResponse(self._raft.id, read.origin, self._raft.term, read.context, index, refused=False)
                )
        if reads:
            self._begin_reads()

    # Proposals and handing over

    def _check_proposable(self) -> None:
        if self.transferee:
            raise Refused(Reason.TRANSFERRING, f"to {self.transferee}")

    def _finish_transfer(self, member: int) -> bool:
        """Tell the transferee to campaign, if it is this one and has everything."""
        if member != self.transferee or self.progress[member].match_index != self._log.last_index:
            return False
        self._raft.send(TimeoutNow(self._raft.id, member, self._raft.term))
        return True
