"""Which guards the core has, and what it would be without each: what `mutants` takes out."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """In a file of the core, `guard` becomes `without`. The guard is there exactly once."""

    name: str
    file: str
    guard: str
    without: str


MUTANTS = [
    Mutant(
        "append-response-of-any-term-counts",
        "raft.py",
        "        elif message.term < self.term:\n            self._answer_stale(message)\n            return\n",
        "        elif message.term < self.term and not isinstance(message, AppendResponse):\n"
        "            self._answer_stale(message)\n            return\n",
    ),
    Mutant(
        "vote-response-of-any-term-counts",
        "raft.py",
        "        elif message.term < self.term:\n            self._answer_stale(message)\n            return\n",
        "        elif message.term < self.term and not isinstance(message, VoteResponse):\n"
        "            self._answer_stale(message)\n            return\n",
    ),
    Mutant(
        "heartbeat-response-of-any-term-counts",
        "raft.py",
        "        elif message.term < self.term:\n            self._answer_stale(message)\n            return\n",
        "        elif message.term < self.term and not isinstance(message, HeartbeatResponse):\n"
        "            self._answer_stale(message)\n            return\n",
    ),
    Mutant(
        "granted-pre-vote-of-any-term-counts",
        "raft.py",
        "        if response.granted and response.term != self.term + response.pre_vote:\n            return\n",
        "",
    ),
    Mutant("last-vote-counts", "tally.py", "self._votes.setdefault(voter, granted)", "self._votes[voter] = granted"),
    Mutant(
        "pre-vote-answers-count-as-votes",
        "raft.py",
        "if self.tally is None or response.pre_vote != self.tally.pre_vote:",
        "if self.tally is None:",
    ),
    Mutant(
        "matching-entries-are-cut",
        "log.py",
        "            if not self.matches(entry.index, entry.term):\n",
        "            if entry.index > self.committed:\n",
    ),
    Mutant(
        "committed-entries-may-be-replaced",
        "log.py",
        "        if entries[0].index <= self.committed:\n",
        "        if False:\n",
    ),
    Mutant(
        "entries-of-older-terms-are-committed-by-counting",
        "leadership.py",
        "        if index <= self._log.committed or not self._log.matches(index, self._raft.term):\n",
        "        if index <= self._log.committed:\n",
    ),
    Mutant(
        "leader-counts-itself-before-it-stores",
        "leadership.py",
        "        self._tail.add(entries[-1].index, sum(map(len, data)))\n",
        "        self._tail.add(entries[-1].index, sum(map(len, data)))\n"
        "        self.progress[self._raft.id].acknowledged(entries[-1].index)\n",
    ),
    Mutant(
        "append-response-leaves-before-the-sync",
        "raft.py",
        "self.messages_after_sync.append(AppendResponse(self.id, request.sender, self.term, index, **rejection))",
        "self.messages.append(AppendResponse(self.id, request.sender, self.term, index, **rejection))",
    ),
    Mutant(
        "vote-response-leaves-before-the-sync",
        "raft.py",
        "        self.messages_after_sync.append(\n            VoteResponse(\n",
        "        self.messages.append(\n            VoteResponse(\n",
    ),
    Mutant(
        "vote-request-leaves-before-the-sync",
        "raft.py",
        "self._ask_for_votes(self.messages_after_sync, self.term, transfer)",
        "self._ask_for_votes(self.messages, self.term, transfer)",
    ),
    Mutant(
        "vote-request-leaves-when-its-sender-stands-no-more",
        "node.py",
        "if not isinstance(message, VoteRequest) or (raft.role, raft.term) == (Role.CANDIDATE, message.term)",
        "if True",
    ),
    Mutant(
        "own-vote-counts-before-the-sync",
        "raft.py",
        "        self._ask_for_votes(self.messages_after_sync, self.term, transfer)\n",
        "        self._ask_for_votes(self.messages_after_sync, self.term, transfer)\n"
        "        self._count_vote(self.id, granted=True)\n",
    ),
    Mutant(
        "follower-commits-beyond-the-message",
        "log.py",
        "self.commit_to(min(commit, last_index))",
        "self.commit_to(min(commit, self.last_index))",
    ),
    Mutant(
        "heartbeat-commit-is-not-capped-by-the-match",
        "leadership.py",
        "commit = min(progress.match_index, self._log.committed)",
        "commit = self._log.committed",
    ),
    Mutant(
        "no-append-after-a-heartbeat-for-the-commit",
        "leadership.py",
        "            or progress.lacks_commit(self._log.committed)\n",
        "",
    ),
    Mutant(
        "commit-is-never-told",
        "leadership.py",
        "        self._tail.free_to(index)\n        self._commit_is_news = True\n",
        "        self._tail.free_to(index)\n",
    ),
    Mutant(
        "stale-write-marks-the-log-stable",
        "raft.py",
        "        if term != self.term:\n            return\n        self.log.stable_to",
        "        self.log.stable_to",
    ),
    Mutant(
        "campaign-with-unapplied-changes",
        "raft.py",
        "        return not any(self.log.changes(self.log.applied + 1, self.log.committed + 1))\n",
        "        return True\n",
    ),
    Mutant(
        "campaign-with-a-snapshot-under-way",
        "raft.py",
        "        if self.leadership or self.id not in self.configuration.deciders or self.log.unstable.snapshot:\n",
        "        if self.leadership or self.id not in self.configuration.deciders:\n",
    ),
    Mutant(
        "candidate-learns-of-a-change-and-goes-on",
        "raft.py",
        "        if self.tally and any(self.log.changes(first_new, index + 1)):\n",
        "        if False:\n",
    ),
    Mutant(
        "change-before-a-commit-in-the-own-term",
        "leadership.py",
        "        if not self._committed_in_term:\n            raise Refused(Reason.NO_COMMIT_IN_TERM)\n",
        "",
    ),
    Mutant(
        "second-change-before-the-first-is-applied",
        "leadership.py",
        "        if self._pending_change > self._log.applied:\n",
        "        if False:\n",
    ),
    Mutant("two-open-changes-are-not-noticed", "log.py", "        if len(changes) > 1:\n", "        if False:\n"),
    Mutant(
        "union-majority-commits",
        "leadership.py",
        "quorum.joint_committed(configuration.voters, configuration.outgoing, stored)",
        "quorum.committed(configuration.deciders, stored)",
    ),
    Mutant(
        "union-majority-elects",
        "tally.py",
        "quorum.joint_vote(configuration.voters, configuration.outgoing, self._votes)",
        "quorum.vote(configuration.deciders, self._votes)",
    ),
    Mutant(
        "union-majority-is-active",
        "leadership.py",
        "quorum.joint_vote(configuration.voters, configuration.outgoing, active)",
        "quorum.vote(configuration.deciders, active)",
    ),
    Mutant(
        "union-majority-confirms-reads",
        "read_queue.py",
        "quorum.joint_committed(voters, outgoing, self._acknowledged)",
        "quorum.committed({*voters, *outgoing}, self._acknowledged)",
    ),
    Mutant(
        "learner-counts-for-commit",
        "leadership.py",
        "quorum.joint_committed(configuration.voters, configuration.outgoing, stored)",
        "quorum.joint_committed(configuration.voters | configuration.learners, configuration.outgoing, stored)",
    ),
    Mutant(
        "learner-counts-for-reads",
        "leadership.py",
        "self._reads.confirmed(configuration.voters, configuration.outgoing, self._raft.id)",
        "self._reads.confirmed(configuration.voters | configuration.learners, configuration.outgoing, self._raft.id)",
    ),
    Mutant(
        "learner-counts-as-active",
        "leadership.py",
        "quorum.joint_vote(configuration.voters, configuration.outgoing, active)",
        "quorum.joint_vote(configuration.members, configuration.outgoing, active)",
    ),
    Mutant(
        "learner-campaigns",
        "raft.py",
        "self.id not in self.configuration.deciders or",
        "self.id not in self.configuration.members or",
    ),
    Mutant(
        "learner-is-handed-the-leadership",
        "leadership.py",
        "if target == self._raft.id or target not in self._raft.configuration.voters:",
        "if target == self._raft.id or target not in self._raft.configuration.members:",
    ),
    Mutant(
        "read-before-the-first-commit-of-the-term",
        "leadership.py",
        "if self._committed_in_term and self._reads.begin_round(index):",
        "if self._reads.begin_round(index):",
    ),
    Mutant(
        "read-round-is-known-by-the-callers-number",
        "read_queue.py",
        "        self.position += 1\n        return True\n\n    def acknowledge",
        "        self.position = self._in_flight[0].context\n        return True\n\n    def acknowledge",
    ),
    Mutant(
        "round-covers-reads-that-came-after-its-heartbeats",
        "read_queue.py",
        "        reads, self._in_flight = self._in_flight, []\n        return self.index, reads\n",
        "        reads, self._in_flight = self._in_flight + self._collecting, []\n        self._collecting = []\n"
        "        return self.index, reads\n",
    ),
    Mutant(
        "late-answer-serves-a-newer-request",
        "read_queue.py",
        "        if request != self.request:\n            return []\n        contexts",
        "        contexts",
    ),
    Mutant(
        "reads-do-not-wait-for-what-they-have-to-see",
        "leadership.py",
        "        index = max(self._log.committed, self._read_floor)\n",
        "        index = self._log.committed\n",
    ),
    Mutant(
        "reads-are-confirmed-before-what-they-have-to-see-is-committed",
        "leadership.py",
        "        if self._reads.index > self._log.committed:\n            return\n",
        "",
    ),
    Mutant(
        "deposed-leader-forgets-its-reads",
        "raft.py",
        "            self.failed_reads += [read.context for read in waiting if read.origin == self.id]\n",
        "            del waiting\n",
    ),
    Mutant(
        "read-is-served-before-its-index-is-applied",
        "node.py",
        "        reads = [context for context, index in self._reads if index <= applied]\n"
        "        self._reads = [(context, index) for context, index in self._reads if index > applied]\n",
        "        reads = [context for context, index in self._reads if index <= applied or True]\n"
        "        self._reads = []\n",
    ),
    Mutant(
        "votes-while-the-leader-is-heard",
        "raft.py",
        "            if not message.transfer and self._hears_leader:\n                return False\n",
        "",
    ),
    Mutant(
        "transfer-does-not-override-the-lease",
        "raft.py",
        "            if not message.transfer and self._hears_leader:\n",
        "            if self._hears_leader:\n",
    ),
    Mutant(
        "pre-vote-of-a-lower-term-is-not-answered",
        "raft.py",
        "        elif type(message) is VoteRequest and message.pre_vote:\n"
        "            self._answer_vote(message, granted=False)\n",
        "",
    ),
    Mutant(
        "append-of-a-lower-term-is-not-answered",
        "raft.py",
        "            self.messages_after_sync.append(AppendResponse(self.id, message.sender, self.term, 0))\n",
        "            pass\n",
    ),
    Mutant(
        "who-cannot-store-its-vote-goes-from-term-to-term",
        "raft.py",
        "        if self._durable_term != self.term:\n",
        "        if False:\n",
    ),
    Mutant(
        "a-candidate-waits-from-before-it-asked",
        "raft.py",
        "            self._election_elapsed = 0  # the others are asked only now\n",
        "",
    ),
    Mutant(
        "no-pre-vote",
        "raft.py",
        "        if self._may_campaign():\n            self._begin_pre_vote()\n",
        "        if self._may_campaign():\n            self._begin_election(transfer=False)\n",
    ),
    Mutant(
        "pre-vote-raises-the-term",
        "raft.py",
        "            if message.pre_vote:\n                return True\n        elif",
        "        elif",
    ),
    Mutant(
        "two-votes-in-a-term",
        "raft.py",
        "        free = self.vote == request.sender or (self.vote == NOBODY and self.leader == NOBODY)\n",
        "        free = self.leader == NOBODY\n",
    ),
    Mutant(
        "vote-for-a-shorter-log",
        "raft.py",
        "granted = (free or ahead) and self.log.is_up_to_date(request.last_index, request.last_term)",
        "granted = free or ahead",
    ),
    Mutant(
        "leader-without-a-quorum-goes-on",
        "leadership.py",
        "            if not self._quorum_is_active():\n",
        "            if not self._quorum_is_active() and False:\n",
    ),
    Mutant(
        "proposals-during-a-transfer",
        "leadership.py",
        '        if self.transferee:\n            raise Refused(Reason.TRANSFERRING, f"to {self.transferee}")\n',
        "        return\n",
    ),
    Mutant(
        "transfer-never-ends",
        "leadership.py",
        "        if self._transfer_elapsed >= self._options.election_ticks:\n",
        "        if False:\n",
    ),
    Mutant(
        "timeout-now-from-anybody",
        "raft.py",
        "        if message.sender == self.leader and self._may_campaign():\n",
        "        if self._may_campaign():\n",
    ),
    Mutant(
        "snapshot-behind-the-commit-is-installed",
        "raft.py",
        "        if snapshot.index > self.log.committed and self.id in snapshot.configuration.members:\n",
        "        if self.id in snapshot.configuration.members:\n",
    ),
    Mutant(
        "snapshot-cuts-a-matching-tail",
        "raft.py",
        "        if self.configuration.members and self.log.matches(snapshot.index, snapshot.term):\n",
        "        if False:\n",
    ),
    Mutant(
        "snapshot-without-the-receiver-is-installed",
        "raft.py",
        "        if snapshot.index > self.log.committed and self.id in snapshot.configuration.members:\n",
        "        if snapshot.index > self.log.committed:\n",
    ),
    Mutant(
        "snapshot-is-waited-for-without-end",
        "leadership.py",
        "                if progress.snapshot_ticks >= self._options.snapshot_ticks:\n",
        "                if False:\n",
    ),
    Mutant(
        "snapshot-progress-is-no-sign-of-life",
        "leadership.py",
        "            progress.recently_active = True\n            progress.snapshot_ticks = 0\n",
        "            progress.snapshot_ticks = 0\n",
    ),
    Mutant(
        "snapshot-ends-only-at-its-own-index",
        "leadership.py",
        "            if progress.match_index + 1 >= self._log.first_index:\n",
        "            if progress.match_index == progress.pending_snapshot:\n",
    ),
    Mutant(
        "removed-leader-goes-on",
        "leadership.py",
        "        if self._raft.id not in configuration.deciders:\n",
        "        if False:\n",
    ),
    Mutant(
        "removed-member-is-heard",
        "raft.py",
        "        if message.to != self.id or self.configuration.has_left(message.sender):\n",
        "        if message.to != self.id:\n",
    ),
    Mutant(
        "id-is-used-again",
        "conf_change.py",
        "    if member not in before.members and member <= before.highest_id:\n",
        "    if False:\n",
    ),
    Mutant(
        "two-voters-change-at-once",
        "conf_change.py",
        "    if len(before.voters ^ after.voters) > 1:\n",
        "    if False:\n",
    ),
    Mutant(
        "demoted-voter-is-not-staged",
        "conf_change.py",
        "    stays_voter_for_now = member in before.outgoing\n",
        "    stays_voter_for_now = False\n",
    ),
    Mutant(
        "no-voter-is-left",
        "conf_change.py",
        '    if not configuration.voters:\n        raise _refused("no voter would be left")\n',
        "",
    ),
    Mutant(
        "joint-configuration-is-never-left",
        "leadership.py",
        "        if self._pending_change <= self._log.applied:\n            self.propose_change(LEAVE_JOINT)\n",
        "        return\n",
    ),
    Mutant(
        "joint-configuration-is-left-again-and-again",
        "leadership.py",
        "        self._pending_change = index\n        self._replicate()\n",
        "        self._replicate()\n",
    ),
    Mutant(
        "votes-tell-nothing-of-the-commit",
        "raft.py",
        "        self._learn_commit(request.commit_index, request.commit_term)\n",
        "",
    ),
    Mutant(
        "rejections-tell-nothing-of-the-commit",
        "raft.py",
        "        self._learn_commit(response.commit_index, response.commit_term)\n",
        "",
    ),
    Mutant(
        "commit-is-learned-without-its-term",
        "raft.py",
        "        if self.leadership or index <= self.log.committed or not self.log.matches(index, term):\n",
        "        if self.leadership or index <= self.log.committed or index > self.log.last_index:\n",
    ),
    Mutant(
        "entries-are-applied-before-they-are-durable",
        "log.py",
        "        last = min(self.committed, self.stable_index)\n",
        "        last = self.committed\n",
    ),
    Mutant(
        "match-goes-back",
        "progress.py",
        "        if index <= self.match_index:\n            return False\n        self.match_index = index\n",
        "        self.match_index = index\n",
    ),
    Mutant(
        "stale-rejection-counts",
        "progress.py",
        "            if index <= self.match_index:\n                return False\n",
        "",
    ),
    Mutant(
        "lost-tail-is-passed-over",
        "log.py",
        "        if index > self.last_index:\n            raise LostTail(",
        "        if index > self.last_index:\n            return\n            raise LostTail(",
    ),
    Mutant(
        "tail-has-no-limit",
        "leadership.py",
        "        if self._tail.full:\n",
        "        if False:\n",
    ),
    Mutant(
        "applying-has-no-limit",
        "node.py",
        "        if self._applying.full:\n            return []\n",
        "",
    ),
    Mutant(
        "window-has-no-limit",
        "inflights.py",
        "        return len(self._batches) >= self._most_batches or self.bytes >= self._most_bytes\n",
        "        return False\n",
    ),
    Mutant(
        "blank-member-takes-entries",
        "raft.py",
        "        if not self.configuration.members:\n            self._answer_append(",
        "        if False:\n            self._answer_append(",
    ),
    Mutant(
        "new-member-costs-the-quorum",
        "leadership.py",
        "        self._sync_members(recently_active=True)\n",
        "        self._sync_members(recently_active=False)\n",
    ),
    Mutant(
        "commit-is-stored-ahead-of-the-log",
        "node.py",
        "HardState(raft.term, raft.vote, min(raft.log.committed, log_end[0]))",
        "HardState(raft.term, raft.vote, raft.log.committed)",
    ),
    Mutant(
        "writes-are-reported-out-of-order",
        "node.py",
        "        if ready.number != self._numbers_stored + 1:\n",
        "        if False:\n",
    ),
    Mutant(
        "a-failed-member-goes-on",
        "node.py",
        "            self._failure = failure\n            raise\n",
        "            raise\n",
    ),
]
