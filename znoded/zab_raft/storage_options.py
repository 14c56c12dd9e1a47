"""Where and how a replica keeps what it has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Where and how a replica keeps its data.

    A checkpoint begins every `checkpoint_interval_ms`, or as soon as `checkpoint_bytes` have changed.
    """

    data_dir: str
    member: int = 1
    segment_bytes: int = 16 << 20
    checkpoint_interval_ms: int = 5_000
    checkpoint_bytes: int = 16 << 20
