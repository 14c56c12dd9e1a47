"""`znoded recover`: what one member has when most of its cell is lost, and a new cell out of it if that is wanted.

It works on the data directory of a member that is stopped. What it does there is in `zab_raft.cell.survivor`.
"""

from __future__ import annotations

import os
import pwd
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from datetime import UTC, datetime

from znoded import __version__
from znoded.still_there import Sign, look_for
from znoded.tree.commands import HEAD, HEAD_BYTES
from znoded.tree.history_segment import LOOSE_TABLES
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import new_roster
from znoded.tree.tree import Tree
from znoded.zab_raft.cell.renewals import Renewal
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Member
from znoded.zab_raft.cell.survivor import By, Survivor
from znoded.zab_raft.checkpoint import ReadTable
from znoded.zab_raft.errors import DirectoryError, StorageError
from znoded.zab_raft.increment import Changes

MS_PER_S = 1000

LookFor = Callable[[Member], Sign | None]


class RecoveryRefused(Exception):
    """Nothing was done; the message says why."""


def recover(path: str, give_up: str | None) -> int:
    """Show what is in the data directory, or begin a new cell without the members in `give_up`, such as "1,2".

    Returns the exit status: 0 if that went well.
    """
    tree = _StoppedTree()
    try:
        _check_owner(path)
        with closing(Survivor(path, tree)) as survivor:
            if give_up is None:
                print("\n".join(_shown(survivor, tree, time.time(), look_for)))
            else:
                print("\n".join(_done(_new_cell(survivor, give_up, look_for))))
    except (RecoveryRefused, StorageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class _StoppedTree:
    """The tree of a member that serves nobody."""

    def __init__(self) -> None:
        # All history is kept: what is too old by its configuration, the next start forgets.
        self.tree = Tree(TreeOptions(history_bytes=sys.maxsize, history_retention_ms=sys.maxsize))

    @property
    def roster(self) -> Roster:
        return Roster.decode(self.tree.roster)

    @property
    def loose_tables(self) -> Collection[bytes]:
        return LOOSE_TABLES

    def found(self, roster: Roster) -> None:
        self.tree.roster = roster.encode()

    def load(self, read_table: ReadTable) -> None:
        self.tree.load(read_table)

    def apply_batch(self, first_index: int, commands: list[bytes]) -> None:
        for zxid, command in enumerate(commands, first_index):
            self.tree.apply(zxid, command)
            self.tree.events.clear()

    def take_changes(self) -> Changes:
        return self.tree.take_changes()


def _new_cell(survivor: Survivor, give_up: str, look: LookFor) -> Renewal:
    """Raises RecoveryRefused, StorageError or OSError."""
    if not survivor.unfinished:
        _check(survivor, give_up, look)
    now = datetime.now(UTC)
    by = By(now.isoformat(timespec="seconds"), socket.gethostname(), _user(), __version__)
    time_ms = int(now.timestamp() * MS_PER_S)
    return survivor.begin_new_cell(by, lambda roster: new_roster(time_ms, roster.encode(), roster.text.encode()))


def _check(survivor: Survivor, give_up: str, look: LookFor) -> None:
    """Raise RecoveryRefused unless it needs others, exactly all of them are given up, and none of them answers."""
    roster, raft_id = survivor.roster, survivor.meta.raft_id
    if roster.voters == {raft_id}:
        raise RecoveryRefused(f"member {survivor.meta.member} is the only voter: it needs nobody else, start it")
    others = _others(survivor)
    numbers = ",".join(str(member.number) for member in others)
    if sorted(give_up.replace(" ", "").split(",")) != sorted(numbers.split(",")):
        raise RecoveryRefused(
            f"the other members are {numbers}, not {give_up}: all of them have to be given up, and no others"
        )
    signs = _signs(others, look)
    if signs:
        raise RecoveryRefused("\n".join(_still_there(signs)))


def _signs(others: list[Member], look: LookFor) -> list[Sign]:
    return [sign for member in others if (sign := look(member)) is not None]


def _still_there(signs: list[Sign]) -> Iterator[str]:
    """What was found of the others, and what that means."""
    yield "Not all others are lost:"
    yield from (f"  {sign.text}" for sign in signs)
    leaders = [str(sign.member.number) for sign in signs if sign.leads]
    if leaders:
        yield f"Member {' and '.join(leaders)} leads: the cell has its majority and needs no recovery. Start this"
        yield "member, and it catches up by itself; a new cell out of it would end the one that works."
        return
    yield "If a majority of the voters can be had, the cell needs no recovery: start this member, too, and look at"
    yield "znoded members. If not, stop those that answer first, and for good."


def _shown(survivor: Survivor, tree: _StoppedTree, now_s: float, look: LookFor) -> Iterator[str]:
    meta, state = survivor.meta, survivor.hard_state
    yield f"{survivor.directory.path}: member {meta.member}, raft id {meta.raft_id}, of cell {meta.cell}"
    yield f"term           {state.term}"
    yield f"last entry     index {survivor.last_index} of term {survivor.last_term}"
    yield f"committed      up to index {state.commit}, as far as is known here"
    yield f"last command   {_age(survivor.last_command, now_s)}"
    yield f"with all that  {len(tree.tree.nodes)} znodes, {len(tree.tree.sessions)} sessions, and these members:"
    for member in sorted(survivor.roster.members.values(), key=lambda member: member.number):
        yield f"  {member.line}"
    yield ""
    if survivor.unfinished:
        yield "A new cell was begun here and is not finished: run this with --give-up as before."
        return
    others = _others(survivor)
    if signs := _signs(others, look):
        yield from _still_there(signs)
        return
    yield "None of the others answers, as far as can be seen from here."
    numbers = ",".join(str(member.number) for member in others)
    yield "Of several survivors, take the one whose last entry has the highest term, and of those the highest index."
    yield "Read 'A majority is lost' in docs/cells.md. To go on with this one alone, and without the others for ever:"
    yield f"  znoded recover {survivor.directory.path} --give-up {numbers}"


def _done(record: Renewal) -> Iterator[str]:
    yield f"Member {record.member} is the only voter of a new cell, {record.new_cell}, with all that it had. Start it."
    yield "Empty the data directories of all others before they start again, then add them, one by one, with reconfig."


def _others(survivor: Survivor) -> list[Member]:
    members = survivor.roster.members
    return sorted(
        (member for raft_id, member in members.items() if raft_id != survivor.meta.raft_id),
        key=lambda member: member.number,
    )


def _age(command: bytes, now_s: float) -> str:
    """When the command was proposed."""
    if len(command) < HEAD_BYTES:
        return "not in the log any more"
    time_s = HEAD.unpack_from(command)[0] / MS_PER_S
    hours, seconds = divmod(max(0, round(now_s - time_s)), 3600)
    age = f"{hours} h {seconds // 60} min {seconds % 60} s"
    return f"{datetime.fromtimestamp(time_s, UTC).isoformat(sep=' ', timespec='seconds')}, {age} ago"


def _check_owner(path: str) -> None:
    """Raise unless whoever runs the member can read what is written here."""
    owner = os.stat(path).st_uid if os.path.isdir(path) else os.geteuid()
    if owner != os.geteuid():
        raise DirectoryError(f"{path} belongs to user {_name(owner)}: run this as that user, as the member runs")


def _user() -> str:
    """Who runs this, and in whose place."""
    real = os.environ.get("SUDO_USER")
    return _name(os.geteuid()) + (f" (sudo by {real})" if real else "")


def _name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
