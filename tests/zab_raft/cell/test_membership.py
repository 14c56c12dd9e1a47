"""The way from one roster to the next, and what an operator is told on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.zab_raft.cell.test_roster import THREE, member
from znoded.zab_raft.cell.membership import CAUGHT_UP_ENTRIES, change, promotion, statuses, synced
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Role
from znoded.zab_raft.core.conf_change import ChangeKind, ConfChange, Step, StepKind, changed
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.inflights import Inflights
from znoded.zab_raft.core.progress import Progress

LEARNER = Role.LEARNER
VOTERS = THREE.configuration


def add(raft_id: int) -> Step:
    return Step(StepKind.ADD_LEARNER, raft_id)


def remove(raft_id: int) -> Step:
    return Step(StepKind.REMOVE, raft_id)


def progress(match_index: int, mode: str = "replicate") -> Progress:
    made = Progress(match_index + 1, Inflights(8, 1 << 20), recently_active=True)
    made.acknowledged(match_index)
    if mode == "replicate":
        made.become_replicate()
    elif mode == "snapshot":
        made.become_snapshot(match_index + 1)
    return made


class TestChange:
    def test_new_members_begin_as_learners_whatever_their_role(self) -> None:
        roster = THREE.joined_by([member(4), member(5, LEARNER)], [], highest_id=3)
        made = change(roster, VOTERS, b"context")
        assert made == ConfChange(ChangeKind.SIMPLE, (add(4), add(5)), context=b"context")
        assert changed(VOTERS, made) == Configuration.of([1, 2, 3], [4, 5])

    def test_one_voter_less_is_a_simple_change(self) -> None:
        assert change(THREE.joined_by([], [2], 3), VOTERS, b"").kind is ChangeKind.SIMPLE

    def test_a_voter_is_replaced_in_a_simple_change(self) -> None:
        made = change(THREE.joined_by([member(2)], [2], 3), VOTERS, b"")
        assert made == ConfChange(ChangeKind.SIMPLE, (remove(2), add(4)))
        assert changed(VOTERS, made) == Configuration(voters=frozenset((1, 3)), learners=frozenset((4,)), highest_id=4)

    def test_two_voters_less_are_a_joint_change_that_leaves_by_itself(self) -> None:
        made = change(THREE.joined_by([member(3, LEARNER)], [2], 3), VOTERS, b"")
        assert made == ConfChange(ChangeKind.ENTER_JOINT, (remove(2), add(3)), auto_leave=True)
        assert changed(VOTERS, made).learners_next == {3}

    def test_learners_that_leave_or_join_are_no_reason_for_a_joint_change(self) -> None:
        before = Configuration.of([1, 2, 3], [4, 5])
        made = change(THREE, before, b"")
        assert made == ConfChange(ChangeKind.SIMPLE, (remove(4), remove(5)))

    def test_other_addresses_are_a_change_without_steps(self) -> None:
        moved = THREE.joined_by([member(2, host="elsewhere")], [], 3)
        made = change(moved, VOTERS, b"")
        assert made == ConfChange(ChangeKind.SIMPLE)
        assert changed(VOTERS, made) == VOTERS

    def test_a_learner_that_is_to_vote_is_left_to_be_promoted(self) -> None:
        before = Roster.founding([member(1), member(2, LEARNER)])
        roster = before.joined_by([member(2)], [], 2)
        assert change(roster, before.configuration, b"") == ConfChange(ChangeKind.SIMPLE)


class TestPromotion:
    ROSTER = THREE.joined_by([member(4), member(5), member(6, LEARNER)], [], highest_id=3)
    CONFIGURATION = Configuration.of([1, 2, 3], [4, 5, 6])

    def test_a_learner_that_is_to_vote_and_has_caught_up_is_promoted(self) -> None:
        assert promotion(self.ROSTER, self.CONFIGURATION, [1, 5, 6]) == ConfChange.of(Step(StepKind.ADD_VOTER, 5))

    def test_one_at_a_time(self) -> None:
        assert promotion(self.ROSTER, self.CONFIGURATION, [4, 5]) == ConfChange.of(Step(StepKind.ADD_VOTER, 4))

    def test_nobody_is_promoted_before_or_unasked(self) -> None:
        assert promotion(self.ROSTER, self.CONFIGURATION, [1, 2, 3, 6]) is None

    def test_nobody_is_promoted_while_a_change_is_joint(self) -> None:
        joint = Configuration(
            frozenset((1,)), outgoing=frozenset((1, 2, 3)), learners=frozenset((4,)), auto_leave=True, highest_id=4
        )
        assert promotion(self.ROSTER, joint, [4]) is None


class TestSynced:
    def test_synced_is_who_is_connected_and_lacks_little(self) -> None:
        found = synced(
            {1: progress(5000), 2: progress(5000 - CAUGHT_UP_ENTRIES), 3: progress(4999 - CAUGHT_UP_ENTRIES),
             4: progress(5000), 5: progress(5000, "snapshot"), 6: progress(5000, "probe")},
            5000,
            lambda raft_id: raft_id != 4,
        )  # fmt: skip
        assert found == {1, 2, 6}

    def test_who_has_more_than_is_committed_lacks_nothing(self) -> None:
        """Under load much is on its way to all members, and none of them is behind for that."""
        many = 10 * CAUGHT_UP_ENTRIES
        assert synced({1: progress(many), 2: progress(0)}, 0, lambda _raft_id: True) == {1, 2}


@given(st.lists(st.tuples(st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)), st.booleans()), max_size=8))
def test_any_row_of_changes_leads_the_core_to_the_roster(rows: list[tuple[set[int], set[int], bool]]) -> None:
    roster, configuration = THREE, VOTERS
    for joining, leaving, as_voters in rows:
        joiners = [member(number, Role.VOTER if as_voters else LEARNER) for number in joining]
        wanted = roster.joined_by(joiners, leaving, configuration.highest_id)
        everybody = wanted.members.keys() | configuration.members
        if not configuration.voters & wanted.voters:
            continue  # the core refuses to be left without a voter
        roster = wanted
        configuration = changed(configuration, change(roster, configuration, b""))
        if configuration.joint:
            configuration = changed(configuration, ConfChange(ChangeKind.LEAVE_JOINT))
        assert configuration.members == roster.members.keys()
        while promoted := promotion(roster, configuration, everybody):
            configuration = changed(configuration, promoted)
        assert configuration.voters == roster.voters


class TestStatuses:
    def test_the_leader_sees_how_far_each_member_is(self) -> None:
        roster = THREE.joined_by([member(4), member(5, LEARNER), member(6)], [3], highest_id=3)
        configuration = Configuration(
            frozenset((1, 2)), outgoing=frozenset((1, 2, 3)), learners=frozenset((4, 5, 6)), highest_id=6
        )
        known = {
            1: progress(9000), 2: progress(8990), 3: progress(9000),
            4: progress(7000), 5: progress(0, "snapshot"), 6: progress(0, "probe"),
        }  # fmt: skip
        found = statuses(roster, configuration, known, 9000, 1, lambda raft_id: raft_id != 6)
        assert [(each.number, each.role, each.phase, each.leads, each.lag_entries, each.blocks) for each in found] == [
            (1, "voter", "voter", True, 0, ""),
            (2, "voter", "voter", False, 10, ""),
            (4, "voter", "joining", False, 2000, "catches up: 2000 entries behind"),
            (5, "learner", "learner", False, 9000, "takes a snapshot"),
            (6, "voter", "joining", False, 9000,
             "not connected: it becomes a voter once it is there and has caught up"),
            (3, "voter", "leaving", False, 0,
             "the change ends when a majority of the voters before it and of those after it have stored it"),
        ]  # fmt: skip
        assert (found[0].raft_id, found[0].peer, found[0].client, found[0].match_index) == (
            1, "host1:2888", "host1:2181", 9000,
        )  # fmt: skip

    def test_another_member_knows_who_leads_and_who_is_connected(self) -> None:
        configuration = Configuration(
            frozenset((1, 2)), frozenset((1, 2, 3)), learners_next=frozenset((3,)), auto_leave=True, highest_id=3
        )
        roster = THREE.joined_by([member(3, LEARNER)], [], highest_id=3)
        found = statuses(roster, configuration, {}, 0, 2, lambda raft_id: raft_id != 1)
        assert [
            (each.number, each.phase, each.leads, each.connected, each.lag_entries, each.blocks) for each in found
        ] == [
            (1, "voter", False, False, None, "not connected"),
            (2, "voter", True, True, None, ""),
            (3, "becoming a learner", False, True, None, ""),
        ]
