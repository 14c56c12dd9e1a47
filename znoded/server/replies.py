"""What a server sends, as whole frames: replies and notifications, with length, header and record."""

from __future__ import annotations

import struct

from znoded.jute.ops import NOTIFICATION_XID, KeeperState

SYNC_CONNECTED = int(KeeperState.SYNC_CONNECTED)
#: Frame length, xid, zxid, error.
REPLY = struct.Struct(">iiqi")
REPLY_HEADER_BYTES = 16
#: The same, then event type, keeper state and the length of the path, which follows.
NOTIFICATION = struct.Struct(">iiqiiii")


def reply_frame(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    """A reply; `body` is the record, if there was no error."""
    return REPLY.pack(REPLY_HEADER_BYTES + len(body), xid, zxid, error) + body


def notification_frame(zxid: int, event_type: int, path: bytes) -> bytes:
    """A watch notification. `zxid` is that of the change, or -1 for a change from before the watch was set again."""
    size_bytes = len(path)
    length = REPLY_HEADER_BYTES + 12 + size_bytes
    return NOTIFICATION.pack(length, NOTIFICATION_XID, zxid, 0, event_type, SYNC_CONNECTED, size_bytes) + path
