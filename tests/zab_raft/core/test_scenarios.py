"""Scenarios in plain text: commands, and below each what it made happen.

A line that begins with `>` is a command, one with `#` a remark; the lines below a command are what it led to, until the
next empty line. To write what happens now into the files (and then to read the difference):

    ZNODED_WRITE_SCENARIOS=1 python -m pytest tests/zab_raft/core/test_scenarios.py

Messages are named by FROM->TO and kind, any of which may be left out; a star stands for any member.

    cell 1,2,3 [learners 4] [NAME=NUMBER ..]      begin; the names are those of the options
    member ID term=T log=T,T,.. [commit=N]        start a member again, with that log stored
    join ID                                       a member without a configuration starts
    campaign ID | forget ID | tick ID [N]         the member campaigns, forgets its leader, has N ticks
    propose ID WORD .. | read ID NUMBER           the member is asked for this
    transfer ID TARGET | change ID STEP ..        steps: +5 a voter, ~5 a learner, -5 removed, joint, leave
    deliver [MESSAGES] | settle [MESSAGES]        deliver what is under way; and what it leads to
    drop [MESSAGES]                               lose it
    hold ID | sync ID [N]                         writes are not durable by themselves; the first N are now
    stall ID | apply ID                           entries are not applied by themselves; all are now
    restart ID | compact ID [FIRST]               a new process; a checkpoint, keeping entries from FIRST
    unreachable ID PEER | lost ID PEER            the member is told so of a peer; lost is its snapshot
    show ID | log ID                              what it is, what it has
    quiet COMMAND                                 without what it made happen
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zab_raft.core.cell import Cell, Filter
from znoded.zab_raft.core.conf_change import LEAVE_JOINT, ChangeKind, ConfChange, Step, StepKind
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import CoreFailure, Refused
from znoded.zab_raft.core.messages import NOBODY, Entry, EntryKind, HardState, Message
from znoded.zab_raft.core.node import Node
from znoded.zab_raft.core.options import Options

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
STEP_KINDS = {"+": StepKind.ADD_VOTER, "~": StepKind.ADD_LEARNER, "-": StepKind.REMOVE}


class Scenario:
    """Runs commands on a cell."""

    def __init__(self) -> None:
        self.cell = Cell()

    def run(self, line: str) -> list[str]:
        """Run a command; what it made happen."""
        name, *words = line.split()
        if name == "quiet":
            self.run(" ".join(words))
            return []
        self.cell.notes.clear()
        try:
            getattr(self, f"do_{name}")(*words)
        except Refused as refused:
            self.cell.note(f"refused: {refused}")
        except CoreFailure as failure:
            self.cell.note(f"stops: {type(failure).__name__}: {failure}")
        return list(self.cell.notes)

    def do_cell(self, voters: str, *words: str) -> None:
        learners = words[words.index("learners") + 1] if "learners" in words else ""
        options = dict(word.split("=") for word in words if "=" in word)
        self.cell = Cell(ids(voters), ids(learners), Options(**{name: int(value) for name, value in options.items()}))

    def do_member(self, member: str, *words: str) -> None:
        given = dict(word.split("=") for word in words)
        terms = ids(given.get("log", ""))
        entries = [Entry(index, term, EntryKind.COMMAND, b"x%d" % index) for index, term in enumerate(terms, 1)]
        hard_state = HardState(int(given["term"]), NOBODY, int(given.get("commit", 0)))
        self.cell.add(int(member), Configuration.of(self.cell.members), entries, hard_state)

    def do_join(self, member: str) -> None:
        self.cell.add(int(member))

    def do_campaign(self, member: str) -> None:
        self._call(member, lambda node: node.campaign())

    def do_forget(self, member: str) -> None:
        self._call(member, lambda node: node.forget_leader())

    def do_tick(self, member: str, count: str = "1") -> None:
        self.cell.tick(int(member), int(count))

    def do_propose(self, member: str, *commands: str) -> None:
        self._call(member, lambda node: node.propose([command.encode() for command in commands]))

    def do_read(self, member: str, context: str) -> None:
        self._call(member, lambda node: node.read_index(int(context)))

    def do_transfer(self, member: str, target: str) -> None:
        self._call(member, lambda node: node.transfer_leader(int(target)))

    def do_change(self, member: str, *words: str) -> None:
        steps = tuple(Step(STEP_KINDS[word[0]], int(word[1:])) for word in words if word[0] in STEP_KINDS)
        change = ConfChange.of(*steps)
        if "joint" in words:
            change = ConfChange(ChangeKind.ENTER_JOINT, steps)
        elif "leave" in words:
            change = LEAVE_JOINT
        self._call(member, lambda node: node.propose_change(change))

    def do_deliver(self, *which: str) -> None:
        self.cell.deliver(messages(which))

    def do_settle(self, *which: str) -> None:
        self.cell.settle(messages(which))

    def do_drop(self, *which: str) -> None:
        self.cell.take(messages(which))

    def do_hold(self, member: str) -> None:
        self.cell.members[int(member)].syncs = False

    def do_sync(self, member: str, count: str | None = None) -> None:
        self.cell.members[int(member)].sync(None if count is None else int(count))
        self.cell.members[int(member)].pump()

    def do_stall(self, member: str) -> None:
        self.cell.members[int(member)].applies = False

    def do_apply(self, member: str) -> None:
        self.cell.members[int(member)].apply()
        self.cell.members[int(member)].pump()

    def do_restart(self, member: str) -> None:
        self.cell.members[int(member)].restart()

    def do_compact(self, member: str, keep_from: str | None = None) -> None:
        self.cell.members[int(member)].compact(None if keep_from is None else int(keep_from))

    def do_unreachable(self, member: str, peer: str) -> None:
        self._call(member, lambda node: node.unreachable(int(peer)))

    def do_lost(self, member: str, peer: str) -> None:
        self._call(member, lambda node: node.snapshot_finished(int(peer), False))

    def do_show(self, member: str) -> None:
        node = self.cell[int(member)]
        self.cell.note(
            f"{member} {node.role.value} term={node.term} committed={node.committed_index} applied={node.applied_index}"
            f" stable={node.raft.log.stable_index} last={node.last_index} {node.configuration}"
        )
        for peer, progress in sorted(node.progress.items()):
            if peer != node.id:
                self.cell.note(f"  {peer}: {progress}")

    def do_log(self, member: str) -> None:
        log = self.cell.members[int(member)].log()
        self.cell.note(" ".join(f"{index}/{term}" for index, term, _ in log))

    def _call(self, member: str, action: Callable[[Node], object]) -> None:
        self.cell.do(int(member), action)


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def messages(words: tuple[str, ...]) -> Filter:
    kinds = {word for word in words if "->" not in word}
    links = [tuple(word.split("->")) for word in words if "->" in word]

    def wanted(message: Message) -> bool:
        link = str(message.sender), str(message.to)
        on_link = any(all(end in ("*", actual) for end, actual in zip(pair, link, strict=True)) for pair in links)
        return (not kinds or type(message).__name__ in kinds) and (not links or on_link)

    return wanted


def played(text: str) -> str:
    """The same scenario with what happens."""
    scenario = Scenario()
    lines: list[str] = []
    below_a_command = False
    for line in text.splitlines():
        if line.startswith(">"):
            lines += [line, *scenario.run(line[1:])]
            below_a_command = True
        elif not line or line.startswith("#"):
            lines.append(line)
            below_a_command = False
        elif not below_a_command:
            raise ValueError(f"{line!r} is below no command")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    expected = path.read_text()
    actual = played(expected)
    if os.environ.get("ZNODED_WRITE_SCENARIOS"):
        path.write_text(actual)
    else:
        assert actual.splitlines() == expected.splitlines()


def test_there_are_scenarios() -> None:
    assert len(FILES) > 20
