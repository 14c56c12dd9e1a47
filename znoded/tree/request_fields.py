"""Where the fields of a request record are, for ops that take them out of its bytes without decoding all of it."""

from __future__ import annotations

import struct

from znoded.jute.primitives import INT, JuteError

_unpack_int = INT.unpack_from


def ends_of_path_and_data(record: bytes) -> tuple[int, int]:
    """Where the path that begins a record ends, and the data behind it, each null or not. Raises JuteError.

    In one go, since every create comes by; `set_data` does the same in place.
    """
    try:
        (path_bytes,) = _unpack_int(record, 0)
        path_end = 4 + path_bytes if path_bytes > 0 else 4
        (data_bytes,) = _unpack_int(record, path_end)
    except struct.error:
        raise JuteError(f"no path and data in {len(record)} bytes") from None
    data_end = path_end + 4 + data_bytes if data_bytes > 0 else path_end + 4
    if path_bytes < -1 or data_bytes < -1 or data_end > len(record):
        raise JuteError(f"no path of {path_bytes} and data of {data_bytes} bytes in {len(record)} bytes")
    return path_end, data_end


def end_of_buffer(record: bytes, position: int) -> int:
    """Where the buffer or string at `position` ends, null or not. Raises JuteError if that is beyond `record`."""
    size_bytes = int_at(record, position)
    end: int = position + 4 + size_bytes
    if size_bytes >= 0 and end <= len(record):
        return end
    if size_bytes == -1:
        return position + 4
    raise JuteError(f"no buffer of {size_bytes} bytes at byte {position} of {len(record)}")


def int_at(record: bytes, position: int) -> int:
    """The int at `position`. Raises JuteError."""
    try:
        value: int = _unpack_int(record, position)[0]
    except struct.error:
        raise JuteError(f"no int at byte {position} of {len(record)}") from None
    return value


def is_null(record: bytes, position: int) -> bool:
    """Whether the buffer or string at `position` is null, and not just empty."""
    return record.startswith(b"\xff\xff\xff\xff", position)
