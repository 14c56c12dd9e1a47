"""Changes of the configuration as pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.core.conf_change import LEAVE_JOINT, ChangeKind, ConfChange, Step, StepKind, changed
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken, Reason, Refused

THREE = Configuration.of([1, 2, 3])
STEPS = st.builds(Step, st.sampled_from(StepKind), st.integers(1, 6))
SETS = st.frozensets(st.integers(1, 6))


def add(member: int) -> Step:
    return Step(StepKind.ADD_VOTER, member)


def learn(member: int) -> Step:
    return Step(StepKind.ADD_LEARNER, member)


def remove(member: int) -> Step:
    return Step(StepKind.REMOVE, member)


def enter_joint(*steps: Step, auto_leave: bool = True) -> ConfChange:
    return ConfChange(ChangeKind.ENTER_JOINT, steps, auto_leave)


def refuses(before: Configuration, change: ConfChange) -> bool:
    try:
        changed(before, change)
    except Refused as refused:
        return refused.reason is Reason.BAD_CHANGE
    return False


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Any that can be reached in a few changes."""
    configuration = Configuration.of(draw(st.frozensets(st.integers(1, 4), min_size=1)))
    for steps in draw(st.lists(st.lists(STEPS, min_size=1, max_size=3), max_size=4)):
        for change in (ConfChange.of(*steps), LEAVE_JOINT):
            if draw(st.booleans()) and not refuses(configuration, change):
                configuration = changed(configuration, change)
    return configuration


@given(configurations(), st.lists(STEPS, max_size=4), st.sampled_from(ChangeKind), st.booleans())
def test_a_change_gives_a_sound_configuration_or_is_refused(
    before: Configuration, steps: list[Step], kind: ChangeKind, auto_leave: bool
) -> None:
    change = ConfChange(kind, tuple(steps), auto_leave)
    if refuses(before, change):
        return
    after = changed(before, change)
    after.check()
    assert after.voters  # M11
    assert after.highest_id >= before.highest_id
    assert not after.learners & after.deciders  # M9
    if kind is ChangeKind.SIMPLE:
        assert len(before.voters ^ after.voters) <= 1  # M1
    if kind is ChangeKind.ENTER_JOINT:
        assert after.outgoing == before.voters


@given(configurations(), st.lists(STEPS, min_size=1, max_size=4))
def test_a_joint_change_ends_where_its_steps_lead_one_by_one(before: Configuration, steps: list[Step]) -> None:
    if before.joint or refuses(before, enter_joint(*steps)):
        return
    through_joint = changed(changed(before, enter_joint(*steps)), LEAVE_JOINT)
    one_by_one = before
    for step in steps:
        if refuses(one_by_one, ConfChange.of(step)):
            return  # through a configuration without voters, or with an id that is gone by then
        one_by_one = changed(one_by_one, ConfChange.of(step))
    assert through_joint == one_by_one


@given(configurations(), st.lists(STEPS, min_size=1, max_size=3))
def test_s1_majorities_before_and_after_a_change_overlap(before: Configuration, steps: list[Step]) -> None:
    """Two sets of members, one deciding under each, are never apart."""
    change = ConfChange.of(*steps)
    if refuses(before, change):
        return
    after = changed(before, change)
    for first in majorities(before):
        assert all(first & second for second in majorities(after))


def majorities(configuration: Configuration) -> list[frozenset[int]]:
    """The sets of voters that decide."""
    members = sorted(configuration.deciders)
    sets = [frozenset(m for place, m in enumerate(members) if bits >> place & 1) for bits in range(1 << len(members))]
    halves = [half for half in (configuration.voters, configuration.outgoing) if half]
    return [chosen for chosen in sets if all(2 * len(chosen & half) > len(half) for half in halves)]


@given(st.builds(ConfChange, st.sampled_from(ChangeKind), st.lists(STEPS).map(tuple), st.booleans(), st.binary()))
def test_a_change_survives_its_encoding(change: ConfChange) -> None:
    assert ConfChange.decode(change.encode()) == change


@given(st.binary())
def test_bytes_that_are_no_change_raise_value_error(data: bytes) -> None:
    try:
        ConfChange.decode(data)
    except ValueError:
        pass


def test_bytes_behind_a_change_are_an_error() -> None:
    with pytest.raises(ValueError, match="not a change"):
        ConfChange.decode(LEAVE_JOINT.encode() + b"\x00")


def test_m1_a_simple_change_alters_one_voter() -> None:
    assert changed(THREE, ConfChange.of(add(4))) == Configuration.of([1, 2, 3, 4])
    assert refuses(THREE, ConfChange(ChangeKind.SIMPLE, (add(4), add(5))))
    assert refuses(THREE, ConfChange(ChangeKind.SIMPLE, (add(4), remove(1))))
    two_learners = changed(THREE, ConfChange(ChangeKind.SIMPLE, (learn(4), learn(5))))
    assert two_learners == Configuration.of([1, 2, 3], [4, 5])


def test_m3_a_joint_configuration_is_left_before_the_next_change() -> None:
    joint = changed(THREE, enter_joint(add(4), add(5)))
    assert refuses(joint, ConfChange.of(add(6)))
    assert refuses(joint, enter_joint(add(6)))
    assert refuses(THREE, LEAVE_JOINT)
    assert refuses(joint, ConfChange(ChangeKind.LEAVE_JOINT, (add(6),)))
    assert changed(joint, LEAVE_JOINT) == Configuration.of([1, 2, 3, 4, 5])


def test_m9_a_demoted_voter_is_staged_until_the_joint_configuration_is_left() -> None:
    joint = changed(THREE, enter_joint(learn(3), add(4)))
    assert joint.learners_next == {3}
    assert not joint.learners
    after = changed(joint, LEAVE_JOINT)
    assert (after.voters, after.learners, after.learners_next) == ({1, 2, 4}, {3}, set())


def test_m9_a_voter_becomes_learner_and_voter_again() -> None:
    demoted = changed(THREE, ConfChange.of(learn(3)))
    assert (demoted.voters, demoted.learners) == ({1, 2}, {3})
    assert changed(demoted, ConfChange.of(add(3))) == THREE


def test_m10_what_is_so_already_changes_nothing() -> None:
    assert changed(THREE, ConfChange.of(add(3))) == THREE
    assert changed(THREE, ConfChange.of(remove(9))) == THREE
    learner = Configuration.of([1], [2])
    assert changed(learner, ConfChange.of(learn(2))) == learner


def test_m11_there_are_always_voters() -> None:
    one = Configuration.of([1])
    for change in (ConfChange.of(remove(1)), ConfChange.of(learn(1)), enter_joint(remove(1))):
        assert refuses(one, change)
    assert refuses(Configuration(), enter_joint(add(1)))


def test_m14_an_id_is_used_once() -> None:
    without_two = changed(THREE, ConfChange.of(remove(2)))
    assert refuses(without_two, ConfChange.of(add(2)))
    assert refuses(without_two, ConfChange.of(learn(2)))
    assert without_two.has_left(2)
    assert not without_two.has_left(3)
    assert not without_two.has_left(4)


@pytest.mark.parametrize(
    "wrong",
    [
        Configuration(frozenset({1}), learners=frozenset({1}), highest_id=1),
        Configuration(frozenset({1}), learners_next=frozenset({2}), highest_id=2),
        Configuration(frozenset({1, 2}), frozenset({2}), learners_next=frozenset({2}), highest_id=2),
        Configuration(frozenset({1}), auto_leave=True, highest_id=1),
        Configuration(frozenset(), learners=frozenset({1}), highest_id=1),
        Configuration(frozenset({3}), highest_id=2),
        Configuration(frozenset({0}), highest_id=2),
    ],
)
def test_a_configuration_that_cannot_be_is_noticed(wrong: Configuration) -> None:
    with pytest.raises(InvariantBroken):
        wrong.check()


def test_a_configuration_says_what_it_is() -> None:
    joint = changed(Configuration.of([1, 2], [3]), enter_joint(learn(2), add(4)))
    assert str(joint) == "voters=(1 4) outgoing=(1 2) learners=(3) learners_next=(2) auto_leave"
