"""How an operation says no."""

from __future__ import annotations

from znoded.jute.errors import ErrorCode


class Refused(Exception):
    """The request is not carried out and changes nothing; `err` is the code for its reply."""

    def __init__(self, err: ErrorCode) -> None:
        super().__init__(err)
        self.err = err
