"""Where in the log a checkpoint is, as it is stored with it."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from znoded.zab_raft.table_digests import DigestDiffers

POSITION_TABLE = b"position"
POSITION_KEY = b"index and term"

_FIELDS = Struct(">QQQ")
_CHECKSUM = Struct(">I")


@dataclass(frozen=True, slots=True)
class Position:
    """The entry that was applied last. `seal` is the digest of the table of digests."""

    index: int
    term: int
    seal: int

    def encode(self) -> bytes:
        """The form in which it is stored, with its own checksum."""
        fields = _FIELDS.pack(self.index, self.term, self.seal)
        return fields + _CHECKSUM.pack(crc32c(fields))

    @classmethod
    def decode(cls, stored: bytes | None) -> Position:
        """From its stored form, None being a checkpoint that holds nothing. Raises DigestDiffers."""
        if stored is None:
            return cls(0, 0, 0)
        fields = stored[: _FIELDS.size]
        if len(stored) != _FIELDS.size + _CHECKSUM.size or _CHECKSUM.pack(crc32c(fields)) != stored[_FIELDS.size :]:
            raise DigestDiffers("its checksum is another")
        return cls(*_FIELDS.unpack(fields))
