"""Opening, resuming and losing sessions."""

from __future__ import annotations

import pytest

from tests.jute.factory import frame, i4, i8, request, string
from tests.server.harness import Client, House, close, create, get_data, ping, set_data
from znoded.jute.ops import Op
from znoded.tree.proposals import attach_session, expire_session, new_session
from znoded.tree.sessions import next_attach

OTHER_MEMBER = 2
EXPIRED = i4(0) + i4(0) + i8(0) + i4(16) + bytes(16)


@pytest.fixture
def house() -> House:
    return House()


def test_a_new_session_is_granted_when_it_is_committed(house: House) -> None:
    client = house.connect()
    client.shake()
    assert client.frames() == []
    house.replica.commit()
    assert client.established() == 10_000
    assert client.session_id in house.member.tree.sessions


@pytest.mark.parametrize(("asked", "granted"), [(1, 4_000), (-5, 4_000), (5_000, 5_000), (2**31 - 1, 40_000)])
def test_the_timeout_lies_between_two_and_twenty_ticks(house: House, asked: int, granted: int) -> None:
    client = house.connect()
    client.shake(timeout_ms=asked)
    house.replica.commit()
    assert client.established() == granted


def test_an_old_client_gets_no_read_only_byte(house: House) -> None:
    client = house.connect()
    client.send(frame(i4(0), i8(0), i4(10_000), i8(0), string(bytes(16))))
    house.replica.commit()
    (payload,) = client.frames()
    assert len(payload) == 36


def test_requests_right_behind_the_connect_request_wait_for_it(house: House) -> None:
    client = house.connect()
    hello = frame(i4(0), i8(0), i4(10_000), i8(0), string(bytes(16)), b"\0")
    client.send(hello, create(1, b"/a"), get_data(2, b"/a"))
    house.replica.commit()
    house.replica.commit()
    response, *replies = client.frames()
    assert len(response) == 37
    assert [reply[:4] for reply in replies] == [i4(1), i4(2)]


def test_a_client_from_the_future_is_closed_without_a_word(house: House) -> None:
    client = house.connect()
    client.shake(zxid=10_000)
    assert client.transport.aborted
    assert client.frames() == []


def test_id_and_password_bring_a_session_back(house: House) -> None:
    client = house.client()
    client.send(create(1, b"/e", flags=1))
    house.replica.commit()
    client.drop()
    again = house.connect()
    again.resume(client.session_id, client.password, timeout_ms=6_000)
    assert again.established() == 6_000
    assert (again.session_id, again.password) == (client.session_id, client.password)
    again.send(set_data(1, b"/e"))
    house.replica.commit()
    assert again.replies() == [(1, 0)]


@pytest.mark.parametrize("password", [bytes(16), b"", b"x" * 16, b"x" * 100])
def test_a_wrong_password_is_told_expired_and_disturbs_nobody(house: House, password: bytes) -> None:
    owner = house.client()
    thief = house.connect()
    thief.shake(owner.session_id, password)
    assert thief.frames() == [EXPIRED + b"\0"]
    assert thief.is_closed
    owner.send(get_data(1, b"/none"))
    assert owner.replies() == [(1, -101)]


def test_an_unknown_session_is_told_expired(house: House) -> None:
    client = house.connect()
    client.shake(4711, bytes(16))
    assert client.frames() == [EXPIRED + b"\0"]
    assert client.is_closed


def test_a_second_connection_takes_over(house: House) -> None:
    first = house.client()
    second = house.connect()
    second.resume(first.session_id, first.password)
    assert first.transport.aborted
    assert second.established() == 10_000


def test_what_was_sent_before_a_takeover_takes_effect_before_what_is_sent_after_it(house: House) -> None:
    """A lock recipe comes back and looks for its create: it must not be told no when that is still in the log."""
    first = house.client()
    first.send(create(1, b"/lock"))
    second = house.connect()
    second.shake(first.session_id, first.password)
    second.send(get_data(1, b"/lock"))
    assert second.frames() == []
    house.replica.commit()
    response, reply = second.frames()
    assert len(response) == 37
    assert reply[:4] + reply[12:16] == i4(1) + i4(0)


def test_a_session_being_closed_cannot_be_resumed(house: House) -> None:
    client = house.client()
    client.send(close(1))
    again = house.connect()
    again.resume(client.session_id, client.password)
    assert again.frames() == [EXPIRED + b"\0"]


def test_a_session_whose_end_is_decided_but_not_made_may_be_taken_over(house: House) -> None:
    """The leader that decided so may have been replaced, and then the session lives on."""
    client = house.client()
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    live.closing = True
    again = house.connect()
    again.resume(client.session_id, client.password)
    assert again.established() == 10_000


def test_a_taken_over_connection_that_still_waits_is_closed(house: House) -> None:
    first = house.client()
    first.send(create(1, b"/a"))
    second, third = house.connect(), house.connect()
    second.shake(first.session_id, first.password)
    third.shake(first.session_id, first.password)
    house.replica.commit()
    assert second.transport.aborted
    assert third.established() == 10_000


def test_a_full_disk_opens_no_session(house: House) -> None:
    house.replica.writable = False
    client = house.connect()
    client.shake()
    assert client.transport.aborted


def test_sessions_have_a_limit() -> None:
    house = House(**{"limits.sessions": 1})
    house.client()
    second = house.connect()
    second.shake()
    assert second.transport.aborted


def test_connections_of_an_address_have_a_limit() -> None:
    house = House(**{"limits.connections_per_address": 2})
    clients = [house.connect() for _ in range(3)]
    assert [client.transport.aborted for client in clients] == [False, False, True]
    clients[2].drop()
    clients[0].drop()
    assert not house.connect().transport.aborted


@pytest.mark.parametrize("length", [-1, 0, 8, 27, 2**31 - 1, 1_048_576])
def test_a_first_frame_that_is_no_connect_request_is_closed_without_a_word(house: House, length: int) -> None:
    client = house.connect()
    client.send(i4(length) + b"x" * 20)
    assert client.transport.aborted
    assert client.frames() == []


@pytest.mark.parametrize("password_bytes", [2_000, 100_000])
def test_a_connect_request_with_a_long_password_gets_a_session(house: House, password_bytes: int) -> None:
    client = house.connect()
    whole = frame(i4(0), i8(0), i4(10_000), i8(0), string(bytes(password_bytes)), b"\0")
    client.send(whole[:50])
    client.send(whole[50:])
    house.replica.commit()
    assert client.established() == 10_000


def test_the_connect_request_and_words_are_packets_received(house: House) -> None:
    house.client()
    asking = house.connect()
    asking.send(b"cons")
    asked, opened = sorted(line.strip() for line in asking.transport.value().decode().splitlines() if line)
    assert asked.endswith("[0](queued=0,recved=1,sent=0)")
    assert "[1](queued=0,recved=1,sent=1,sid=0x" in opened
    assert ",lop=SESS," in opened
    assert f",lcxid=0x0,lzxid=0x{house.member.zxid:x}," in opened
    assert house.member.stats.packets_received == 2


def test_a_trace_mask_is_not_waited_for(house: House) -> None:
    client = house.connect()
    client.send(b"stmk")
    assert client.transport.value() == b""
    assert client.is_closed


def test_a_word_in_pieces_is_answered(house: House) -> None:
    client = house.connect()
    for letter in (b"r", b"u", b"o"):
        client.send(letter)
        assert client.transport.value() == b""
    client.send(b"k")
    assert client.transport.value() == b"imok"
    assert client.is_closed


def test_after_the_handshake_a_word_is_only_bytes(house: House) -> None:
    client = house.client()
    client.send(b"ruok" + bytes(12))
    assert client.transport.aborted


def test_sasl_that_is_not_configured_is_a_null_token(house: House) -> None:
    client = house.client()
    client.send(request(1, Op.SASL, string(b"")))
    (reply,) = client.frames()
    assert reply == i4(1) + i8(0) + i4(0) + i4(-1)


def test_the_same_client_may_connect_again_and_again(house: House) -> None:
    client: Client = house.client()
    for _ in range(20):
        again = house.connect()
        again.resume(client.session_id, client.password)
        again.established()
        client.drop()
        client = again
    assert len(house.member.admission) == 1


def taken_over_elsewhere(house: House, client: Client) -> None:
    """Another member of the cell takes the session of a client over."""
    session = house.member.tree.sessions[client.session_id]
    house.replica.propose([attach_session(0, session.id, next_attach(session.attach, OTHER_MEMBER, 0), 10_000)])
    house.replica.commit()


def test_the_old_connection_of_a_session_that_moved_to_another_member_keeps_it_alive(house: House) -> None:
    client = house.client()
    taken_over_elsewhere(house, client)
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    live.heard_ms = 0
    client.send(ping())
    assert client.replies() == [(-2, 0)]
    assert live.heard_ms > 0


def test_the_old_connection_of_a_session_that_moved_to_another_member_is_closed_when_it_writes(house: House) -> None:
    client = house.client()
    taken_over_elsewhere(house, client)
    client.send(set_data(1, b"/"))
    assert client.transport.aborted


def test_the_old_connection_of_a_session_that_moved_to_another_member_does_not_close_it(house: House) -> None:
    client = house.client()
    taken_over_elsewhere(house, client)
    client.send(close(1))
    house.replica.commit()
    assert client.session_id in house.member.tree.sessions


def test_the_old_connection_of_a_session_that_moved_to_another_member_ends_with_it(house: House) -> None:
    client = house.client()
    taken_over_elsewhere(house, client)
    session = house.member.tree.sessions[client.session_id]
    house.replica.propose([expire_session(0, session.id, session.attach, house.member.tree.term)])
    house.replica.commit()
    assert client.transport.aborted


def test_the_old_connection_of_a_session_that_moved_away_and_came_back_is_closed(house: House) -> None:
    client = house.client()
    taken_over_elsewhere(house, client)
    again = house.connect()
    again.resume(client.session_id, client.password)
    again.established()
    assert client.transport.aborted
    client.drop()
    again.send(ping())
    assert again.replies() == [(-2, 0)]


def test_an_old_connection_that_goes_away_leaves_its_session_alone(house: House) -> None:
    client = house.client()
    taken_over_elsewhere(house, client)
    client.drop()
    live = house.member.sessions.get(client.session_id)
    assert live is not None
    assert live.former is None


def test_a_session_whose_id_is_old_is_begun_anew_by_its_client(house: House) -> None:
    """A member whose clock was set back, and that does not know of its last sessions, makes such ids."""
    first = house.client()
    late = house.connect()
    late.shake()
    before_ours = first.session_id + (3_600_000 << 16)  # its process before began one when the clock was an hour ahead
    begin = new_session(0, before_ours, 1, 10_000, None)
    house.replica.collected.insert(0, begin)
    house.replica.commit()
    assert late.is_closed
    again = house.client()
    assert again.session_id > before_ours


def test_a_late_copy_of_its_beginning_does_not_bring_a_session_back(house: House) -> None:
    """What its client had sent before, on its way still, is not done either."""
    client = house.connect()
    client.shake()
    begin = house.replica.collected[-1]
    house.replica.commit()
    client.established()
    client.send(create(1, b"/lock", flags=1))
    late = house.replica.collected.pop()
    session = house.member.tree.sessions[client.session_id]
    house.replica.collected.append(expire_session(0, session.id, session.attach, house.member.tree.term))
    house.replica.commit()
    house.replica.collected += [begin, late]
    house.replica.commit()
    assert b"/lock" not in house.member.tree.nodes
    again = house.connect()
    again.resume(client.session_id, client.password)
    again.established()
    assert again.session_id == 0
