"""The number at the end of a sequential znode's name."""

from __future__ import annotations

import pytest

from znoded.tree.sequence import sequence_of


@pytest.mark.parametrize(
    ("path", "sequence"),
    [
        (b"/lock/x__lock__0000000008", 8),
        (b"/lock/x__lock__lock-0000000008", 8),
        (b"/lock/x__lock__2147483647", 2147483647),
        (b"/lock/x__lock__-2147483648", -2147483648),
        (b"/lock/x__lock__-000000001", -1),
        (b"/lock/lock--000000001", -1),
        (b"/lock/0000000008", 8),
        (b"/lock/x__lock__000000008", None),
        (b"/lock/0000000008x", None),
        (b"/lock/0000000008\n", None),
        (b"/lock", None),
    ],
)
def test_the_number_is_what_the_server_appended(path: bytes, sequence: int | None) -> None:
    assert sequence_of(path) == sequence
