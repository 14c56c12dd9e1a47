"""Watch requests that need both the watch table and the tree: check, remove, and catching up after a reconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from znoded.jute.errors import ErrorCode
from znoded.jute.records import SetWatches2Request, WatchKindRequest

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection
    from znoded.server.member import Member
    from znoded.watches.table import Watches
