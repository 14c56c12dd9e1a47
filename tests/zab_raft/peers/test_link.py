"""A link to a member: when it dials, how long it waits, and what it does when it is told to hurry or to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from znoded.zab_raft.peers.handshake import Purpose, Refused
from znoded.zab_raft.peers.link import Link


class HandConnection:
    """A connection that was dialled; the test says when it ends."""

    def __init__(self) -> None:
        self.closing = False
        self.sent: list[bytes] = []
        self.on_ended: Callable[[bool], None] = lambda by_other: None

    def open(self, *arguments: Any) -> None:
        """All that it takes."""

    def send(self, frame: bytes) -> bool:
        self.sent.append(frame)
        return True

    def close(self) -> None:
        self.closing = True


class HandDialler:
    """Dials that the test answers."""

    def __init__(self) -> None:
        self.reactor = Clock()
        self.dials: list[Deferred[Any]] = []
        self.cancelled = 0

    def dial(self, purpose: Purpose, raft_id: int, number: int, address: str) -> Deferred[Any]:
        assert (purpose, raft_id, number, address) == (Purpose.FRAMES, 7, 2, "second:2888")
        self.dials.append(Deferred(self._cancelled))
        return self.dials[-1]

    def _cancelled(self, dial: Deferred[Any]) -> None:
        self.cancelled += 1


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def link_opened(self, raft_id: int) -> None:
        self.told.append(("opened", raft_id))

    def link_lost(self, raft_id: int, by_other: bool) -> None:
        self.told.append(("lost", raft_id, by_other))


class Bench:
    """A link under test."""

    def __init__(self, random: Callable[[], float] = lambda: 0.0) -> None:
        self.dialler = HandDialler()
        self.events = Events()
        dialler: Any = self.dialler
        self.link = Link(dialler, 7, 2, "second:2888", self.events, random)
        self.link.start()

    def fail(self) -> None:
        self.dialler.dials[-1].errback(ConnectionRefusedError())

    def answer(self) -> HandConnection:
        connection = HandConnection()
        self.dialler.dials[-1].callback(connection)
        return connection

    def pause_s(self) -> float:
        """How long it is until the next dial."""
        before, begun_s = len(self.dialler.dials), self.dialler.reactor.seconds()
        (call,) = self.dialler.reactor.getDelayedCalls()
        self.dialler.reactor.advance(call.getTime() - begun_s)
        assert len(self.dialler.dials) == before + 1
        return round(self.dialler.reactor.seconds() - begun_s, 6)


def test_pauses_double_up_to_a_second() -> None:
    bench = Bench()
    pauses = []
    for _ in range(7):
        bench.fail()
        pauses.append(bench.pause_s())
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(("failure", "count"), [(ConnectionRefusedError(), 1), (Refused("no"), 0)])
def test_that_nobody_is_there_is_logged_once(failure: Exception, count: int) -> None:
    """A refusal was logged where it was met."""
    with capturedLogs() as events:
        bench = Bench()
        for _ in range(3):
            bench.dialler.dials[-1].errback(failure)
            bench.pause_s()
    assert len(events) == count


def test_pauses_differ_by_up_to_half() -> None:
    bench = Bench(lambda: 1.0)
    bench.fail()
    assert bench.pause_s() == 0.025


@pytest.mark.parametrize(("lasted_s", "pause_s"), [(1.0, 0.05), (0.9, 0.4)])
def test_a_connection_that_lasts_makes_the_next_pause_short_again(lasted_s: float, pause_s: float) -> None:
    bench = Bench()
    for _ in range(3):
        bench.fail()
        bench.pause_s()
    connection = bench.answer()
    assert bench.link.connected
    bench.dialler.reactor.advance(lasted_s)
    connection.on_ended(True)
    assert not bench.link.connected
    assert bench.pause_s() == pause_s
    assert bench.events.told == [("opened", 7), ("lost", 7, True)]


def test_a_member_that_shows_up_is_dialled_at_once() -> None:
    bench = Bench()
    bench.fail()
    bench.link.hurry()
    assert len(bench.dialler.dials) == 2
    assert not bench.dialler.reactor.getDelayedCalls()
    bench.link.hurry()  # it is being dialled already
    assert len(bench.dialler.dials) == 2


def test_frames_go_to_the_connection_if_there_is_one() -> None:
    bench = Bench()
    assert not bench.link.send(b"frame")
    connection = bench.answer()
    assert bench.link.send(b"frame")
    assert connection.sent == [b"frame"]


def test_a_link_that_is_broken_off_is_not_connected() -> None:
    bench = Bench()
    connection = bench.answer()
    bench.link.break_off()
    assert connection.closing
    assert not bench.link.connected
    connection.on_ended(False)
    assert bench.events.told[-1] == ("lost", 7, False)
    assert bench.pause_s() == 0.05


@pytest.mark.parametrize("state", ["dialling", "waiting", "open"])
def test_a_stopped_link_does_nothing_more(state: str) -> None:
    bench = Bench()
    connection = None
    if state == "waiting":
        bench.fail()
    elif state == "open":
        connection = bench.answer()
    bench.events.told.clear()
    bench.link.stop()
    if connection:
        assert connection.closing
        connection.on_ended(False)
    assert bench.dialler.cancelled == (state == "dialling")
    assert not bench.dialler.reactor.getDelayedCalls()
    assert len(bench.dialler.dials) == 1
    assert not bench.events.told
    assert not bench.link.connected
