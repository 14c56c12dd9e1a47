"""Options decide what commands do, so the log has them: what was applied is replayed as it was under any others."""

from __future__ import annotations

from tests.jute.factory import i8, string
from tests.tree.test_checkpoint_tables import state
from tests.tree.world import World
from znoded.jute.errors import ErrorCode
from znoded.tree import commands
from znoded.tree.options import TreeOptions
from znoded.tree.tree import Tree

OTHERS = TreeOptions(
    ttl_nodes=False,
    enforce_quota=False,
    reconfig=True,
    sasl_ids=True,
    x509_ids=True,
    children_bytes=3,
    acl_entries=2,
)


def test_a_log_is_replayed_under_its_own_options() -> None:
    house = World()
    client = house.session()
    assert client.create_ttl(b"/ttl", 1000) == b"/ttl"
    for number in range(5):
        assert client.create(b"/n%d" % number) == b"/n%d" % number
    replayed = Tree(OTHERS)
    for zxid, command in enumerate(house.log, 1):
        replayed.apply(zxid, command)
    assert state(replayed) == state(house.tree)


def test_new_options_count_from_the_next_term_on() -> None:
    house = World()
    client = house.session()
    house.begin_term(2, options=OTHERS)
    assert client.create_ttl(b"/ttl", 1000) == ErrorCode.UNIMPLEMENTED
    assert house.tree.options == OTHERS


def test_how_much_of_the_history_is_kept_is_everybodys_own_choice() -> None:
    kept = TreeOptions(history_bytes=1)
    assert kept.decided(OTHERS.encode()).history_bytes == 1


def test_a_term_with_undecodable_options_is_a_marshalling_error() -> None:
    house = World()
    for options in (string(b""), string(None), string(OTHERS.encode()[:-1])):
        assert house.command(commands.NEW_TERM, i8(5) + string(b"secret") + options) == ErrorCode.MARSHALLING_ERROR
    assert house.tree.term == 1
    assert house.tree.options == TreeOptions()
