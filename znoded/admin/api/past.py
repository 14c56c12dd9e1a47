"""The past for streams that catch up: portions of the history, encoded once for all that go on from the same place."""

from __future__ import annotations

from collections import OrderedDict
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from znoded.admin.api.groups import Group
from znoded.admin.api.history_errors import named_errors
from znoded.admin.api.lines import EncodedRevision
from znoded.admin.api.unread import Unread
from znoded.tree.acl import Identities
from znoded.tree.history import History

#: Changes looked at for one portion, and the bytes after which it is complete earlier.
CHANGES = 500
PORTION_BYTES = 1024 * 1024
#: Portions that are kept for the next stream.
PORTIONS = 8


class Portion(NamedTuple):
    """Lines, none if nothing of it was watched, and the revision up to which all is told with them."""

    data: bytes
    reached: int


class Past:
    """What has happened, as those watch it who were not there."""

    def __init__(self, history: History, unread: Unread) -> None:
        self._history = history
        self._unread = unread
        self._portions: OrderedDict[object, Portion] = OrderedDict()
        self._is_used = False

    def portion(self, group: Group, identities: Identities, after: int, up_to: int) -> Portion:
        """What one of the group with these identities is told of the first changes after a revision.

        Raises as `named_errors`.
        """
        self._is_used = True
        for_all = (group.watched, after)
        for_these = (*for_all, identities)
        found = self._portions.get(for_all) or self._portions.get(for_these)
        if found is not None:
            return found
        portion, may_all_read = self._made(group, identities, after, up_to)
        self._portions[for_all if may_all_read else for_these] = portion
        self._unread.hold(portion.data)
        if len(self._portions) > PORTIONS:
            self._forget_oldest()
        return portion

    def forget_unused(self) -> None:
        """Keep nothing that nobody has asked for since the last call."""
        while self._portions and not self._is_used:
            self._forget_oldest()
        self._is_used = False

    def _forget_oldest(self) -> None:
        _, portion = self._portions.popitem(last=False)
        self._unread.release(portion.data)

    def _made(self, group: Group, identities: Identities, after: int, up_to: int) -> tuple[Portion, bool]:
        """A portion, and whether all identities are told the same in it."""
        with named_errors():
            changes = self._history.changes(after, up_to, CHANGES)
        reached = up_to
        lines: list[bytes] = []
        lines_bytes = 0
        may_all_read = True
        for reached, of_revision in groupby(changes, attrgetter("revision")):
            encoded = EncodedRevision(reached, (change for change in of_revision if group.watches(change.path)))
            may_all_read = may_all_read and all(change.is_open for change in encoded.changes)
            made = encoded.line(group.form, encoded.changes, identities)
            if made is not None:
                lines.append(made)
                lines_bytes += len(made)
                if lines_bytes > PORTION_BYTES:
                    break
        return Portion(b"".join(lines), reached), may_all_read
