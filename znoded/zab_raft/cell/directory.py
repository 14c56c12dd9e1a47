"""The data directory of a member of a cell, which may not know its cell yet."""

from __future__ import annotations

import os
from dataclasses import replace

from znoded.zab_raft.directory import DataDirectory, Meta
from znoded.zab_raft.errors import DirectoryError
from znoded.zab_raft.peers.identity import INCARNATION_BYTES, NO_CELL, Identity


class CellDirectory(DataDirectory):
    """A data directory with an incarnation: random bytes that are drawn with it and lost with it.

    To open that of a member that is alone raises `DirectoryError`, too.
    """

    @property
    def identity(self) -> Identity:
        """Who the member is towards the others."""
        meta = self.meta
        cell = bytes.fromhex(meta.cell) or NO_CELL
        return Identity(cell, meta.member, meta.raft_id, bytes.fromhex(meta.incarnation))

    def enter_cell(self, cell: bytes, raft_id: int) -> None:
        """Remember for good that the member is in this cell under this id."""
        self._write_meta(replace(self.meta, cell=cell.hex(), raft_id=raft_id))

    def _check_kind(self, meta: Meta) -> None:
        if not meta.incarnation:
            raise DirectoryError(
                f"{self.path} belongs to a member that is alone, not to one of a cell: it starts with no "
                "[cell.members] in its configuration; for a member of a cell, name another data directory"
            )

    def _first_meta(self, member: int) -> Meta:
        return Meta("", member, initialised=False, incarnation=os.urandom(INCARNATION_BYTES).hex())

    def _copied_meta(self) -> Meta:
        """That of a member that is alone: a copy must not take part in the cell, whose log it does not have."""
        return replace(self.meta, initialised=False, raft_id=0, incarnation="")
