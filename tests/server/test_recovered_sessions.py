"""Sessions over a restart: what the log held counts, not what this process saw."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.jute.factory import i4
from tests.server import harness
from tests.server.harness import Client, HandReplica, House, close, create, ping, set_data
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.server.housekeeping import HEARING_S
from znoded.tree.commands import HEAD, encode_command


class RecordedReplica(HandReplica):
    """A log that the next member starts from."""

    log: list[bytes] = []
    starts = 0

    def start(self) -> None:
        RecordedReplica.starts += 1
        self.term = RecordedReplica.starts
        self._index = len(self.log)
        self.machine.apply_batch(1, list(self.log))

    def commit(self, count: int | None = None) -> None:
        self.log += self.collected[:count]
        super().commit(count)


@pytest.fixture(autouse=True)
def recorded_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedReplica, "log", [])
    monkeypatch.setattr(RecordedReplica, "starts", 0)
    monkeypatch.setattr(harness, "HandReplica", RecordedReplica)


def pass_time(house: House, time_ms: int) -> None:
    """Let the member's clock go on, and its timer of silent sessions fire."""
    now_ms = house.member.monotonic_ms() + time_ms
    house.member.monotonic_ms = lambda: now_ms  # type: ignore[method-assign]
    house.member._housekeeping._last_look_ms = now_ms
    house.member._housekeeping._end_silent_sessions()
    house.clock.advance(HEARING_S)
    house.replica.commit()


def taken_over(house: House, owner: Client) -> Client:
    """The same session on another connection."""
    client = house.connect()
    client.shake(owner.session_id, owner.password)
    house.replica.commit()
    client.established()
    return client


def test_a_session_that_was_taken_over_before_a_restart_still_ends() -> None:
    before = House()
    client = taken_over(before, before.client())
    client.send(create(1, b"/lock", flags=1))
    before.replica.commit()
    after = House()
    assert b"/lock" in after.member.tree.nodes
    pass_time(after, 60_000)
    assert b"/lock" not in after.member.tree.nodes
    assert not after.member.tree.sessions


def test_an_end_that_apply_refuses_comes_due_again() -> None:
    house = House()
    client = house.client()
    house.member.tree.term += 1  # the end is decided under another term
    pass_time(house, 60_000)
    assert client.session_id in house.member.tree.sessions
    assert client.connection.is_reading
    house.member.tree.term -= 1
    pass_time(house, 60_000)
    assert not house.member.tree.sessions


def test_a_session_id_is_not_given_out_again_when_the_clock_was_set_back() -> None:
    with mock.patch("time.time", return_value=1_790_000_000.0):
        before = House()
        first = before.client()
        first.send(close(1))
        before.replica.commit()
        after = House()
        assert after.client().session_id != first.session_id


@pytest.mark.parametrize("mark", [0, 0xFFFFFF])
def test_what_the_last_process_proposed_is_not_taken_for_this_ones(mark: int) -> None:
    """It is still on its way to the leader when its member is back, and the client too."""
    before = House()
    owner = before.client()
    lost = before.connect()
    lost.shake(owner.session_id, owner.password)
    (attach,) = before.replica.collected
    time_ms, session_id, number, *_ = HEAD.unpack_from(attach)
    write = encode_command(time_ms, session_id, number, 1, Op.CREATE, b"", create(0, b"/lost")[12:])

    after = House()
    after.member.handshake._mark = mark
    client = after.connect()
    client.shake(owner.session_id, owner.password)
    after.replica.collected.insert(0, attach)
    after.replica.commit()
    client.send(set_data(1, b"/nothing"))
    after.replica.collected.insert(0, write)
    after.replica.commit()
    # The greater mark has the session. The other one's client is sent away, and may come again.
    assert client.transport.aborted == (mark == 0)
    assert [frame[12:16] for frame in client.frames()[1:]] == ([] if mark == 0 else [i4(ErrorCode.NO_NODE)])


def test_a_client_that_was_not_served_in_time_is_heard_before_its_session_ends() -> None:
    """The process was busy or stopped, and what clients sent meanwhile is served after the timer."""
    house = House()
    client = house.client(timeout_ms=4_000)
    now_ms = house.member.monotonic_ms() + 7_000
    with (
        mock.patch.object(house.member, "monotonic_ms", return_value=now_ms),
        mock.patch("time.monotonic", return_value=now_ms / 1000),
    ):
        house.member._housekeeping._last_look_ms = now_ms
        house.member._housekeeping._end_silent_sessions()
        client.send(ping())
        house.clock.advance(HEARING_S)
        house.replica.commit()
    assert client.session_id in house.member.tree.sessions


def test_a_client_is_not_answered_any_more_once_its_session_is_to_end() -> None:
    """It would take an answer for a sign that it has the session for another timeout."""
    house = House()
    client = house.client(timeout_ms=4_000)
    now_ms = house.member.monotonic_ms() + 7_000
    with mock.patch.object(house.member, "monotonic_ms", return_value=now_ms):
        house.member._housekeeping._last_look_ms = now_ms
        house.member._housekeeping._end_silent_sessions()
        house.clock.advance(HEARING_S)
        assert not client.connection.is_reading
        client.connection.go_on()
        assert not client.connection.is_reading, "whatever else it waited for"
        house.replica.commit()
    assert client.transport.aborted


def test_a_session_does_not_end_while_a_pause_is_not_over_for_its_client() -> None:
    """The process was stopped between the tick and the decision, and what clients sent is served after that."""
    house = House()
    client = house.client(timeout_ms=4_000)
    now_ms = house.member.monotonic_ms() + 7_000
    housekeeping = house.member._housekeeping
    with mock.patch.object(house.member, "monotonic_ms", return_value=now_ms) as clock:
        housekeeping._last_look_ms = now_ms
        housekeeping._end_silent_sessions()
        clock.return_value += 5 * house.member.config.tick_ms
        house.clock.advance(HEARING_S)
        house.replica.commit()
        assert client.session_id in house.member.tree.sessions
        housekeeping._end_silent_sessions()  # it grants the full timeout again
        clock.return_value += 4_000 + house.member.config.tick_ms
        pass_time(house, 0)
        assert client.session_id not in house.member.tree.sessions


def test_a_session_ends_however_short_the_tick_is_and_late_the_process() -> None:
    """Being late by more than two such ticks is no pause."""
    house = House(tick_ms=10)
    client = house.client(timeout_ms=200)
    let_time_pass(house, 0.03, 30)
    assert client.session_id not in house.member.tree.sessions


@pytest.mark.parametrize("tick_ms", [1, 10])
def test_no_timer_is_left_when_a_member_with_a_short_tick_stops(tick_ms: int) -> None:
    house = House(tick_ms=tick_ms)
    let_time_pass(house, 0.001, 410)
    house.member.stop()
    assert house.clock.getDelayedCalls() == []


def let_time_pass(house: House, step_s: float, steps: int) -> None:
    """Let the timers fire, which see the time of the test's clock."""
    start_ms = house.member.monotonic_ms()
    start_s = house.clock.seconds()
    house.member.monotonic_ms = lambda: start_ms + round((house.clock.seconds() - start_s) * 1000)  # type: ignore[method-assign]
    for _ in range(steps):
        house.clock.advance(step_s)
        house.replica.commit()
