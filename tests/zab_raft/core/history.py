"""What the simulator remembers, and the invariants that hold over it.

The members know nothing of this. It is looked at after every event, so that a violation is met at the event that made
it. The ids are those of the requirements: S safety, D durability, M membership, R reads, L liveness.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from znoded.zab_raft.core import quorum
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Heartbeat,
    Message,
    VoteRequest,
    VoteResponse,
)
from znoded.zab_raft.core.node import Role

if TYPE_CHECKING:
    from tests.zab_raft.core.simulated_member import Member
    from tests.zab_raft.core.simulation import Simulation


class Violation(AssertionError):
    """An invariant does not hold."""


def require(condition: bool, invariant: str, detail: object = "") -> None:
    if not condition:
        raise Violation(f"{invariant}: {detail}")


class Seen:
    """What was last seen of one member's present process."""

    def __init__(self, term: int, commit: int, applied: int) -> None:
        self.term = term
        self.commit = commit
        self.applied = applied
        self.role = Role.FOLLOWER
        self.log: dict[int, int] = {}
        self.last_index = 0
        self.match: dict[int, int] = {}


class History:
    """Everything that ever happened in one run."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.leaders: dict[int, tuple[int, int]] = {}
        self.entries: dict[tuple[int, int], tuple[Entry, int | None]] = {}
        self.committed: dict[int, tuple[int, int]] = {}
        """Index -> the term of the entry there, and the term of the first member that knew it committed."""
        self.applied: dict[int, Entry] = {}
        self.digests: dict[int, bytes] = {0: b""}
        self.votes: dict[tuple[int, int], int] = {}
        self.configurations: dict[int, Configuration] = {}
        self.visible = 0
        """The greatest index that a client has seen the effect of."""
        self.seen: dict[int, Seen] = {}

    # Events

    def started(self, member: Member) -> None:
        node, disk = member.alive, member.disk
        require(node.term == disk.hard_state.term, "S7", "a restart changes the term")
        self.seen[member.id] = Seen(node.term, node.committed_index, node.applied_index)
        self.seen[member.id].last_index = node.last_index

    def leaves(self, member: Member, message: Message) -> None:
        """A message goes out: what it promises is durable."""
        disk = member.disk
        stored = disk.hard_state
        if type(message) is VoteRequest and not message.pre_vote:
            self._votes(member, message.term, member.id)
            require(stored.term >= message.term, "D1", "the own vote is not durable")
            require(disk.last_index >= message.last_index, "D1", "asked with entries that are not durable")
        elif type(message) is VoteResponse and message.granted and not message.pre_vote:
            self._votes(member, message.term, message.to)
            require(stored[:2] == (message.term, message.to) or stored.term > message.term, "D1", message)
        elif type(message) is AppendResponse:
            require(stored.term >= message.term, "D2", message)
            if not message.rejected and stored.term == message.term:
                require(disk.last_index >= message.index, "D2", message)
        elif type(message) is Heartbeat:
            receiver = self._simulation.members[message.to].disk
            # A later term may have taken uncommitted entries, but this is a commit.
            require(receiver.last_index >= message.commit, "S12", message)
        elif type(message) is AppendRequest:
            require(message.commit <= member.alive.committed_index, "S12", message)

    def stepped(self, member: Member, message: Message, commit_before: int) -> None:
        if type(message) is AppendRequest and member.alive.committed_index > commit_before:
            last_index = message.previous_index + len(message.entries)
            require(member.alive.committed_index <= last_index, "S12", "committed beyond the message's last entry")

    def stored(self, member: Member) -> None:
        """A write became durable."""
        disk = member.disk
        require(disk.hard_state.commit <= disk.last_index, "D5", f"{disk.hard_state} ends at {disk.last_index}")
        terms = [disk.snapshot.term] + [entry.term for entry in disk.entries]
        require(terms == sorted(terms), "D5", f"terms go back: {terms}")
        open_changes = [
            entry.index
            for entry in disk.entries
            if entry.kind is EntryKind.CONFIGURATION and entry.index > disk.hard_state.commit
        ]
        require(len(open_changes) <= 1, "M6", open_changes)

    def apply(self, member: Member, entry: Entry, digest: bytes) -> bytes:
        """The member's machine takes an entry; its new digest."""
        require(self.applied.setdefault(entry.index, entry) == entry, "S5", entry)
        require(member.disk.term(entry.index) == entry.term, "D9", f"{entry} is not durable")
        require(self.digests[entry.index - 1] == digest, "S5", "another state came before")
        after = hashlib.blake2b(digest + repr(entry).encode(), digest_size=8).digest()
        require(self.digests.setdefault(entry.index, after) == after, "S5", entry)
        return after

    def client_saw(self, index: int) -> None:
        self.visible = max(self.visible, index)

    def read_served(self, floor: int, index: int) -> None:
        require(index >= floor, "R1", f"a read sees {index}, before it began {floor} had been seen")
        self.client_saw(index)

    # What holds of a member after every event

    def check(self, member: Member) -> None:
        node = member.node
        if node is None:
            return
        seen = self.seen[member.id]
        log, term = node.raft.log, node.term
        require(term >= seen.term, "S7", "the term goes back")
        require(node.committed_index >= seen.commit, "S7", "the commit goes back")
        require(node.applied_index >= seen.applied, "S7", "the applied index goes back")
        require(node.applied_index <= node.committed_index <= node.last_index, "S7", "applied, committed, last")
        self._check_log(member, seen)
        for index in range(max(seen.commit + 1, log.first_index), node.committed_index + 1):
            entry_term = log.term(index)
            require(entry_term is not None, "S8", index)
            known = self.committed.setdefault(index, (entry_term or 0, term))
            require(known[0] == entry_term, "S4", f"{index} is committed of term {known[0]} and {entry_term}")
        self._check_configuration(member)
        if node.role is not seen.role or term > seen.term:
            self._check_role(member, seen)
        if node.role is Role.LEADER:
            self._check_leader(member, seen)
        seen.term, seen.commit, seen.applied = term, node.committed_index, node.applied_index
        seen.role = node.role

    def _check_log(self, member: Member, seen: Seen) -> None:
        node = member.alive
        log, unstable = node.raft.log, node.raft.log.unstable
        previous_term = log.term(unstable.offset - 1)
        for entry in unstable.entries:
            known = self.entries.setdefault((entry.index, entry.term), (entry, previous_term))
            require(known[0] == entry, "S3", entry)
            require(None in (previous_term, known[1]) or known[1] == previous_term, "S3", entry)
            if entry.index <= node.committed_index and entry.index in self.committed:
                require(self.committed[entry.index][0] == entry.term, "S8", entry)
            previous_term = entry.term
        last_index = node.last_index
        if last_index < seen.last_index and unstable.snapshot is None:
            require(node.role is not Role.LEADER or node.term > seen.term, "S2", "a leader's own log is cut")
            before = seen.log.get(last_index)
            require(before is None or before != log.term(last_index), "S8", "matching entries were cut")
        if node.role is Role.LEADER and seen.role is Role.LEADER and node.term == seen.term:
            for index in range(max(log.first_index, last_index - 8), last_index + 1):
                require(seen.log.get(index, log.term(index)) == log.term(index), "S2", index)
        seen.last_index = last_index
        first = max(log.first_index, last_index - 40)
        seen.log = {index: log.term(index) or 0 for index in range(first, last_index + 1)}

    def _check_configuration(self, member: Member) -> None:
        node = member.alive
        node.configuration.check()
        if node.applied_index and node.raft.log.unstable.snapshot is None:
            known = self.configurations.setdefault(node.applied_index, node.configuration)
            require(known == node.configuration, "M12", f"at {node.applied_index}: {known} and {node.configuration}")

    def _check_role(self, member: Member, seen: Seen) -> None:
        node = member.alive
        if node.role is Role.FOLLOWER:
            return
        require(member.id in node.configuration.deciders, "M13", f"{node.role} and no voter")
        if node.role is Role.LEADER:
            before = self.leaders.setdefault(node.term, (member.id, member.process))
            require(before == (member.id, member.process), "S1", f"{before} and {member.id} lead term {node.term}")
            log = node.raft.log
            for index, (entry_term, by_term) in self.committed.items():
                if by_term < node.term and index >= log.first_index:
                    require(log.term(index) == entry_term, "S4", f"the leader of {node.term} lacks {index}")
        elif seen.role is Role.FOLLOWER:
            log = node.raft.log
            open_changes = list(log.changes(log.applied + 1, log.committed + 1))
            require(not open_changes and log.unstable.snapshot is None, "M5", open_changes)

    def _check_leader(self, member: Member, seen: Seen) -> None:
        node = member.alive
        if seen.role is not Role.LEADER or seen.term != node.term:
            seen.match = {}
        require(member.id in node.configuration.deciders, "M7", "a removed leader leads")
        for peer, progress in node.progress.items():
            require(progress.match_index >= seen.match.get(peer, 0), "S7", f"the match of {peer} goes back")
            require(progress.match_index < progress.next_index, "S7", f"{peer}: {progress}")
            disk = self._simulation.members[peer].disk
            if disk.hard_state.term <= node.term:
                require(progress.match_index <= disk.last_index, "S11", f"{peer}: {progress}")
            seen.match[peer] = progress.match_index
        if node.committed_index > seen.commit and seen.role is Role.LEADER and seen.term == node.term:
            require(node.raft.log.term(node.committed_index) == node.term, "S6", node.committed_index)
            self._check_quorum(member, node.committed_index)

    def _check_quorum(self, member: Member, index: int) -> None:
        """S11: what was just committed is durable at a quorum of each half."""
        term = member.alive.raft.log.term(index)
        has = {
            peer.id: peer.disk.snapshot.index >= index or peer.disk.term(index) == term
            for peer in self._simulation.members.values()
        }
        configuration = member.alive.configuration
        for half in (configuration.voters, configuration.outgoing):
            require(quorum.vote(half, has) is quorum.VoteResult.WON, "S11", f"{index} at {configuration}")

    def _votes(self, member: Member, term: int, candidate: int) -> None:
        before = self.votes.setdefault((member.id, term), candidate)
        require(before == candidate, "S13", f"member {member.id} votes for {before} and {candidate} in {term}")
