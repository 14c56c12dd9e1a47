"""What the core answers when it does not do what it is asked, and how it stops when it must not go on."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """Why a call was refused. All but BAD_CHANGE go away by themselves or at another member."""

    NOT_LEADER = "this member does not lead"
    NO_LEADER = "no leader is known"
    TRANSFERRING = "leadership is being handed over"
    TAIL_FULL = "too much is proposed and not committed yet"
    READS_FULL = "too many reads wait for a confirmation"
    CHANGE_PENDING = "the last change of the configuration is not applied yet"
    NO_COMMIT_IN_TERM = "nothing of this term is committed yet"
    BAD_CHANGE = "the configuration cannot be changed so"
    BAD_TARGET = "leadership cannot be handed to that member"


class Refused(Exception):
    """The call changed nothing. `reason` says whether to try again, the message says it to an operator."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason


class CoreFailure(Exception):
    """This member must not take part any more: it stops serving and the process exits."""


class InvariantBroken(CoreFailure):
    """Something that cannot be in a correct cell: a bug here or there, or damaged storage."""


class LostTail(CoreFailure):
    """The leader knows entries to be stored here that are not here.

    They were acknowledged and lost, so that this member may have voted or counted for what it no longer holds. It must
    not be refilled under its id: it has to be removed, wiped, and to join again under a new id.
    """
