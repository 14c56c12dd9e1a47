"""The lines of streams: as newline-delimited JSON or as server-sent events, each in one HTTP chunk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from functools import cached_property

from znoded.admin.api.items import Fields, text_of, value_of
from znoded.tree.acl import READ, Identities, allowed
from znoded.tree.history import Change
from znoded.tree.history_block import ChangeKind
from znoded.tree.znode import parsed_stat

#: The scheme of the identity that everybody has.
ADDRESS_SCHEME = b"ip"
LAST_CHUNK = b"0\r\n\r\n"
#: The kinds of changes that are told; a change of an ACL is none.
EVENTS: dict[int, str] = {
    ChangeKind.CREATED: "created",
    ChangeKind.DATA_CHANGED: "changed",
    ChangeKind.DELETED: "deleted",
}


class Form(Enum):
    """How a stream's client wants its lines."""

    NDJSON = "application/x-ndjson"
    SSE = "text/event-stream"


class EncodedChange:
    """A change, and its JSON, which is made once for all who are told of it."""

    def __init__(self, change: Change) -> None:
        self.path = change.path
        #: Whether all may read it.
        self.is_open = change.acl is None
        #: Whether it depends on the address of who asks.
        self.is_by_address = any(entry.scheme == ADDRESS_SCHEME for entry in change.acl or ())
        self._change = change
        self._verdicts: dict[Identities, bool] = {}

    def may_be_told(self, identities: Identities) -> bool:
        """Whether it is an event, and one that who has these identities may read."""
        change = self._change
        if change.acl is None:
            return change.kind in EVENTS
        if identities not in self._verdicts:
            self._verdicts[identities] = change.kind in EVENTS and allowed(change.acl, READ, identities)
        return self._verdicts[identities]

    @cached_property
    def json(self) -> bytes:
        """The schema Event."""
        change = self._change
        node = change.current if change.current is not None else change.previous
        assert node is not None
        stat = parsed_stat(node)
        event: Fields = {
            "event": EVENTS[change.kind],
            "key": text_of(change.path),
            "value": None if change.current is None else value_of(change.current),
            "version": stat.version,
            "create_revision": stat.czxid,
            "time_ms": change.time_ms,
        }
        return json.dumps(event, separators=(",", ":")).encode()


class EncodedRevision:
    """The changes of one revision, and its lines: each is made once for all who are told the same of it."""

    def __init__(self, revision: int, changes: Iterable[Change]) -> None:
        self.revision = revision
        self.changes = tuple(map(EncodedChange, changes))
        self._lines: dict[tuple[Form, tuple[EncodedChange, ...]], bytes] = {}

    def line(self, form: Form, changes: Iterable[EncodedChange], identities: Identities) -> bytes | None:
        """What of these changes who has these identities may be told; None if that is nothing."""
        told = tuple(change for change in changes if change.may_be_told(identities))
        if not told:
            return None
        key = (form, told)
        if key not in self._lines:
            events = b",".join(change.json for change in told)
            content = b'{"type":"events","revision":%d,"events":[%s]}' % (self.revision, events)
            self._lines[key] = _line(form, "events", content, self.revision)
        return self._lines[key]


def line(form: Form, kind: str, fields: Fields) -> bytes:
    """A line of another kind. Its revision, if it has one, is where a client goes on after it."""
    content = json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()
    return _line(form, kind, content, fields.get("revision"))


def _line(form: Form, kind: str, content: bytes, revision: int | None) -> bytes:
    if form is Form.SSE:
        head = b"" if revision is None else b"id: %d\n" % revision
        text = b"%sevent: %s\ndata: %s\n\n" % (head, kind.encode(), content)
    else:
        text = content + b"\n"
    return b"%x\r\n%s\r\n" % (len(text), text)
