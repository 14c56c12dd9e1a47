"""Fencing at the resource: whoever guards it remembers the highest token and rejects lower ones. See docs/fencing.md.

It needs neither Kazoo nor a server: the tokens come with the requests.
"""

from znoded.fencing.errors import OutsideTransaction, StaleToken
from znoded.fencing.in_process import InProcessGuard
from znoded.fencing.sql import FencingGuard

__all__ = ["FencingGuard", "InProcessGuard", "OutsideTransaction", "StaleToken"]
