"""What is wanted of a lock, and by which request: whose a contender in line is."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from znoded.tree.acl import Acls, Identities
from znoded.tree.sessions import Session
from znoded.tree.znode import version_of

CONTENDER_BYTES = 16
REQUEST_BYTES = 4


class Wish(NamedTuple):
    """What is wanted: a lock, by a session; `contender` names the attempt, `value` is what others are told of it."""

    lock: bytes
    session: Session
    contender: bytes
    value: bytes
    acl: Acls | None
    identities: Identities


class Attempt:
    """One request for a lock, and which contenders in line are its own.

    A client whose request broke off asks again with the same contender, maybe at another member, while the first one
    is not known to be gone there. So a contender belongs to one request: to the one that created it, which is in its
    name, until another takes it over, which its version tells. Only whose it is may take it away.
    """

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.prefix = wish.lock.rstrip(b"/") + b"/" + wish.contender + b"-"
        self.path = self.prefix + secrets.token_hex(REQUEST_BYTES).encode() + b"-lock-"
        #: Something was written for it that is not known to have been refused.
        self.may_be_in_line = False
        #: Path -> the version with which it was taken over.
        self.taken: dict[bytes, int] = {}

    def had(self, path: bytes) -> bool:
        """Whether it is, or was, one of this request's."""
        return path in self.taken or path.startswith(self.path)

    def has(self, path: bytes, node: bytes) -> bool:
        """Whether it still is."""
        return self.had(path) and version_of(node) == self.taken.get(path, 0)


class Held(NamedTuple):
    """A lock that is held: the path of the contender and its token."""

    path: bytes
    token: int


def new_contender() -> bytes:
    """A name for an attempt that nobody else has."""
    return secrets.token_hex(CONTENDER_BYTES).encode()
