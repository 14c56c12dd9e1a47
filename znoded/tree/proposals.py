"""The commands that a server makes itself: what clients never ask for in these words, but the log has to decide."""

from __future__ import annotations

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.jute.primitives import Reader, encode_buffer, encode_int, encode_long, encode_ustring
from znoded.tree.commands import (
    ATTACH,
    DECIDED_RECONFIG,
    EXPIRY_SEQUENCE,
    HEAD,
    NEW_TERM,
    SET_ROSTER,
    encode_command,
)
from znoded.tree.options import TreeOptions


def new_session(time_ms: int, session: int, attach: int, timeout_ms: int, password: bytes | None) -> bytes:
    """Create the session `session`. `password` is 16 bytes, or None: the one that the cell's secret makes."""
    record = encode_int(timeout_ms) + encode_buffer(password)
    return encode_command(time_ms, session, attach, 0, Op.CREATE_SESSION, b"", record)


def attach_session(time_ms: int, session: int, attach: int, timeout_ms: int) -> bytes:
    """Let a connection take a session over, with a timeout negotiated anew. `attach` is its `next_attach`."""
    return encode_command(time_ms, session, attach, 0, ATTACH, b"", encode_int(timeout_ms))


def close_unconnected(time_ms: int, session: int, attach: int, sequence: int) -> bytes:
    """End a session whose client has no connection; of no effect if it wrote by one since."""
    return encode_command(time_ms, session, attach, sequence, Op.CLOSE_SESSION, b"", b"")


def expire_session(time_ms: int, session: int, attach: int, term: int) -> bytes:
    """End a session that was silent too long; of no effect if it was taken over, or the leader replaced, since."""
    return encode_command(time_ms, session, attach, EXPIRY_SEQUENCE, Op.CLOSE_SESSION, b"", encode_long(term))


def sweep_node(time_ms: int, path: bytes, mzxid: int, pzxid: int) -> bytes:
    """Delete an empty container or TTL node, or a kept ephemeral; of no effect if it changed since these zxids."""
    record = encode_ustring(path) + encode_long(mzxid) + encode_long(pzxid)
    return encode_command(time_ms, 0, 0, 0, Op.DELETE_CONTAINER, b"", record)


def new_term(time_ms: int, term: int, cell_secret: bytes, options: TreeOptions) -> bytes:
    """Begin a leader's term, with its options. `cell_secret` becomes the cell's if it has none yet."""
    record = encode_long(term) + encode_buffer(cell_secret) + encode_buffer(options.encode())
    return encode_command(time_ms, 0, 0, 0, NEW_TERM, b"", record)


def made_reconfig(command: bytes, roster: bytes, text: bytes) -> bytes:
    """A client's reconfig, as its leader makes it: `text` is the configuration without its version."""
    return _decided(command, ErrorCode.OK, roster, text)


def refused_reconfig(command: bytes, err: ErrorCode) -> bytes:
    """A client's reconfig, as its leader refuses it."""
    return _decided(command, err, b"", b"")


def _decided(command: bytes, err: ErrorCode, roster: bytes, text: bytes) -> bytes:
    """Raises JuteError for bytes that are no command."""
    time_ms, session, attach, sequence, _, _ = Reader(command).unpack(HEAD)
    record = encode_int(err) + encode_buffer(roster) + encode_buffer(text) + encode_buffer(command)
    return encode_command(time_ms, session, attach, sequence, DECIDED_RECONFIG, b"", record)


def new_roster(time_ms: int, roster: bytes, text: bytes) -> bytes:
    """Say who the members are; of no effect if the tree knows. `text` is the configuration without its version."""
    record = encode_long(time_ms) + encode_buffer(roster) + encode_buffer(text)
    return encode_command(time_ms, 0, 0, 0, SET_ROSTER, b"", record)
