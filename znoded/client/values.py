"""What answers are made of."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]


def encoded(value: bytes) -> str:
    """A value as JSON has it."""
    return base64.b64encode(value).decode()


def decoded(value: str | None) -> bytes:
    """A value, as bytes; no value is empty."""
    return base64.b64decode(value or "")


@dataclass(frozen=True, slots=True)
class Item:
    """A key with its value. `session` is the public id of the session whose ephemeral key it is."""

    key: str
    value: bytes
    version: int
    create_revision: int
    mod_revision: int
    create_time_ms: int
    mod_time_ms: int
    session: str | None

    @classmethod
    def of(cls, fields: Fields) -> Item:
        """From the schema Item."""
        return cls(**{**fields, "value": decoded(fields["value"])})


@dataclass(frozen=True, slots=True)
class Page:
    """Some items as of a revision, and whether there are more."""

    items: tuple[Item, ...]
    more: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a key: `event` is created, changed or deleted; the value of a deleted one is None."""

    event: str
    key: str
    value: bytes | None
    version: int
    create_revision: int
    time_ms: int

    @classmethod
    def of(cls, fields: Fields) -> Event:
        """From the schema Event."""
        value = fields["value"]
        return cls(**{**fields, "value": None if value is None else decoded(value)})


@dataclass(frozen=True, slots=True)
class Events:
    """All changes of one revision, on what is watched."""

    revision: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """All changes up to this revision were told."""

    revision: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads an election: its value and its epoch, as of a revision. Nobody leads where `epoch` is None."""

    revision: int
    epoch: int | None
    value: bytes
    key: str | None
    session: str | None
