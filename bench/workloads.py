"""What is measured for speed, and how much faster than ZooKeeper each has to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """A mode of the load driver with its options.

    `goal` is the least ratio of znoded's throughput to ZooKeeper's; None: there is no goal.
    `timed` says whether the driver runs for a given time; opening sessions ends by itself. `serializable`: znoded's
    clients ask for the reads that ZooKeeper's always get, which a member answers without asking the others.
    """

    name: str
    title: str
    mode: str
    connections: int
    depth: int = 1
    goal: float | None = None
    timed: bool = True
    serializable: bool = False


WORKLOADS = (
    Workload("reads-1", "reads, one at a time", "get", 100, 1, 1.5),
    Workload("reads-16", "reads, 16 in flight", "get", 100, 16, 4.0),
    Workload("writes-1", "writes, one at a time", "set", 100, 1, 1.2),
    Workload("writes-16", "writes, 16 in flight", "set", 100, 16, 2.0),
    Workload("mixed", "90 % reads", "mixed", 100, 1, 1.4),
    Workload("fanout", "watch fan-out to 2,000", "fanout", 2001, 1, 1.3),
    Workload("sessions", "new sessions", "sessions", 2000, 40, 1.0, timed=False),
    Workload("creates-1", "creates, one at a time", "create", 100, 1),
    Workload("creates-16", "creates, 16 in flight", "create", 100, 16),
)

#: The connections are spread over three members.
CELL_WORKLOADS = (
    Workload("cell-reads-1", "linearizable reads, one at a time", "get", 99, 1, 1.0),
    Workload("cell-serializable-1", "serializable reads, one at a time", "get", 99, 1, 1.5, serializable=True),
    Workload("cell-reads-16", "linearizable reads, 16 in flight", "get", 99, 16, 2.0),
    Workload("cell-writes-1", "writes, one at a time", "set", 99, 1, 1.5),
    Workload("cell-writes-16", "writes, 16 in flight", "set", 99, 16, 2.0),
)
