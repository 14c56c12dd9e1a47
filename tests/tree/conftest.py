"""A tree to write to, and a session."""

from __future__ import annotations

import pytest

from tests.tree.world import Client, World


@pytest.fixture
def house() -> World:
    return World()


@pytest.fixture
def client(house: World) -> Client:
    return house.session()
