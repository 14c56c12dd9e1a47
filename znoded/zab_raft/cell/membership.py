"""How the members of a cell change, as pure functions: the way of the Raft core from one roster to the next.

A member that is to vote joins as a learner, since a voter that has nothing yet only weakens the cell. The leader
promotes it when it has caught up; until then the roster already calls it a voter. All else happens at once: members
leave, and voters become learners, in one joint change if it is more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Role
from znoded.zab_raft.core.conf_change import ChangeKind, ConfChange, Step, StepKind
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.progress import Mode, Progress

#: A member that lacks no more than this has caught up: it gets the rest before anybody waits for it.
CAUGHT_UP_ENTRIES = 1_000


def change(roster: Roster, configuration: Configuration, context: bytes) -> ConfChange:
    """What brings a configuration that is not joint to the members of `roster`, save those that are promoted later."""
    removed = configuration.members - roster.members.keys()
    demoted = configuration.voters - removed - roster.voters
    added = roster.members.keys() - configuration.members
    steps = (
        *(Step(StepKind.REMOVE, raft_id) for raft_id in sorted(removed)),
        *(Step(StepKind.ADD_LEARNER, raft_id) for raft_id in sorted(demoted | added)),
    )
    voters_changed = len(configuration.voters & (removed | demoted))
    if voters_changed > 1:
        return ConfChange(ChangeKind.ENTER_JOINT, steps, auto_leave=True, context=context)
    return ConfChange(ChangeKind.SIMPLE, steps, context=context)


def promotion(roster: Roster, configuration: Configuration, synced: Collection[int]) -> ConfChange | None:
    """The next promotion that is due: of one learner that is to vote and has caught up."""
    if configuration.joint:
        return None
    due = configuration.learners & roster.voters & frozenset(synced)
    return ConfChange.of(Step(StepKind.ADD_VOTER, min(due))) if due else None


def synced(progress: Mapping[int, Progress], committed_index: int, connected: Callable[[int], bool]) -> frozenset[int]:
    """The members that a leader finds connected and up to date. `connected` is asked of itself too."""
    return frozenset(
        member
        for member, each in progress.items()
        if connected(member) and each.mode is not Mode.SNAPSHOT and _lag(each, committed_index) <= CAUGHT_UP_ENTRIES
    )


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member as an operator sees it. `match_index` and `lag_entries` are known at the leader only.

    `phase` says how far it is on its way to its role, `blocks` what it, or a change that waits for it, lacks; empty if
    nothing.
    """

    number: int
    raft_id: int
    role: str
    phase: str
    peer: str
    client: str
    leads: bool
    connected: bool
    match_index: int | None
    lag_entries: int | None
    blocks: str


def statuses(
    roster: Roster,
    configuration: Configuration,
    progress: Mapping[int, Progress],
    committed_index: int,
    leader: int,
    connected: Callable[[int], bool],
) -> list[MemberStatus]:
    """All members in the order of their numbers, those that are leaving last.

    `leader` is a raft id; `progress` is empty at a member that does not lead. `connected` is asked of itself too.
    """
    leaving = {raft_id: roster.former[raft_id] for raft_id in configuration.members & roster.former.keys()}
    listed = sorted(roster.members.items(), key=lambda item: item[1].number)
    return [
        MemberStatus(
            number=member.number,
            raft_id=raft_id,
            role="voter" if member.role is Role.VOTER else "learner",
            phase=(phase := _phase(roster, configuration, raft_id)),
            peer=member.peer,
            client=member.client,
            leads=raft_id == leader,
            connected=connected(raft_id),
            match_index=progress[raft_id].match_index if raft_id in progress else None,
            lag_entries=_lag(progress[raft_id], committed_index) if raft_id in progress else None,
            blocks=_blocks(phase, connected(raft_id), progress.get(raft_id), committed_index),
        )
        for raft_id, member in (*listed, *leaving.items())
    ]


def _phase(roster: Roster, configuration: Configuration, raft_id: int) -> str:
    if raft_id not in roster.members:
        return "leaving"
    if raft_id in configuration.voters:
        return "voter"
    if raft_id in configuration.learners_next:
        return "becoming a learner"
    return "joining" if raft_id in roster.voters else "learner"


def _blocks(phase: str, connected: bool, progress: Progress | None, committed_index: int) -> str:
    if phase == "leaving":
        return "the change ends when a majority of the voters before it and of those after it have stored it"
    if not connected:
        return "not connected" + (
            ": it becomes a voter once it is there and has caught up" if phase == "joining" else ""
        )
    if progress is None:
        return ""
    if progress.mode is Mode.SNAPSHOT:
        return "takes a snapshot"
    lag = _lag(progress, committed_index)
    return f"catches up: {lag} entries behind" if lag > CAUGHT_UP_ENTRIES else ""


def _lag(progress: Progress, committed_index: int) -> int:
    """Of what is committed: what is on its way to all of them is load, and no lag."""
    return max(0, committed_index - progress.match_index)
