"""Changing a configuration, as pure functions: one voter at a time, or through joint consensus (Raft thesis 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from znoded.jute.primitives import (
    JuteError,
    Reader,
    encode_boolean,
    encode_buffer,
    encode_int,
    encode_long,
    encode_vector,
)
from znoded.zab_raft.core.configuration import NONE, Configuration
from znoded.zab_raft.core.errors import Reason, Refused

STEP_BYTES = 12


class StepKind(IntEnum):
    ADD_VOTER = 0
    ADD_LEARNER = 1
    REMOVE = 2


class Step(NamedTuple):
    """What happens to one member. Adding a voter as a learner demotes it, adding a learner as a voter promotes it."""

    kind: StepKind
    member: int


class ChangeKind(IntEnum):
    SIMPLE = 0
    ENTER_JOINT = 1
    LEAVE_JOINT = 2


@dataclass(frozen=True, slots=True)
class ConfChange:
    """A change of the configuration, the data of a CONFIGURATION entry. `context` is the proposer's, and opaque."""

    kind: ChangeKind
    steps: tuple[Step, ...] = ()
    auto_leave: bool = False
    context: bytes = b""

    @classmethod
    def of(cls, *steps: Step, context: bytes = b"") -> ConfChange:
        """The change that takes these steps: a simple one for one step, a joint one that leaves by itself for more."""
        if len(steps) == 1:
            return cls(ChangeKind.SIMPLE, steps, context=context)
        return cls(ChangeKind.ENTER_JOINT, steps, auto_leave=True, context=context)

    def encode(self) -> bytes:
        return b"".join(
            (
                encode_int(self.kind),
                encode_boolean(self.auto_leave),
                encode_vector(self.steps, lambda step: encode_int(step.kind) + encode_long(step.member)),
                encode_buffer(self.context),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> ConfChange:
        """Raises ValueError for bytes that are no change."""
        reader = Reader(data)
        kind = ChangeKind(reader.int())
        auto_leave = reader.boolean()
        steps = reader.vector(lambda reader: Step(StepKind(reader.int()), reader.long()), STEP_BYTES)
        context = reader.buffer()
        if steps is None or context is None or reader.remaining:
            raise JuteError("not a change of the configuration")
        return cls(kind, tuple(steps), auto_leave, context)


LEAVE_JOINT = ConfChange(ChangeKind.LEAVE_JOINT)


def changed(before: Configuration, change: ConfChange) -> Configuration:
    """The configuration after the change. Raises Refused (BAD_CHANGE) if it cannot be made."""
    before.check()
    after = _CHANGES[change.kind](before, change)
    after.check()
    return after


def _simple(before: Configuration, change: ConfChange) -> Configuration:
    if before.joint:
        raise _refused(f"{before} is joint")
    after = _after_steps(before, change.steps)
    if len(before.voters ^ after.voters) > 1:
        raise _refused(f"more than one voter changes from {before} to {after}, which only a joint change may do")
    return after


def _enter_joint(before: Configuration, change: ConfChange) -> Configuration:
    if before.joint:
        raise _refused(f"{before} is joint already")
    if not before.voters:
        raise _refused("there are no voters to begin with")
    return _after_steps(replace(before, outgoing=before.voters, auto_leave=change.auto_leave), change.steps)


def _leave_joint(before: Configuration, change: ConfChange) -> Configuration:
    if not before.joint:
        raise _refused(f"{before} is not joint")
    if change.steps:
        raise _refused("leaving a joint configuration takes no steps")
    learners = before.learners | before.learners_next
    return replace(before, outgoing=NONE, learners=learners, learners_next=NONE, auto_leave=False)


_CHANGES = {
    ChangeKind.SIMPLE: _simple,
    ChangeKind.ENTER_JOINT: _enter_joint,
    ChangeKind.LEAVE_JOINT: _leave_joint,
}


def _after_steps(configuration: Configuration, steps: tuple[Step, ...]) -> Configuration:
    for step in steps:
        configuration = _after_step(configuration, step)
    if not configuration.voters:
        raise _refused("no voter would be left")
    return configuration


def _after_step(before: Configuration, step: Step) -> Configuration:
    member = step.member
    alone = frozenset((member,))
    if step.kind is StepKind.REMOVE:
        return replace(
            before,
            voters=before.voters - alone,
            learners=before.learners - alone,
            learners_next=before.learners_next - alone,
        )
    if member not in before.members and member <= before.highest_id:
        raise _refused(f"id {member} is not above {before.highest_id}, and no id is used twice")
    highest_id = max(before.highest_id, member)
    if step.kind is StepKind.ADD_VOTER:
        return replace(
            before,
            voters=before.voters | alone,
            learners=before.learners - alone,
            learners_next=before.learners_next - alone,
            highest_id=highest_id,
        )
    stays_voter_for_now = member in before.outgoing
    return replace(
        before,
        voters=before.voters - alone,
        learners=before.learners if stays_voter_for_now else before.learners | alone,
        learners_next=before.learners_next | alone if stays_voter_for_now else before.learners_next,
        highest_id=highest_id,
    )


def _refused(detail: str) -> Refused:
    return Refused(Reason.BAD_CHANGE, detail)
