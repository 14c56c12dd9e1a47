"""Sessions, and the order of their commands."""

from __future__ import annotations

import hmac

import pytest

from tests.jute.factory import i4, i8, string
from tests.tree.test_checkpoint_tables import Checkpoint
from tests.tree.world import CHILDREN, DELETED, EPHEMERAL, SECRET, Client, World
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.tree.proposals import attach_session, new_session
from znoded.tree.sessions import as_long, next_attach, session_password

MOVED = ErrorCode.SESSION_MOVED


def test_a_new_session_has_its_timeout_and_the_cells_password(house: World) -> None:
    client = house.session(0x77, timeout_ms=4000)
    session = house.tree.sessions[0x77]
    assert (session.id, session.timeout_ms, session.attach, session.sequence) == (0x77, 4000, client.attach, 0)
    assert session.password == hmac.digest(SECRET, i8(0x77), "sha256")[:16] == session_password(SECRET, 0x77)


def test_an_imported_session_keeps_its_password(house: World) -> None:
    assert house.command(Op.CREATE_SESSION, i4(4000) + string(b"p" * 16), 5, 9) == 0
    assert house.tree.sessions[5].password == b"p" * 16


def test_a_session_id_is_new_and_not_zero(house: World, client: Client) -> None:
    record = i4(4000) + string(None)
    for session_id in (0, client.id):
        assert house.command(Op.CREATE_SESSION, record, session_id, 9) == ErrorCode.BAD_ARGUMENTS


@pytest.mark.parametrize("record", [b"", i4(4000), i4(4000) + i4(-2)])
def test_an_undecodable_new_session_is_a_marshalling_error(house: World, record: bytes) -> None:
    assert house.command(Op.CREATE_SESSION, record, 5, 9) == ErrorCode.MARSHALLING_ERROR


def test_closing_takes_the_ephemerals_along_under_one_zxid(house: World, client: Client) -> None:
    client.create(b"/p")
    client.create(b"/p/b", flags=EPHEMERAL)
    client.create(b"/p/a", flags=EPHEMERAL)
    client.create(b"/p/stays")
    house.events()
    assert client.close() == 0
    assert house.events() == [(DELETED, b"/p/a"), (CHILDREN, b"/p"), (DELETED, b"/p/b"), (CHILDREN, b"/p")]
    assert house.children(b"/p") == [b"/p/stays"]
    assert (house.stat(b"/p").cversion, house.stat(b"/p").pzxid) == (5, house.tree.zxid)
    assert house.tree.sessions == {}


def test_closing_leaves_what_others_made_in_the_place_of_an_ephemeral(house: World, client: Client) -> None:
    client.create(b"/e", flags=EPHEMERAL)
    other = house.session(2)
    other.delete(b"/e")
    other.create(b"/e")
    client.close()
    assert b"/e" in house.tree.nodes


def test_after_its_end_a_session_writes_nothing(house: World, client: Client) -> None:
    client.close()
    assert client.create(b"/a") == ErrorCode.SESSION_EXPIRED
    assert client.close() == ErrorCode.SESSION_EXPIRED
    assert house.expire(client) == ErrorCode.SESSION_EXPIRED


def test_an_expired_session_ends_like_a_closed_one(house: World, client: Client) -> None:
    client.create(b"/e", flags=EPHEMERAL)
    assert house.expire(client) == 0
    assert b"/e" not in house.tree.nodes
    assert house.tree.sessions == {}


def test_an_expiry_is_refused_when_the_term_has_moved(house: World, client: Client) -> None:
    house.begin_term(2)
    assert house.expire(client, term=1) == MOVED
    assert house.expire(client, term=2) == 0


def test_an_expiry_is_refused_when_a_connection_took_the_session_over(house: World, client: Client) -> None:
    decided_under = client.attach
    again = Client(house, client.id)
    client.attach = decided_under
    assert house.expire(client) == MOVED
    assert house.expire(again) == 0


def test_a_session_that_was_silent_since_it_was_taken_over_expires(house: World, client: Client) -> None:
    client.reconnect()
    assert house.expire(client) == 0


def test_an_undecodable_expiry_is_a_marshalling_error(house: World, client: Client) -> None:
    assert house.command(Op.CLOSE_SESSION, b"short", client.id, client.attach, -1) == ErrorCode.MARSHALLING_ERROR


def test_commands_out_of_their_sequence_are_refused(house: World, client: Client) -> None:
    client.create(b"/a")
    client.sequence += 1
    assert client.create(b"/b") == MOVED, "a gap"
    client.sequence = 0
    assert client.create(b"/b") == MOVED, "a repetition"
    assert client.create(b"/b") == b"/b"
    assert house.children(b"/") == [b"/a", b"/b", b"/zookeeper"]


def test_a_refused_operation_counts_in_the_sequence(client: Client) -> None:
    assert client.delete(b"/absent") == ErrorCode.NO_NODE
    assert client.create(b"/a") == b"/a"


def test_the_old_connection_is_refused_once_the_new_one_is_there(house: World, client: Client) -> None:
    assert client.create(b"/before") == b"/before"
    again = Client(house, client.id)
    assert client.create(b"/after") == MOVED
    assert again.create(b"/a") == b"/a"


def test_a_session_that_is_gone_is_not_taken_over(house: World, client: Client) -> None:
    client.send(Op.CLOSE_SESSION, b"")
    attach = next_attach(client.attach, 1, 0)
    assert house.apply(attach_session(house.now_ms, client.id, attach, 4000))[0] == ErrorCode.SESSION_EXPIRED


def test_of_two_connections_the_later_attach_has_the_session(house: World, client: Client) -> None:
    """Whatever order the log has them in; and the same one again changes nothing."""
    first, second = next_attach(client.attach, 1, 0), next_attach(client.attach, 2, 0)
    assert house.apply(attach_session(house.now_ms, client.id, second, 6000))[0] == 0
    for refused in (first, second):
        assert house.apply(attach_session(house.now_ms, client.id, refused, 4000))[0] == MOVED
    assert (house.tree.sessions[client.id].attach, house.tree.sessions[client.id].timeout_ms) == (second, 6000)


def test_a_new_connection_begins_at_one(house: World, client: Client) -> None:
    client.create(b"/a")
    client.reconnect()
    client.sequence = 1
    assert client.create(b"/b") == MOVED
    client.sequence = 0
    assert client.create(b"/b") == b"/b"


def test_the_first_secret_of_a_cell_stays(house: World) -> None:
    house.begin_term(2, secret=b"another")
    assert (house.tree.term, house.tree.cell_secret) == (2, SECRET)


def test_idle_sessions_hold_no_set_of_ephemerals(house: World, client: Client) -> None:
    assert house.tree.sessions[client.id].ephemerals is None


@pytest.mark.parametrize("expire", [False, True])
def test_a_late_copy_of_its_beginning_does_not_bring_a_session_back(house: World, client: Client, expire: bool) -> None:
    begin = house.log[-1]
    assert (house.expire(client) if expire else client.close()) == 0
    assert house.apply(begin)[0] == ErrorCode.BAD_ARGUMENTS
    assert not house.tree.sessions


def test_the_numbers_of_each_member_grow(house: World) -> None:
    first, second = (member << 56 | 5 for member in (1, 2))
    for session_id in (first, second):
        house.session(session_id)
    for refused in (first, second, first - 1, 0):
        assert house.apply(new_session(house.now_ms, refused, 1, 4000, None))[0] == ErrorCode.BAD_ARGUMENTS
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    house.tree = checkpoint.load()
    assert house.tree.session_numbers == {1: 5, 2: 5}
    house.session(first + 1)
    house.session(as_long(0xFF << 56 | 1))
    assert house.tree.session_numbers == {1: 6, 2: 5, 0xFF: 1}
