"""glibc's malloc_trim: what is freed between what is not is kept by the C library, until it is told to give it back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _of_libc() -> Callable[[int], object] | None:
    """None where the C library is another one."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim


_malloc_trim = _of_libc()


def malloc_trim() -> None:
    """Give memory that was needed once back to the system.

    It takes some tens of ms with a large heap, and does not hold the interpreter meanwhile: for a thread.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)
