"""What the history cannot tell, as a named error of the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from znoded.admin.api import errors
from znoded.tree.history import Compacted, FutureRevision
from znoded.tree.history_segment import Unreadable


@contextmanager
def named_errors() -> Iterator[None]:
    """Raises compacted, future_revision, and busy while the checkpoint cannot be read."""
    try:
        yield
    except Compacted as compacted:
        raise errors.compacted(compacted.oldest) from None
    except FutureRevision as future:
        raise errors.future_revision(future.current) from None
    except Unreadable:
        raise errors.busy() from None
