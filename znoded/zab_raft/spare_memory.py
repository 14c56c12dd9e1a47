"""Memory that was needed once, given back to the system: the C library keeps what is freed between what is not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _trim_of_libc() -> Callable[[int], object] | None:
    """glibc's malloc_trim; None where the C library is another one."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim


_TRIM = _trim_of_libc()


def give_spare_memory_back() -> None:
    """It takes some tens of ms with a large heap, and does not hold the interpreter meanwhile: for a thread."""
    if _TRIM is not None:
        _TRIM(0)
