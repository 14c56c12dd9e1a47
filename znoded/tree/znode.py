"""A znode as it is stored: the very bytes that getData answers, which are the data as a buffer and the 68-byte Stat.

The fields are read and replaced at fixed offsets from the end (protocol facts 4).
"""

from __future__ import annotations

import struct

from znoded.jute.primitives import INT, LONG
from znoded.jute.stat import STAT, Stat

STAT_BYTES = STAT.size
NO_OWNER = 0

INT32_MAX = (1 << 31) - 1
_INT32_MIN = -(1 << 31)

#: czxid, mzxid, ctime, mtime, version, then cversion to ephemeralOwner, dataLength, then numChildren and pzxid.
DATA_FIELDS = struct.Struct(">8sq8sqi16si12s")
#: Those of them that a setData keeps, and the version.
KEPT_WITH_DATA = struct.Struct(">8s8x8s8xi16s4x12s")
# cversion, then aversion to dataLength, numChildren, pzxid
_CHILD_FIELDS = struct.Struct(">i16siq")
# mzxid, then ctime to numChildren, pzxid
_LAST_ZXIDS = struct.Struct(">q44xq")
_VERSION_AT, _CHILD_FIELDS_AT, _AVERSION_AT, _OWNER_AT = 36, 32, 28, 24
#: Where an owner lies in a znode's bytes, and what is there when there is none.
OWNER_SLICE = slice(-_OWNER_AT, -16)
NO_OWNER_BYTES = bytes(8)
_MTIME_AT, _MZXID_AT, _PZXID_AT, _DATA_LENGTH_AT, _NUM_CHILDREN_AT = 44, 60, 8, 16, 12


def new_stat(zxid: int, time_ms: int, owner: int, data_bytes: int) -> bytes:
    """The Stat of a znode just created; `owner` is a session id or NO_OWNER."""
    return STAT.pack(zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, data_bytes, 0, zxid)


def stat_of(node: bytes) -> bytes:
    """The Stat, as bytes."""
    return node[-STAT_BYTES:]


def parsed_stat(node: bytes) -> Stat:
    """The Stat, field by field."""
    return Stat._make(STAT.unpack_from(node, len(node) - STAT_BYTES))


def data_bytes_of(node: bytes) -> int:
    """The length of the data; 0 if it is null."""
    return len(node) - STAT_BYTES - 4


def data_of(node: bytes) -> bytes:
    """The data; empty if it is null."""
    return node[4:-STAT_BYTES]


def version_of(node: bytes) -> int:
    """The count of data changes."""
    value: int = INT.unpack_from(node, len(node) - _VERSION_AT)[0]
    return value


def aversion_of(node: bytes) -> int:
    """The count of ACL changes."""
    value: int = INT.unpack_from(node, len(node) - _AVERSION_AT)[0]
    return value


def owner_of(node: bytes) -> int:
    """The id of the session that an ephemeral belongs to, or NO_OWNER."""
    value: int = LONG.unpack_from(node, len(node) - _OWNER_AT)[0]
    return value


def mtime_of(node: bytes) -> int:
    """When the data was last changed, in ms since the epoch."""
    value: int = LONG.unpack_from(node, len(node) - _MTIME_AT)[0]
    return value


def czxid_of(node: bytes) -> int:
    """The zxid that created it."""
    value: int = LONG.unpack_from(node, len(node) - STAT_BYTES)[0]
    return value


def mzxid_of(node: bytes) -> int:
    """The zxid of the last change of the data."""
    value: int = LONG.unpack_from(node, len(node) - _MZXID_AT)[0]
    return value


def pzxid_of(node: bytes) -> int:
    """The zxid of the last creation or deletion of a child."""
    value: int = LONG.unpack_from(node, len(node) - _PZXID_AT)[0]
    return value


def last_zxid_of(node: bytes) -> int:
    """The zxid of the last change of the data, or creation or deletion of a child, if that came later."""
    value: int = max(_LAST_ZXIDS.unpack_from(node, len(node) - _MZXID_AT))
    return value


def next_count(count: int) -> int:
    """The next value of a 32-bit counter: behind 2147483647 comes -2147483648."""
    return count + 1 if count != INT32_MAX else _INT32_MIN


def next_version(version: int) -> int:
    """The next version: a 32-bit counter that leaves out -1, since that asks for no check at all."""
    return next_count(version) if version != -2 else 0


def with_data(node: bytes, data: bytes, zxid: int, time_ms: int) -> bytes:
    """The znode after a setData at `zxid`. `data` is an encoded buffer."""
    czxid, ctime, version, middle, tail = KEPT_WITH_DATA.unpack_from(node, len(node) - STAT_BYTES)
    version = version + 1 if 0 <= version < INT32_MAX else next_version(version)
    return data + DATA_FIELDS.pack(czxid, zxid, ctime, time_ms, version, middle, len(data) - 4, tail)


def with_data_unnoticed(node: bytes, data: bytes) -> bytes:
    """The znode with other data but the versions, zxids and times that it had. `data` is an encoded buffer."""
    return data + node[-STAT_BYTES:-_DATA_LENGTH_AT] + INT.pack(len(data) - 4) + node[-_NUM_CHILDREN_AT:]


def with_version(node: bytes, version: int) -> bytes:
    """The znode with another count of data changes."""
    return node[:-_VERSION_AT] + INT.pack(version) + node[-_CHILD_FIELDS_AT:]


def with_next_aversion(node: bytes) -> bytes:
    """The znode after a setACL."""
    return node[:-_AVERSION_AT] + INT.pack(next_version(aversion_of(node))) + node[-_OWNER_AT:]


def with_child_created(node: bytes, zxid: int) -> bytes:
    """The znode after the creation of a child at `zxid`."""
    # On the wire, cversion is twice the creations less the children: it goes up by one either way.
    cversion, middle, count, _ = _CHILD_FIELDS.unpack_from(node, len(node) - _CHILD_FIELDS_AT)
    return node[:-_CHILD_FIELDS_AT] + _CHILD_FIELDS.pack(next_count(cversion), middle, count + 1, zxid)


def with_child_deleted(node: bytes, zxid: int) -> bytes:
    """The znode after the deletion of a child at `zxid`."""
    cversion, middle, count, _ = _CHILD_FIELDS.unpack_from(node, len(node) - _CHILD_FIELDS_AT)
    return node[:-_CHILD_FIELDS_AT] + _CHILD_FIELDS.pack(next_count(cversion), middle, count - 1, zxid)
