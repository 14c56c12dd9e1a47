"""Counts and latencies of the requests served, for the four-letter words and the metrics."""

from __future__ import annotations


class RequestStats:
    """Packets in and out and the latency of requests. Updated once per batch, never per request."""

    __slots__ = (
        "latency_count", "latency_last_ms", "latency_max_ms", "latency_min_ms", "latency_sum_ms", "packets_received",
        "packets_sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, as the word `srst` asks."""
        self.packets_received = 0
        self.packets_sent = 0
        self.latency_count = 0
        self.latency_last_ms = 0.0
        self.latency_sum_ms = 0.0
        self.latency_min_ms = 0.0
        self.latency_max_ms = 0.0

    def answered(self, count: int, latency_ms: float) -> None:
        """`count` requests were answered, each `latency_ms` after it was received."""
        self.packets_sent += count
        self.latency_last_ms = latency_ms
        if not self.latency_count or latency_ms < self.latency_min_ms:
            self.latency_min_ms = latency_ms
        if latency_ms > self.latency_max_ms:
            self.latency_max_ms = latency_ms
        self.latency_count += count
        self.latency_sum_ms += latency_ms * count

    @property
    def latency_avg_ms(self) -> float:
        """Mean latency in ms, 0.0 before the first request."""
        return self.latency_sum_ms / self.latency_count if self.latency_count else 0.0
