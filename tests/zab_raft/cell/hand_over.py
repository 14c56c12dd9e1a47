"""Has the leader hand over to a member of the test's choice: by itself it takes one that is farthest."""

from __future__ import annotations

from znoded.zab_raft.cell.replica import CellReplica
from znoded.zab_raft.core.messages import NOBODY


def hand_over(leader: CellReplica, number: int) -> None:
    """Let the member with this number lead. Raises Refused."""
    leader._running.transfer_leader(leader.roster.raft_id(number) or NOBODY)
    leader._wake()
