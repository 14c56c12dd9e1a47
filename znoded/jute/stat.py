"""Stat, the 68-byte record of a znode's versions, times and counts (protocol facts 4)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from znoded.jute.primitives import Reader

STAT = struct.Struct(">qqqqiiiqiiq")


class Stat(NamedTuple):
    """A znode's Stat as it is on the wire: times in ms since the epoch, `cversion` computed, `data_length` in bytes.

    `ephemeral_owner` is the owning session's id, 0 for a znode that is not ephemeral.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int

    def encode(self) -> bytes:
        """The 68 bytes of the record."""
        return STAT.pack(*self)

    @classmethod
    def decode(cls, reader: Reader) -> Stat:
        """Read a Stat; JuteError if fewer than 68 bytes are left."""
        return cls._make(reader.unpack(STAT))
