"""A member with its API for each test."""

from __future__ import annotations

import pytest

from tests.admin.api.house import ApiHouse


@pytest.fixture
def house() -> ApiHouse:
    return ApiHouse()
