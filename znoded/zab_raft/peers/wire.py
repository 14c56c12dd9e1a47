"""The frames that members exchange, as bytes: a kind, and a record of jute's big-endian numbers without tags.

An append is the hot one. Its entries follow each other without a gap, so their indexes are not sent; their terms, kinds
and lengths are columns, each packed and unpacked as a whole, and their bytes come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from itertools import accumulate
from struct import Struct
from typing import Any, NamedTuple

from znoded.jute.primitives import JuteError, Reader
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

#: No frame, without its length, is longer.
FRAME_BYTES_LIMIT = 16 << 20


class FrameKind(IntEnum):
    """What a frame carries, and so the type of its record."""

    #: A message of the core.
    RAFT = 1
    #: A `Forward`: commands for the leader to propose.
    FORWARD = 2
    #: A `Change`: one change of the membership for the leader to propose.
    CHANGE = 3
    #: Bytes, for the leader's state machine.
    TELL = 4


class Forward(NamedTuple):
    """Commands that a member wants proposed, in order, by the leader of `term`."""

    term: int
    commands: Sequence[bytes]


class Change(NamedTuple):
    """A change of the membership that a member wants proposed by the leader of `term`."""

    term: int
    command: bytes


FrameRecord = Message | Forward | Change | bytes

_HEAD = Struct(">IB")
_COUNT = Struct(">I")
_ID = Struct(">Q")
_APPEND = Struct(">6QI")
_SNAPSHOT = Struct(">5Q")
_CONFIGURATION = Struct(">?Q")
#: Of the frame's kind and the message's code.
_CODE_BYTES = 2
_APPEND_END = _CODE_BYTES + _APPEND.size
_ENTRY_LEAST_BYTES = 13
_RAFT = FrameKind.RAFT
_KINDS = tuple(EntryKind)
_kind_of = _KINDS.__getitem__
_make_entry: Callable[[Iterable[Any]], Entry] = partial(tuple.__new__, Entry)


def encode_frame(kind: FrameKind, record: Any) -> bytes:
    """The whole frame, its length in front; the record's type is the one that belongs to the kind.

    Raises ValueError if it would be too long.
    """
    pieces = _ENCODERS[kind](record)
    size_bytes = 1 + sum(map(len, pieces))
    if size_bytes > FRAME_BYTES_LIMIT:
        raise ValueError(f"a frame of {size_bytes} bytes; {FRAME_BYTES_LIMIT} are allowed")
    return b"".join((_HEAD.pack(size_bytes, kind), *pieces))


def decode_frame(payload: bytes) -> tuple[FrameKind, FrameRecord]:
    """Kind and record of a frame without its length. Raises JuteError unless the bytes are exactly that."""
    decode = _MESSAGE_DECODERS.get(payload[:_CODE_BYTES])
    if decode is not None:
        return _RAFT, decode(payload)
    kind = _OTHER_KINDS.get(payload[:1])
    if kind is None:
        raise JuteError(f"no frame begins with {payload[:_CODE_BYTES].hex() or 'nothing'}")
    return kind, _OTHER_DECODERS[kind](payload)


def _encode_message(message: Message) -> list[bytes]:
    return _MESSAGE_ENCODERS[type(message)](message)


def _encode_append(code: bytes, message: AppendRequest) -> list[bytes]:
    sender, to, term, previous_index, previous_term, entries, commit = message
    count = len(entries)
    head = code + _APPEND.pack(sender, to, term, previous_index, previous_term, commit, count)
    if not count:
        return [head]
    _, terms, kinds, data = zip(*entries, strict=True)
    return [head, _entry_columns(count).pack(*terms, *kinds, *map(len, data)), *data]


def _decode_append(payload: bytes) -> AppendRequest:
    rest_bytes = len(payload) - _APPEND_END
    if rest_bytes < 0:
        raise JuteError(f"an append of {len(payload)} bytes")
    sender, to, term, previous_index, previous_term, commit, count = _APPEND.unpack_from(payload, _CODE_BYTES)
    if count * _ENTRY_LEAST_BYTES > rest_bytes:  # before anything is allocated for them
        raise JuteError(f"{count} entries need at least {count * _ENTRY_LEAST_BYTES} bytes, {rest_bytes} are left")
    columns = _entry_columns(count)
    heads = columns.unpack_from(payload, _APPEND_END)
    kinds = heads[count : 2 * count]
    if count and max(kinds) >= len(_KINDS):
        raise JuteError(f"no entry has kind {max(kinds)}")
    data = _slices(payload, _APPEND_END + columns.size, heads[2 * count :])
    first_index = previous_index + 1
    rows = zip(range(first_index, first_index + count), heads[:count], map(_kind_of, kinds), data, strict=True)
    return AppendRequest(sender, to, term, previous_index, previous_term, tuple(map(_make_entry, rows)), commit)


def _encode_install(code: bytes, message: InstallSnapshot) -> list[bytes]:
    snapshot = message.snapshot
    head = _SNAPSHOT.pack(message.sender, message.to, message.term, snapshot.index, snapshot.term)
    return [code, head, *_encode_configuration(snapshot.configuration)]


def _decode_install(payload: bytes) -> InstallSnapshot:
    reader = Reader(payload, _CODE_BYTES)
    sender, to, term, index, snapshot_term = reader.unpack(_SNAPSHOT)
    configuration = _decode_configuration(reader)
    if reader.remaining:
        raise JuteError(f"{reader.remaining} bytes behind a snapshot")
    return InstallSnapshot(sender, to, term, Snapshot(index, snapshot_term, configuration))


def _encode_configuration(configuration: Configuration) -> list[bytes]:
    parts = configuration.voters, configuration.outgoing, configuration.learners, configuration.learners_next
    flags = _CONFIGURATION.pack(configuration.auto_leave, configuration.highest_id)
    return [flags, *[_COUNT.pack(len(ids)) + _ids(len(ids)).pack(*sorted(ids)) for ids in parts]]


def _decode_configuration(reader: Reader) -> Configuration:
    auto_leave, highest_id = reader.unpack(_CONFIGURATION)
    voters, outgoing, learners, learners_next = [_decode_ids(reader) for _ in range(4)]
    configuration = Configuration(voters, outgoing, learners, learners_next, auto_leave, highest_id)
    try:
        configuration.check()
    except InvariantBroken as error:
        raise JuteError(f"not a configuration: {error}") from error
    return configuration


def _decode_ids(reader: Reader) -> frozenset[int]:
    (count,) = reader.unpack(_COUNT)
    _check_count(reader, count, _ID.size)
    return frozenset(reader.unpack(_ids(count)))


def _encode_forward(forward: Forward) -> list[bytes]:
    commands = forward.commands
    count = len(commands)
    return [_ID.pack(forward.term), _COUNT.pack(count), _lengths(count).pack(*map(len, commands)), *commands]


def _decode_forward(payload: bytes) -> Forward:
    reader = Reader(payload, 1)
    (term,) = reader.unpack(_ID)
    (count,) = reader.unpack(_COUNT)
    _check_count(reader, count, _COUNT.size)
    lengths = reader.unpack(_lengths(count))
    return Forward(term, _slices(payload, reader.position, lengths))


def _encode_change(change: Change) -> list[bytes]:
    return [_ID.pack(change.term), change.command]


def _decode_change(payload: bytes) -> Change:
    reader = Reader(payload, 1)
    (term,) = reader.unpack(_ID)
    return Change(term, payload[reader.position :])


def _encode_tell(payload: bytes) -> list[bytes]:
    return [payload]


def _decode_tell(payload: bytes) -> bytes:
    return payload[1:]


def _slices(payload: bytes, start: int, lengths: Sequence[int]) -> list[bytes]:
    """The byte strings of these lengths, one behind the other, that the payload ends with."""
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] != len(payload):
        raise JuteError(f"{len(lengths)} items end at byte {ends[-1]}, their frame at byte {len(payload)}")
    return [payload[begin:end] for begin, end in zip(ends, ends[1:], strict=False)]


def _check_count(reader: Reader, count: int, least_item_bytes: int) -> None:
    """Before anything is allocated for them."""
    if count * least_item_bytes > reader.remaining:
        raise JuteError(f"{count} items need at least {count * least_item_bytes} bytes, {reader.remaining} are left")


@lru_cache(256)
def _entry_columns(count: int) -> Struct:
    """Terms, kinds and lengths of `count` entries."""
    return Struct(f">{count}Q{count}B{count}I")


@lru_cache(256)
def _lengths(count: int) -> Struct:
    return Struct(f">{count}I")


@lru_cache(16)
def _ids(count: int) -> Struct:
    return Struct(f">{count}Q")


def _encode_fixed(layout: Struct, code: bytes, message: Any) -> list[bytes]:
    return [code + layout.pack(*message)]


def _decode_fixed(layout: Struct, make: Callable[[Iterable[Any]], Any], payload: bytes) -> Any:
    if len(payload) != _CODE_BYTES + layout.size:
        raise JuteError(f"a message of {len(payload)} bytes, {_CODE_BYTES + layout.size} belong there")
    return make(layout.unpack_from(payload, _CODE_BYTES))


def _code(message: type[Any]) -> bytes:
    """What the frame of such a message begins with, its kind aside."""
    return bytes([_MESSAGES[message][0]])


#: Message -> its code, and the layout of its fields if all of them are numbers and flags.
_MESSAGES: dict[type[Any], tuple[int, str]] = {
    AppendRequest: (1, ""),
    AppendResponse: (2, ">4Q?QQ?"),
    Heartbeat: (3, ">5Q"),
    HeartbeatResponse: (4, ">4Q"),
    VoteRequest: (5, ">3Q??4Q"),
    VoteResponse: (6, ">3Q??2Q"),
    InstallSnapshot: (7, ""),
    TimeoutNow: (8, ">3Q"),
    ReadRequest: (9, ">4Q"),
    ReadResponse: (10, ">5Q?"),
}
_MESSAGE_ENCODERS: dict[type[Any], Callable[[Any], list[bytes]]] = {
    AppendRequest: partial(_encode_append, _code(AppendRequest)),
    InstallSnapshot: partial(_encode_install, _code(InstallSnapshot)),
}
_MESSAGE_DECODERS: dict[bytes, Callable[[bytes], Any]] = {
    bytes([_RAFT]) + _code(AppendRequest): _decode_append,
    bytes([_RAFT]) + _code(InstallSnapshot): _decode_install,
}
for _class, (_, _layout) in _MESSAGES.items():
    if _layout:
        _MESSAGE_ENCODERS[_class] = partial(_encode_fixed, Struct(_layout), _code(_class))
        _MESSAGE_DECODERS[bytes([_RAFT]) + _code(_class)] = partial(_decode_fixed, Struct(_layout), _class._make)

_ENCODERS: dict[FrameKind, Callable[[Any], list[bytes]]] = {
    FrameKind.RAFT: _encode_message,
    FrameKind.FORWARD: _encode_forward,
    FrameKind.CHANGE: _encode_change,
    FrameKind.TELL: _encode_tell,
}
_OTHER_DECODERS: dict[FrameKind, Callable[[bytes], Any]] = {
    FrameKind.FORWARD: _decode_forward,
    FrameKind.CHANGE: _decode_change,
    FrameKind.TELL: _decode_tell,
}
_OTHER_KINDS = {bytes([kind]): kind for kind in _OTHER_DECODERS}
