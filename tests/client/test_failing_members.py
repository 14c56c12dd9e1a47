"""The client and members that fail: whom it asks when, on a clock that the test moves."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.client.fake_cell import FakeCell
from znoded.client import ApiError, Client, Held, Progress, Session, Unavailable
from znoded.client.client import ANSWER_TIMEOUT_S, IDLE_MOST_S, PAUSE_MOST_S, STREAM_TIMEOUT_S

ITEM = {"key": "/a", "item": None}
COMMITTED = 200, {"succeeded": True, "results": [ITEM], "revision": 7}
ACQUIRED = 200, {"key": "/lock/1", "token": 5}
DONE: tuple[int, dict[str, Any]] = (200, {})


@pytest.fixture(autouse=True)
def members_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "shuffle", lambda members: None)


def refused(code: str) -> tuple[int, dict[str, Any]]:
    return 503, {"error": {"code": code, "message": "it is refused", "action": "Ask later."}}


def session_of(cell: FakeCell, client: Client, timeout_ms: int = 10_000) -> Session:
    """One that all members keep alive."""
    for member in cell.members:
        member.answers["session/create"] = 200, {"session": "secret", "id": "0x1", "timeout_ms": timeout_ms}
        member.answers["session/keepalive"] = member.answers["session/close"] = DONE
    return cell.result(client.session(timeout_ms))


@pytest.mark.parametrize("has_idle_connection", [False, True])
def test_two_calls_that_fail_at_one_member_turn_to_the_other(has_idle_connection: bool) -> None:
    cell = FakeCell(2)
    dead, well = cell.members
    client = cell.client()
    if has_idle_connection:
        dead.answers["get"] = DONE
        cell.result(client.call("get", {}))
        del dead.answers["get"]
        dead.asked.clear()
    well.answers["get"] = DONE
    calls = [cell.start(client.call("get", {})) for _ in range(2)]
    for call in calls:
        cell.result(call, ANSWER_TIMEOUT_S + PAUSE_MOST_S)
    assert (len(dead.asked), len(well.asked)) == (2, 2)


def test_a_call_that_fails_late_leaves_the_others_where_they_are() -> None:
    cell = FakeCell(2)
    dead, well = cell.members
    client = cell.client()
    well.answers["get"] = DONE
    first = cell.start(client.call("get", {}))
    cell.let_pass(1)
    late = cell.start(client.call("get", {}))
    cell.result(first)
    cell.result(late)
    cell.result(client.call("get", {}))
    assert (len(dead.asked), len(well.asked)) == (2, 3)


def test_the_connection_of_a_late_answer_does_not_lead_back_to_a_member_that_failed() -> None:
    cell = FakeCell(2)
    failing, well = cell.members
    client = cell.client()
    well.answers["get"] = DONE
    call = cell.start(client.call("get", {}))
    cell.let_pass(1)
    slow = cell.start(client.call("slow", {}))
    cell.let_pass(ANSWER_TIMEOUT_S, lambda: len(failing.streams) == 1)
    (stream,) = failing.streams
    stream.deliver(b"HTTP/1.1 200 A\r\nContent-Length: 2\r\n\r\n{}")
    cell.result(slow)
    cell.result(call)
    assert [asked.path for asked in failing.asked] == ["get", "slow"]


@pytest.mark.parametrize("timeout_ms", [600, 10_000])
@pytest.mark.parametrize("patience_s", [0.1, 30.0])
def test_a_session_is_kept_alive_by_the_last_member_that_can(timeout_ms: int, patience_s: float) -> None:
    cell = FakeCell(5)
    client = cell.client(patience_s)
    session = session_of(cell, client, timeout_ms)
    for silent in cell.members[:2]:
        del silent.answers["session/keepalive"]
    for unreachable in cell.members[2:4]:
        unreachable.is_reachable = False
    cell.let_pass(2 * timeout_ms / 1000)
    assert not session.is_lost
    assert len(cell.members[-1].asked_for("session/keepalive")) > 1


def test_a_session_that_no_member_keeps_alive_is_lost_in_time(caplog: pytest.LogCaptureFixture) -> None:
    cell = FakeCell(2)
    session = session_of(cell, cell.client())
    told: list[float] = []

    def fail() -> None:
        raise ValueError("a fault of the program")

    session.on_lost += [fail, lambda: told.append(cell.clock.seconds())]
    for member in cell.members:
        member.answers.clear()
    cell.let_pass(11)
    assert told == [pytest.approx(session.lost_at_s, abs=0.1)]
    (record,) = caplog.records
    assert "0x1" in record.message
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_patience_begins_with_the_first_failure() -> None:
    cell = FakeCell(2)
    client = cell.client(patience_s=20)
    with pytest.raises(Unavailable):
        cell.result(client.call("get", {}))
    assert [len(member.asked) for member in cell.members] == [2, 1]
    assert cell.clock.seconds() == pytest.approx(3 * ANSWER_TIMEOUT_S, abs=1)


def test_a_long_wait_for_a_lock_goes_on_at_another_member_for_what_is_left_of_it() -> None:
    cell = FakeCell(2)
    dying, well = cell.members
    client = cell.client()
    session = session_of(cell, client)
    well.answers["lock/acquire"] = ACQUIRED
    waiting = cell.start(client.lock(session, "/lock", timeout_s=40))
    cell.let_pass(31)
    dying.close_connections()
    assert cell.result(waiting, PAUSE_MOST_S).token == 5
    (first,), (second,) = dying.asked_for("lock/acquire"), well.asked_for("lock/acquire")
    assert first.fields["timeout_ms"] == 40_000
    assert second.fields["timeout_ms"] == pytest.approx(1000 * (40 - second.at_s), abs=1)
    assert first.fields["contender"] == second.fields["contender"]


def test_a_wait_for_a_lock_that_is_over_is_repeated_without_a_wait() -> None:
    cell = FakeCell(2)
    silent, well = cell.members
    client = cell.client()
    session = session_of(cell, client)
    well.answers["lock/acquire"] = refused("lock_timeout")
    with pytest.raises(ApiError) as caught:
        cell.result(client.lock(session, "/lock", timeout_s=1), 1 + ANSWER_TIMEOUT_S + PAUSE_MOST_S)
    assert caught.value.code == "lock_timeout"
    assert [asked.fields["timeout_ms"] for asked in silent.asked_for("lock/acquire")] == [1000]
    assert [asked.fields["timeout_ms"] for asked in well.asked_for("lock/acquire")] == [0]


def test_a_lock_that_fails_is_withdrawn_if_its_member_broke_off_before() -> None:
    """The other one need not know what the first one put in line."""
    cell = FakeCell(2)
    first, second = cell.members
    client = cell.client()
    session = session_of(cell, client, 100_000)
    second.answers["lock/acquire"] = refused("disk_full")
    locking = cell.start(client.lock(session, "/lock", timeout_s=5))
    cell.let_pass(1)
    first.close_connections()
    with pytest.raises(ApiError):
        cell.result(locking)
    cell.let_pass(1)
    assert [asked.fields["timeout_ms"] > 0 for asked in second.asked_for("lock/acquire")] == [True, False]


def test_a_session_is_kept_alive_though_a_proxy_answers_for_a_member() -> None:
    cell = FakeCell(2)
    client = cell.client()
    session = session_of(cell, client)
    for member in cell.members:
        member.answers["session/keepalive"] = 503, {"message": "no upstream"}
    cell.let_pass(4)
    for member in cell.members:
        member.answers["session/keepalive"] = DONE
    cell.let_pass(60)
    assert not session.is_lost


def test_a_stream_goes_on_elsewhere_though_a_proxy_answers_for_a_member() -> None:
    cell = FakeCell(2)
    first, second = cell.members
    first.answers["watch"] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>"
    line = b'{"type": "progress", "revision": 3}\n'
    second.answers["watch"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line)
    assert cell.result(anext(cell.client().watch(key="/a"))) == Progress(3)


def test_a_stream_that_falls_silent_goes_on_at_another_member() -> None:
    cell = FakeCell(2)
    for revision, member in enumerate(cell.members):
        line = json.dumps({"type": "progress", "revision": revision})
        member.answers["watch"] = b"HTTP/1.1 200 A\r\n\r\n" + line.encode() + b"\n"
    lines = cell.client(patience_s=STREAM_TIMEOUT_S / 2).watch(prefix="/")

    async def two_lines() -> list[object]:
        return [await anext(lines), await anext(lines)]

    assert cell.result(two_lines(), STREAM_TIMEOUT_S + PAUSE_MOST_S) == [Progress(0), Progress(1)]
    cell.result(lines.aclose())


def test_a_transaction_on_a_connection_that_was_closed_meanwhile_is_carried_out_once() -> None:
    cell = FakeCell(1)
    (member,) = cell.members
    member.answers["txn"] = COMMITTED
    client = cell.client()
    for count in range(1, 4):
        assert cell.result(client.put("/a", b"")) == 7
        assert len(member.asked) == count
        assert len(member.streams) == 1
        member.close_connections()


def test_an_idle_connection_is_used_again_for_a_while() -> None:
    cell = FakeCell(1)
    (member,) = cell.members
    member.answers["txn"] = COMMITTED
    client = cell.client()
    cell.result(client.put("/a", b""))
    (stream,) = member.streams
    cell.let_pass(IDLE_MOST_S / 2)
    cell.result(client.put("/a", b""))
    assert member.streams == {stream}
    cell.let_pass(IDLE_MOST_S)
    cell.result(client.put("/a", b""))
    assert stream not in member.streams


def test_a_transaction_that_broke_off_is_not_sent_again_and_the_next_one_goes_elsewhere() -> None:
    cell = FakeCell(2)
    silent, well = cell.members
    well.answers["txn"] = COMMITTED
    client = cell.client()
    with pytest.raises(Unavailable):
        cell.result(client.put("/a", b"1"))
    assert (len(silent.asked), well.asked) == (1, [])
    cell.result(client.put("/a", b"2"))
    assert (len(silent.asked), len(well.asked)) == (1, 1)


@pytest.mark.parametrize("answer", [None, refused("disk_full")])
def test_what_the_program_failed_with_is_told_though_the_lock_cannot_be_released(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cell = FakeCell(1)
    (member,) = cell.members
    client = cell.client(patience_s=1)
    session = session_of(cell, client)
    member.answers["lock/acquire"] = ACQUIRED
    if answer is not None:
        member.answers["lock/release"] = answer

    async def work(failure: Exception | None) -> Held:
        async with await client.lock(session, "/lock") as held:
            if failure is not None:
                raise failure
        return held

    with pytest.raises(ValueError, match="a fault of the program"):
        cell.result(work(ValueError("a fault of the program")))
    (record,) = caplog.records
    assert "/lock" in record.message
    with pytest.raises((ApiError, Unavailable)):
        cell.result(work(None))


@pytest.mark.parametrize("timeout_s", [-1.0, 600.1])
def test_a_wait_that_no_member_grants_is_refused(timeout_s: float) -> None:
    cell = FakeCell(1)
    client = cell.client()
    session = session_of(cell, client)
    with pytest.raises(ValueError, match="it has to be from 0 to 600"):
        cell.result(client.lock(session, "/lock", timeout_s=timeout_s))


def test_a_client_needs_a_member_and_a_watch_one_thing_to_follow() -> None:
    cell = FakeCell(1)
    client = cell.client()
    with pytest.raises(ValueError, match="members is empty"):
        Client(client.io, [])
    for wanted in ({}, {"key": "/a", "prefix": "/b"}):
        with pytest.raises(ValueError, match="either key or prefix"):
            cell.result(anext(client.watch(**wanted)))
