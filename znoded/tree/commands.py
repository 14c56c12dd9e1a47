"""Commands: what the log carries and the tree applies: a request and all that was decided when it was proposed.

    head {time, session, attach, sequence, op, length of the identities} · vector<{scheme, id}> · the request record

The record is as the client sent it, without the request header. Beside the clients' own ops there are internal ones,
which the server never takes from a client:

    createSession     int timeout_ms, buffer password or null (then the cell's secret makes it)
    ATTACH            int timeout_ms: from here on the session takes commands of this attach only
    closeSession      of sequence EXPIRY_SEQUENCE: long term; attach and term are those it was decided under
    deleteContainer   ustring path, long mzxid, long pzxid: those it was decided on
    NEW_TERM          long term, buffer cell secret (kept if there is none yet), buffer options (in force from here on)
    DECIDED_RECONFIG  int error or 0, buffer roster, buffer configuration text, buffer the client's own command
    SET_ROSTER        long time_ms, buffer roster, buffer configuration text
    TXN               of a member's own session: see `txn_records`
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from znoded.jute.primitives import Reader, encode_ustring, encode_vector
from znoded.tree.acl import Identity

#: Time in ms since the epoch, session id, attach, sequence, op, length of the identities in bytes.
HEAD = struct.Struct(">qqqqii")
HEAD_BYTES = HEAD.size

#: The op that begins a leader's term; no number of ZooKeeper's.
NEW_TERM = -20
#: A client's reconfig with what its leader made of it, and a leader's own word on who the members are.
DECIDED_RECONFIG = -21
SET_ROSTER = -22
#: A connection takes a session over.
ATTACH = -23
#: A write that came by the native API.
TXN = -24
#: The sequence of a closeSession that its client did not ask for.
EXPIRY_SEQUENCE = -1

_CACHED_IDENTITIES = 4096


def encode_command(
    time_ms: int, session: int, attach: int, sequence: int, op: int, identities: bytes, record: bytes
) -> bytes:
    """A command. `time_ms` is the proposer's wall clock, `identities` an encoded vector, empty for internal ops."""
    return HEAD.pack(time_ms, session, attach, sequence, op, len(identities)) + identities + record


def encode_identities(identities: Iterable[Identity]) -> bytes:
    """The identities of a connection, as its commands carry them."""
    return encode_vector(list(identities), lambda identity: encode_ustring(identity[0]) + encode_ustring(identity[1]))


def _read_identity(reader: Reader) -> Identity:
    return reader.ustring() or b"", reader.ustring() or b""


class IdentityCache:
    """Decodes the identities of commands; connections send the same ones over and over."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Identity, ...]] = {}

    def decode(self, identities: bytes) -> tuple[Identity, ...]:
        """The identities of a command. Raises JuteError."""
        known = self._known.get(identities)
        if known is None:
            known = tuple(Reader(identities).vector(_read_identity, least_item_bytes=8) or ()) if identities else ()
            if len(self._known) >= _CACHED_IDENTITIES:
                self._known.clear()
            self._known[identities] = known
        return known
