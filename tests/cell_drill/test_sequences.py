"""The drill's check of sequential names."""

from __future__ import annotations

import pytest

from tests.cell_drill.sequences import Named, check_names


def named(number: int, invoked_s: float, responded_s: float) -> Named:
    return Named(b"n-%010d" % number, invoked_s, responded_s)


def test_names_that_grow_with_time_are_right() -> None:
    check_names([named(0, 1, 2), named(2, 3, 6), named(1, 4, 5), named(7, 8, 9)])


def test_a_name_that_was_given_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="twice"):
        check_names([named(1, 1, 2), named(1, 1, 2)])


def test_a_lower_number_behind_a_higher_one_is_found() -> None:
    with pytest.raises(AssertionError, match="after number 2"):
        check_names([named(2, 1, 2), named(1, 3, 4)])
