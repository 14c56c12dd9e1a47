"""Reconfig and /zookeeper/config: what the tree shows of the members, and what it refuses before a leader plans."""

from __future__ import annotations

import pytest

from tests.jute.factory import i4, i8, string
from tests.tree.test_checkpoint_tables import Checkpoint, state
from tests.tree.world import CHANGED, Client, World, world
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op, Perm
from znoded.jute.primitives import JuteError
from znoded.jute.records import ReconfigRequest
from znoded.tree.commands import DECIDED_RECONFIG, SET_ROSTER, encode_command, encode_identities
from znoded.tree.options import TreeOptions
from znoded.tree.proposals import made_reconfig, new_roster, refused_reconfig
from znoded.tree.reconfig import CONFIG, Asked, check_request, check_rights, original
from znoded.tree.refusal import Refused

FIRST = b"server.1=a:1:2:participant;a:3\n"
SECOND = FIRST + b"server.9=b:1:2:observer;b:3\n"
REQUEST = ReconfigRequest(b"server.9=b:1:2:observer;b:3", None, None, -1)
READ_ONLY = world(Perm.READ)


@pytest.fixture
def house() -> World:
    """A cell that has its first roster."""
    house = World(TreeOptions(reconfig=True))
    assert house.apply(new_roster(house.now_ms, b"first", FIRST)) == (0, b"")
    house.events()
    return house


@pytest.fixture
def client(house: World) -> Client:
    return house.session(0x100, (b"super", b""))


def command(client: Client, request: ReconfigRequest = REQUEST) -> bytes:
    """The next command of this client."""
    head = client.house.now_ms, client.id, client.attach, client.sequence + 1, Op.RECONFIG
    return encode_command(*head, encode_identities([(b"super", b"")]), request.encode())


def refusal(client: Client, command: bytes, is_pending: bool = False) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        check_request(client.house.tree, command, is_pending)
    return caught.value.err


class TestConfigNode:
    def test_a_member_alone_has_an_empty_one(self) -> None:
        house = World()
        assert (house.data(CONFIG), house.stat(CONFIG).version, house.tree.config_version) == (b"", 0, 0)

    def test_a_new_cell_shows_its_members_under_the_zxid_of_its_beginning(self, house: World) -> None:
        assert house.data(CONFIG) == FIRST + b"version=%x" % house.tree.zxid
        stat = house.stat(CONFIG)
        assert (stat.version, stat.mzxid, stat.mtime) == (-1, house.tree.zxid, house.now_ms)
        assert (stat.czxid, stat.aversion, stat.pzxid) == (0, -1, 0)
        assert stat.data_length == len(house.data(CONFIG) or b"")

    def test_a_cell_that_was_founded_with_its_roster_still_shows_it(self) -> None:
        house = World()
        house.tree.roster = b"first"
        house.apply(new_roster(house.now_ms, b"first", FIRST))
        assert house.data(CONFIG) == FIRST + b"version=%x" % house.tree.zxid

    def test_a_leader_that_says_what_is_known_changes_nothing(self, house: World) -> None:
        before = house.stat(CONFIG)
        house.apply(new_roster(house.now_ms, b"first", FIRST))
        assert house.stat(CONFIG) == before
        assert house.events() == []

    def test_a_leader_whose_members_were_set_by_hand_changes_it(self, house: World) -> None:
        house.apply(new_roster(house.now_ms, b"second", SECOND))
        assert house.tree.roster == b"second"
        assert house.data(CONFIG) == SECOND + b"version=%x" % house.tree.zxid
        assert house.events() == [(CHANGED, CONFIG)]

    def test_an_undecodable_roster_is_a_marshalling_error(self, house: World) -> None:
        assert house.command(SET_ROSTER, i8(1) + string(b"roster")) == ErrorCode.MARSHALLING_ERROR
        assert house.tree.roster == b"first"

    def test_it_comes_back_from_a_checkpoint(self, house: World) -> None:
        checkpoint = Checkpoint()
        checkpoint.write(house.tree.take_changes())
        loaded = checkpoint.load()
        assert (loaded.roster, loaded.config_version) == (b"first", house.tree.config_version)
        assert state(loaded) == state(house.tree)


class TestDecidedReconfig:
    def test_the_reply_is_the_new_text_and_its_stat(self, house: World, client: Client) -> None:
        err, body = house.apply(made_reconfig(command(client), b"second", SECOND))
        text = SECOND + b"version=%x" % house.tree.zxid
        assert (err, body) == (0, string(text) + house.stat(CONFIG).encode())
        assert house.stat(CONFIG).version == -1
        assert house.tree.config_version == house.stat(CONFIG).mzxid == house.tree.zxid
        assert house.tree.roster == b"second"

    def test_watchers_hear_of_it(self, house: World, client: Client) -> None:
        house.apply(made_reconfig(command(client), b"second", SECOND))
        assert house.events_with_acls() == [(CHANGED, CONFIG, READ_ONLY)]
        assert house.tree.history.since(house.tree.zxid - 1) == [(house.tree.zxid, CHANGED, CONFIG, True)]

    def test_the_version_moves_though_the_members_stay(self, house: World, client: Client) -> None:
        house.apply(made_reconfig(command(client), b"first", FIRST))
        assert house.data(CONFIG) == FIRST + b"version=%x" % house.tree.zxid

    def test_it_counts_as_the_next_command_of_its_session(self, house: World, client: Client) -> None:
        decided = made_reconfig(command(client), b"second", SECOND)
        assert house.apply(decided)[0] == ErrorCode.OK
        assert house.apply(decided)[0] == ErrorCode.SESSION_MOVED, "a repeat"
        client.sequence += 1
        assert client.create(b"/after") == b"/after"

    def test_a_refused_one_changes_nothing_but_the_sequence(self, house: World, client: Client) -> None:
        before = house.stat(CONFIG)
        decided = refused_reconfig(command(client), ErrorCode.NEW_CONFIG_NO_QUORUM)
        assert house.apply(decided) == (ErrorCode.NEW_CONFIG_NO_QUORUM, b"")
        assert (house.stat(CONFIG), house.events()) == (before, [])
        client.sequence += 1
        assert client.create(b"/after") == b"/after"

    def test_a_quota_on_the_node_counts_its_bytes(self, house: World, client: Client) -> None:
        for path in (b"", b"/zookeeper", b"/zookeeper/config"):
            client.create(b"/zookeeper/quota" + path)
        client.create(b"/zookeeper/quota/zookeeper/config/zookeeper_limits", b"")
        client.create(b"/zookeeper/quota/zookeeper/config/zookeeper_stats", b"")
        house.apply(made_reconfig(command(client), b"second", SECOND))
        stats = house.data(b"/zookeeper/quota/zookeeper/config/zookeeper_stats")
        assert stats == b"count=1,bytes=%d" % house.stat(CONFIG).data_length

    @pytest.mark.parametrize("record", [b"", i4(0), i4(0) + string(b"r"), i4(-4711) + string(b"") * 2])
    def test_an_undecodable_one_is_a_marshalling_error(self, client: Client, record: bytes) -> None:
        assert client.send(DECIDED_RECONFIG, record)[0] == ErrorCode.MARSHALLING_ERROR

    def test_who_proposed_it_knows_it_again(self, client: Client) -> None:
        asked_for = command(client)
        assert original(made_reconfig(asked_for, b"second", SECOND)) == asked_for
        assert original(refused_reconfig(asked_for, ErrorCode.BAD_VERSION)) == asked_for
        assert original(asked_for) == asked_for
        assert original(b"short") == b"short"

    def test_bytes_that_are_no_command_cannot_be_decided(self) -> None:
        with pytest.raises(JuteError):
            refused_reconfig(b"short", ErrorCode.BAD_VERSION)


class TestAsking:
    def test_the_request_and_the_identities_are_told(self, client: Client) -> None:
        asked = check_request(client.house.tree, command(client), False)
        assert asked == Asked(REQUEST, encode_identities([(b"super", b"")]))

    def test_the_version_may_be_left_out_or_has_to_be_the_present_one(self, client: Client) -> None:
        tree = client.house.tree
        present = ReconfigRequest(None, b"9", None, tree.config_version)
        assert check_request(tree, command(client, present), False).request == present
        for other in (0, tree.config_version + 1, -2):
            assert refusal(client, command(client, ReconfigRequest(None, b"9", None, other))) == ErrorCode.BAD_VERSION

    def test_it_is_refused_where_it_is_switched_off(self, client: Client) -> None:
        client.house.begin_term(2, options=TreeOptions())
        assert refusal(client, command(client), is_pending=True) == ErrorCode.RECONFIG_DISABLED

    def test_it_is_refused_to_a_session_that_is_gone(self, client: Client) -> None:
        asked_for = command(client)
        client.close()
        assert refusal(client, asked_for, is_pending=True) == ErrorCode.SESSION_EXPIRED

    def test_one_change_at_a_time_comes_before_the_version(self, client: Client) -> None:
        wrong_version = ReconfigRequest(None, b"9", None, 99)
        assert refusal(client, command(client, wrong_version), is_pending=True) == ErrorCode.RECONFIG_IN_PROGRESS

    def test_a_repeat_is_not_planned_again(self, house: World, client: Client) -> None:
        asked_for = command(client)
        house.apply(made_reconfig(asked_for, b"second", SECOND))
        assert refusal(client, asked_for) == ErrorCode.RECONFIG_IN_PROGRESS

    def test_a_newer_attach_begins_again(self, client: Client) -> None:
        attach = client.attach
        client.reconnect()
        assert check_request(client.house.tree, command(client), False).request == REQUEST
        client.sequence = 1
        assert refusal(client, command(client)) == ErrorCode.RECONFIG_IN_PROGRESS
        client.attach, client.sequence = attach, 0
        assert refusal(client, command(client)) == ErrorCode.RECONFIG_IN_PROGRESS

    @pytest.mark.parametrize("cut", [1, 8, 30])
    def test_an_undecodable_request_is_a_jute_error(self, client: Client, cut: int) -> None:
        with pytest.raises(JuteError):
            check_request(client.house.tree, command(client)[:-cut], False)
        with pytest.raises(JuteError):
            check_request(client.house.tree, command(client)[:cut], False)

    def test_only_who_may_write_the_node_may_change_the_members(self, client: Client) -> None:
        check_rights(client.house.tree, encode_identities([(b"super", b"")]))
        with pytest.raises(Refused) as caught:
            check_rights(client.house.tree, encode_identities([(b"ip", b"127.0.0.1")]))
        assert caught.value.err == ErrorCode.NO_AUTH


def test_a_lone_member_has_no_reconfig() -> None:
    record = REQUEST.encode()
    switched_off = World().session()
    assert switched_off.send(Op.RECONFIG, record)[0] == ErrorCode.RECONFIG_DISABLED
    switched_on = World(TreeOptions(reconfig=True)).session()
    assert switched_on.send(Op.RECONFIG, record)[0] == ErrorCode.UNIMPLEMENTED
    assert switched_on.send(Op.RECONFIG, b"")[0] == ErrorCode.MARSHALLING_ERROR
