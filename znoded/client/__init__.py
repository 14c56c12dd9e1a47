"""A typed client of the native API, for asyncio and for Twisted.

The client itself is plain `async` code over an `Io`, which is all that it asks of the program it runs in: connections,
sleep, a clock, tasks. `asyncio_io.asyncio_client` and `twisted_io.twisted_client` make one for either.
"""

from znoded.client.client import Client
from znoded.client.errors import ApiError, LockLost, Unavailable
from znoded.client.locks import Held
from znoded.client.sessions import Session
from znoded.client.txn import Committed, Txn
from znoded.client.values import Event, Events, Item, Leader, Page, Progress

__all__ = [
    "ApiError",
    "Client",
    "Committed",
    "Event",
    "Events",
    "Held",
    "Item",
    "Leader",
    "LockLost",
    "Page",
    "Progress",
    "Session",
    "Txn",
    "Unavailable",
]
