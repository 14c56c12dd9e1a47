"""Recipes for Kazoo users: locks and elections whose holders get a fencing token. See docs/fencing.md.

They work with any ZooKeeper server, and import nothing of znoded's.
"""

from znoded.recipes.election import FencedElection, Leader
from znoded.recipes.errors import AcquireCancelled, AcquireTimeout, LeaseLost, SessionTimeoutUnknown
from znoded.recipes.guarded import GuardedTransaction
from znoded.recipes.lease import Lease
from znoded.recipes.lock import FencedLock, FencedReadLock, FencedWriteLock
from znoded.recipes.tenure import Standing

__all__ = [
    "AcquireCancelled",
    "AcquireTimeout",
    "FencedElection",
    "FencedLock",
    "FencedReadLock",
    "FencedWriteLock",
    "GuardedTransaction",
    "Leader",
    "Lease",
    "LeaseLost",
    "SessionTimeoutUnknown",
    "Standing",
]
