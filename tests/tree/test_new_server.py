"""What a new server has (protocol facts 4 and 5.4)."""

from __future__ import annotations

from tests.tree.world import OPEN, World, world
from znoded.jute.ops import Perm


def test_the_reserved_nodes_are_there(house: World) -> None:
    assert house.children(b"/") == [b"/zookeeper"]
    assert house.children(b"/zookeeper") == [b"/zookeeper/config", b"/zookeeper/quota"]
    assert len(house.tree.nodes) == 4
    assert all(house.data(path) == b"" for path in house.tree.nodes)


def test_their_stats_are_those_of_a_new_zookeeper(house: World) -> None:
    assert house.stat(b"/") == (0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
    assert house.stat(b"/zookeeper") == (0, 0, 0, 0, 0, -2, 0, 0, 0, 2, 0)
    assert house.stat(b"/zookeeper/quota") == (0,) * 11
    assert house.stat(b"/zookeeper/config") == (0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0)


def test_only_config_is_not_open(house: World) -> None:
    assert house.acl(b"/zookeeper/config") == world(Perm.READ)
    assert [house.acl(path) for path in (b"/", b"/zookeeper", b"/zookeeper/quota")] == [OPEN] * 3
