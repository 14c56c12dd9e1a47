"""The member's own session: writes like a client's, through whatever happens to the member."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.server.harness import House
from znoded.jute.primitives import Reader
from znoded.server import local_session
from znoded.server.local_session import Busy, LocalSession, NotWritten, OutcomeUnknown
from znoded.tree.commands import encode_identities
from znoded.tree.txn_records import Kind, TxnOp, TxnReply, TxnRequest

PATIENCE_MS = 5_000
ANYONE = encode_identities(())


def put(path: bytes, data: bytes = b"") -> bytes:
    op = TxnOp(Kind.PUT, path, data, None, 0, -1, None, False)
    return TxnRequest(0, (), (op,), ()).encode()


class LocalHouse(House):
    """A member that writes for itself."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(**keys)
        self.now_ms = self.member.monotonic_ms()
        self.member.monotonic_ms = lambda: self.now_ms  # type: ignore[method-assign]
        self.session = LocalSession(self.member, self.clock, PATIENCE_MS)

    def open(self) -> None:
        self.session.start()
        self.pass_time(0)
        self.replica.commit()
        self.pass_time(0)

    def pass_time(self, time_ms: int) -> None:
        self.now_ms += time_ms
        self.clock.advance(time_ms / 1000)
        self.clock.advance(0)

    def write(self, record: bytes) -> list[Any]:
        """What becomes of a write: filled when it is known."""
        outcome: list[Any] = []
        done: Deferred[Any] = self.session.write(record, ANYONE)
        done.addBoth(lambda result: outcome.append(result.type if isinstance(result, Failure) else result))
        return outcome


@pytest.fixture
def house() -> LocalHouse:
    house = LocalHouse()
    house.open()
    return house


def test_a_write_is_answered_with_its_zxid(house: LocalHouse) -> None:
    outcome = house.write(put(b"/a"))
    assert outcome == []
    house.replica.commit()
    house.pass_time(0)
    (written,) = outcome
    assert (written.error, written.zxid) == (0, house.member.zxid)
    assert TxnReply.decode(Reader(written.body)).holds


def test_it_counts_for_no_limit_of_those_who_connect() -> None:
    house = LocalHouse(**{"limits.connections": 1, "limits.connections_per_address": 1})
    house.open()
    client = house.client()
    assert client.established
    assert not client.is_closed


def test_writes_wait_for_the_session(house: LocalHouse) -> None:
    waiting = LocalHouse()
    outcome = waiting.write(put(b"/a"))
    waiting.open()
    waiting.replica.commit()
    waiting.pass_time(0)
    assert outcome[0].error == 0


def test_what_was_not_sent_in_time_was_not_written() -> None:
    house = LocalHouse()
    house.member.serving = False
    house.session.start()
    outcome = house.write(put(b"/a"))
    for _ in range(12):
        house.pass_time(500)
    assert outcome == [NotWritten]


def test_what_was_sent_and_not_answered_in_time_is_unknown(house: LocalHouse) -> None:
    outcome = house.write(put(b"/a"))
    for _ in range(12):
        house.pass_time(500)
    assert outcome == [OutcomeUnknown]
    house.replica.commit()
    house.pass_time(0)
    assert b"/a" in house.member.tree.nodes
    later = house.write(put(b"/b"))
    house.replica.commit()
    house.pass_time(0)
    assert later[0].error == 0


def test_a_session_that_is_lost_is_followed_by_another(house: LocalHouse) -> None:
    outcome = house.write(put(b"/a"))
    (connection,) = house.member.admission
    connection.abort()
    house.pass_time(0)
    assert outcome == [OutcomeUnknown]
    later = house.write(put(b"/b"))
    house.pass_time(500)
    house.replica.commit()
    house.pass_time(0)
    house.replica.commit()
    house.pass_time(0)
    assert later[0].error == 0


def test_it_is_kept_alive(house: LocalHouse) -> None:
    (connection,) = house.member.admission
    live = connection.live
    assert live is not None
    live.heard_ms = 0
    house.pass_time(500)
    assert live.heard_ms > 0


def test_more_than_the_member_takes_waits_and_is_written_in_order() -> None:
    house = LocalHouse(**{"limits.outstanding_per_connection": 2})
    house.open()
    outcomes = [house.write(put(b"/a", b"%d" % number)) for number in range(7)]
    assert len(house.replica.collected) == 2
    for _ in range(10):
        house.replica.commit()
        house.pass_time(0)
    zxids = [outcome[0].zxid for outcome in outcomes]
    assert zxids == sorted(zxids)
    assert house.member.tree.nodes[b"/a"][4:5] == b"6"


def test_only_so_much_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_session, "WAITING_WRITES", 2)
    house = LocalHouse()
    for _ in range(2):
        house.write(put(b"/a"))
    with pytest.raises(Busy):
        house.session.write(put(b"/a"), ANYONE)


def test_a_write_that_is_given_up_does_not_answer_the_next(house: LocalHouse) -> None:
    done = house.session.write(put(b"/a"), ANYONE)
    done.addErrback(lambda _cancelled: None)
    done.cancel()
    outcome = house.write(put(b"/b"))
    house.replica.commit()
    house.pass_time(0)
    assert outcome[0].zxid == house.member.zxid


def test_a_member_that_stops_closes_it(house: LocalHouse) -> None:
    house.session.stop()
    house.pass_time(0)
    assert not list(house.member.admission)
