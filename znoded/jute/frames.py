"""Frames: every packet is a 4-byte length, which does not count itself, and the payload (protocol facts 1.2)."""

from __future__ import annotations

from znoded.jute.primitives import INT, JuteError


class FrameTooLong(JuteError):
    """A frame's length is negative or above the limit; `payloads` are the whole frames that came before it."""

    def __init__(self, frame_bytes: int, frame_bytes_limit: int, payloads: list[bytes]) -> None:
        super().__init__(f"a frame of {frame_bytes} bytes; 0 to {frame_bytes_limit} are allowed")
        self.frame_bytes = frame_bytes
        self.payloads = payloads


class FrameSplitter:
    """Cuts a stream of bytes, fed in pieces of any size, into frame payloads.

    Holds at most one incomplete frame: its length and up to `frame_bytes_limit` bytes (1048575 in ZooKeeper).
    """

    def __init__(self, frame_bytes_limit: int) -> None:
        self._frame_bytes_limit = frame_bytes_limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that `data` completes, in order.

        Raises FrameTooLong as soon as a bad length is seen, and again at every later call: the stream is lost there.
        """
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        start = 0
        while len(buffer) - start >= 4:
            (frame_bytes,) = INT.unpack_from(buffer, start)
            if not 0 <= frame_bytes <= self._frame_bytes_limit:
                del buffer[:start], buffer[4:]
                raise FrameTooLong(frame_bytes, self._frame_bytes_limit, payloads)
            end = start + 4 + frame_bytes
            if end > len(buffer):
                break
            payloads.append(bytes(buffer[start + 4 : end]))
            start = end
        del buffer[:start]
        return payloads


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return INT.pack(len(payload)) + payload
