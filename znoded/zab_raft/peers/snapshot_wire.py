"""What is said on a connection that streams a snapshot. Pure.

    leader                                        member that lags
      header: the message of the core            ->
                                                 <-  position: the last key that is durable there, or a refusal
      chunk: items of one table, checksummed     ->  .. and so on
                                                 <-  stored: how many chunks of this connection are durable
      end                                        ->
                                                 <-  done

All are frames of a kind byte and what belongs to it. A chunk is its table and the lengths of its keys and values, then
the bytes of all keys, then those of all values; its checksum covers all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate
from struct import Struct

from crc32c import crc32c

from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.zab_raft.core.messages import InstallSnapshot
from znoded.zab_raft.peers.wire import FRAME_BYTES_LIMIT, FrameKind, decode_frame, encode_frame

Items = Sequence[tuple[bytes, bytes]]

FRAME_LENGTH_BYTES = 4
_FRAME = Struct(">IB")
_CHUNK_FRAME = Struct(">IBI")
_CHECKSUM = Struct(">I")
_CHUNK = Struct(">II")
_STORED = Struct(">I")


class Part(IntEnum):
    """What a frame is."""

    HEADER = 1
    POSITION = 2
    CHUNK = 3
    STORED = 4
    END = 5
    DONE = 6
    REFUSED = 7


def part_of(payload: bytes) -> Part:
    """The kind of a frame's payload. Raises JuteError."""
    if payload and payload[0] in Part._value2member_map_:
        return Part(payload[0])
    raise JuteError(f"no part of a snapshot begins with {payload[:1].hex() or 'nothing'}")


def encode_header(message: InstallSnapshot) -> bytes:
    return encode_part(Part.HEADER, encode_frame(FrameKind.RAFT, message)[FRAME_LENGTH_BYTES:])


def decode_header(payload: bytes) -> InstallSnapshot:
    """Raises JuteError."""
    _, message = decode_frame(payload[1:])
    if not isinstance(message, InstallSnapshot):
        raise JuteError("the header of a snapshot is another message")
    return message


def encode_position(table: bytes, key: bytes) -> bytes:
    """Go on behind this key of this table; both are empty for the beginning."""
    return encode_part(Part.POSITION, encode_buffer(table) + encode_buffer(key))


def decode_position(payload: bytes) -> tuple[bytes, bytes]:
    """Raises JuteError."""
    reader = Reader(payload, 1)
    table, key = reader.buffer(), reader.buffer()
    if table is None or key is None or reader.remaining:
        raise JuteError("not a position in a snapshot")
    return table, key


def encode_stored(count: int) -> bytes:
    return encode_part(Part.STORED, _STORED.pack(count))


def decode_stored(payload: bytes) -> int:
    """Raises JuteError."""
    reader = Reader(payload, 1)
    count: int = reader.unpack(_STORED)[0]
    if reader.remaining:
        raise JuteError("not a count of chunks")
    return count


def encode_part(part: Part, body: bytes = b"") -> bytes:
    """A whole frame."""
    return _FRAME.pack(1 + len(body), part) + body


def encode_chunk(table: bytes, items: Items) -> bytes:
    """A whole frame. Raises ValueError if it would be too long."""
    keys, values = zip(*items, strict=True)
    lengths = Struct(f">{2 * len(items)}I").pack(*map(len, keys), *map(len, values))
    body = b"".join((_CHUNK.pack(len(items), len(table)), lengths, table, *keys, *values))
    size_bytes = 1 + _CHECKSUM.size + len(body)
    if size_bytes > FRAME_BYTES_LIMIT:
        raise ValueError(f"a chunk of {size_bytes} bytes; {FRAME_BYTES_LIMIT} are allowed")
    return _CHUNK_FRAME.pack(size_bytes, Part.CHUNK, crc32c(body)) + body


def decode_chunk(payload: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Table and items. Raises JuteError, also for a checksum that does not match."""
    reader = Reader(payload, 1)
    (checksum,) = reader.unpack(_CHECKSUM)
    with memoryview(payload) as view:
        if crc32c(view[reader.position :]) != checksum:
            raise JuteError("the checksum of a chunk does not match")
    count, table_bytes = reader.unpack(_CHUNK)
    if 8 * count > reader.remaining:
        raise JuteError(f"a chunk of {count} items in {reader.remaining} bytes")
    lengths = reader.unpack(Struct(f">{2 * count}I"))
    start = reader.position + table_bytes
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] != reader.end:
        raise JuteError(f"a chunk ends at byte {ends[-1]}, its frame at {reader.end}")
    pieces = [payload[begin:end] for begin, end in zip(ends, ends[1:], strict=False)]
    return payload[reader.position : start], list(zip(pieces[:count], pieces[count:], strict=True))
