"""The numbers of sequential znodes (protocol facts 4)."""

from __future__ import annotations

from tests.tree.world import EPHEMERAL_SEQUENTIAL, SEQUENTIAL, Client, World

INT32_MAX = 2**31 - 1


def test_every_creation_counts_and_no_deletion_does(client: Client) -> None:
    client.create(b"/p")
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s-0000000000"
    client.create(b"/p/plain")
    client.delete(b"/p/plain")
    assert client.create(b"/p/e-", flags=EPHEMERAL_SEQUENTIAL) == b"/p/e-0000000002"


def test_the_first_number_below_the_root_is_zero(client: Client) -> None:
    assert client.create(b"/s-", flags=SEQUENTIAL) == b"/s-0000000000"


def test_a_path_that_ends_in_a_slash_is_named_by_its_number(client: Client) -> None:
    client.create(b"/p")
    assert client.create(b"/p/", flags=SEQUENTIAL) == b"/p/0000000000"
    assert client.create(b"/", flags=SEQUENTIAL) == b"/0000000001"
    assert client.create(b"/p/..", flags=SEQUENTIAL) == b"/p/..0000000001"


def test_sets_and_grandchildren_do_not_count(client: Client) -> None:
    client.create(b"/p")
    client.set(b"/p")
    client.create(b"/p/a")
    client.create(b"/p/a/b")
    assert client.create(b"/p/", flags=SEQUENTIAL) == b"/p/0000000001"


def test_a_parent_created_again_counts_from_zero(client: Client) -> None:
    for _ in range(2):
        client.create(b"/p")
        assert client.create(b"/p/", flags=SEQUENTIAL) == b"/p/0000000000"
        client.delete(b"/p/0000000000")
        client.delete(b"/p")


def test_behind_the_largest_number_comes_the_smallest(house: World, client: Client) -> None:
    client.create(b"/p")
    house.tree.created[b"/p"] = INT32_MAX
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s-2147483647"
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s--2147483648"
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s--2147483647"
    house.tree.created[b"/p"] = -1
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s--000000001"
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s-0000000000"
