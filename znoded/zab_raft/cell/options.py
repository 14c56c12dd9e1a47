"""What a member of a cell is told about itself, its cell and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.peers.founding import Table
from znoded.zab_raft.storage_options import StorageOptions

#: About how much is applied in one go, which takes some milliseconds: everybody waits for that.
APPLYING_BYTES = 1 << 17
#: Who streams a snapshot gives it up sooner, and tells the core; this is for a stream that nobody tells of.
SNAPSHOT_MS = 30_000


@dataclass(frozen=True, slots=True)
class CellOptions:
    """`roster` and `table` are the members in the configuration, with which a cell is founded.

    Of the log, `log_tail_bytes` before the checkpoint are kept for members that lag, in memory too.
    """

    storage: StorageOptions
    roster: Roster
    table: Table
    heartbeat_ms: int = 100
    election_ms: int = 1_000
    log_tail_bytes: int = 32 << 20

    @property
    def core(self) -> Options:
        return Options(
            election_ticks=max(2, self.election_ms // self.heartbeat_ms),
            snapshot_ticks=max(100, SNAPSHOT_MS // self.heartbeat_ms),
            applying_bytes=APPLYING_BYTES,
        )
