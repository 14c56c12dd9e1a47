"""Members over loopback: frames in order, who is refused, and what is told when somebody goes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory
from twisted.logger import LogEvent, LogLevel, capturedLogs, formatEvent
from twisted.python.failure import Failure

from tests.zab_raft.peers.loop import CELL, Loop, Member, connect, introduce, table_of
from znoded.jute.frames import frame
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import Heartbeat, InstallSnapshot, Snapshot
from znoded.zab_raft.peers import entering
from znoded.zab_raft.peers.acceptor import STRANGERS_PER_HOST
from znoded.zab_raft.peers.dialler import connector
from znoded.zab_raft.peers.founding import Found, Join, Welcome
from znoded.zab_raft.peers.identity import NO_CELL, Identity
from znoded.zab_raft.peers.wire import Change, Forward, FrameKind, FrameRecord

Make = Callable[..., Member]


def lines(events: Sequence[LogEvent]) -> list[str]:
    return [text for text in map(formatEvent, events) if "refused" in text]


def beat(sender: int, to: int, term: int = 1) -> Heartbeat:
    return Heartbeat(sender, to, term, 0, 0)


def test_frames_of_all_kinds_arrive_in_order(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    sent: list[tuple[FrameKind, FrameRecord]] = [
        (FrameKind.RAFT, beat(1, 2)),
        (FrameKind.FORWARD, Forward(3, [b"a", b"", b"c" * 100_000])),
        (FrameKind.CHANGE, Change(3, b"add 4")),
        (FrameKind.TELL, b"touched"),
    ] * 50
    assert all(first.peers.send(2, kind, record) for kind, record in sent)
    loop.run_until(lambda: len(second.handler.frames) == len(sent))
    assert [frame[1:] for frame in second.handler.frames] == sent
    assert {frame[0] for frame in second.handler.frames} == {1}
    assert ("opened", 2) in first.handler.events


def test_a_large_queue_passes_through_a_slow_socket_whole(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    records = [bytes([number]) * (4 << 20) for number in range(8)]
    assert all(first.peers.send(2, FrameKind.TELL, record) for record in records)
    loop.run_until(lambda: len(second.handler.frames) == len(records))
    assert [frame[2] for frame in second.handler.frames] == records
    assert first.peers.send(2, FrameKind.TELL, b"last")
    loop.run_until(lambda: len(second.handler.frames) == len(records) + 1)


def test_a_message_without_room_is_dropped_and_a_forward_without_room_starts_anew(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    while first.peers.send(2, FrameKind.TELL, bytes(8 << 20)):
        pass
    assert first.peers.connected(2)
    assert not first.peers.send(2, FrameKind.FORWARD, Forward(1, [bytes(8 << 20)]))
    assert not first.peers.send(2, FrameKind.TELL, b"small")  # nothing overtakes what was not sent
    first.handler.events.clear()
    loop.run_until(lambda: first.peers.connected(2))
    assert first.handler.events == [("unreachable", 2), ("opened", 2)]


def test_nothing_is_sent_to_who_is_not_there(loop: Loop, member: Make) -> None:
    first = member(1)
    first.peers.set_members({1: (1, first.address), 2: (2, "127.0.0.1:1")}, 2)
    assert not first.peers.send(2, FrameKind.TELL, b"")
    assert not first.peers.send(3, FrameKind.TELL, b"")
    assert not first.peers.connected(3)


def test_the_end_of_a_process_is_told_at_once_and_once(loop: Loop, member: Make) -> None:
    first, second, third = member(1), member(2), member(3)
    connect(loop, first, second, third)
    second.stop()
    loop.run_until(lambda: not first.peers.connected(2) and not third.peers.connected(2))
    loop.settle()
    for other in (first, third):
        assert other.handler.events.count(("closed", 2)) == 1
        assert other.handler.events.count(("unreachable", 2)) == 1
    assert first.peers.connected(3)
    assert not [event for event in second.handler.events if event[0] == "closed"]


def test_a_member_that_comes_back_is_connected_again(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    second.stop()
    loop.run_until(lambda: not first.peers.connected(2))
    again = member(2, port=second.port)
    connect(loop, first, again)
    again.stop()
    loop.run_until(lambda: first.handler.events.count(("closed", 2)) == 2)


def test_a_member_is_found_by_the_name_of_its_host(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    names = loop.reactor.getThreadPool()
    names.start()
    first.peers.set_members({2: (2, f"localhost:{second.port}")}, 2)
    loop.run_until(lambda: first.peers.connected(2))
    names.stop()


@pytest.mark.parametrize("address", ["nowhere", "host:port", ""])
def test_an_address_that_is_none_is_no_harm(loop: Loop, member: Make, address: str) -> None:
    first, third = member(1), member(3)
    connect(loop, first, third)
    first.peers.set_members({2: (2, address), 3: (3, third.address)}, 3)
    loop.settle()
    assert first.peers.connected(3)
    assert not first.peers.connected(2)


def test_a_member_whose_address_changes_is_dialled_there(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    second.stop()
    moved = member(2)
    connect(loop, first, moved)


def test_a_removed_member_is_cut_off_and_refused(loop: Loop, member: Make) -> None:
    first, second, third = member(1), member(2), member(3)
    connect(loop, first, second, third)
    with capturedLogs() as events:
        first.peers.set_members({1: (1, first.address), 2: (2, second.address)}, 3)
        assert not first.peers.connected(3)
        loop.run_until(lambda: any("was removed from the cell; add it again" in line for line in lines(events)))
    assert first.peers.connected(2)
    assert not third.peers.connected(1)
    assert ("closed", 3) not in first.handler.events


def test_a_newer_member_is_answered_where_it_says_it_is(loop: Loop, member: Make) -> None:
    behind, fourth = member(1), member(4, raft_id=7)
    behind.peers.set_members({1: (1, behind.address), 2: (2, "127.0.0.1:1")}, 2)
    fourth.peers.set_members({1: (1, behind.address), 7: (4, fourth.address)}, 7)
    loop.run_until(lambda: behind.peers.connected(7) and fourth.peers.connected(1))
    assert behind.peers.send(7, FrameKind.RAFT, beat(1, 7))
    loop.run_until(lambda: fourth.handler.frames)
    behind.peers.set_members({1: (1, behind.address), 7: (4, fourth.address)}, 7)
    assert behind.peers.connected(7)


def test_a_newer_member_that_leaves_is_not_dialled_any_more(loop: Loop, member: Make) -> None:
    behind, fourth = member(1), member(4, raft_id=7)
    behind.peers.set_members({1: (1, behind.address)}, 2)
    fourth.peers.set_members({1: (1, behind.address)}, 7)
    loop.run_until(lambda: behind.peers.connected(7))
    fourth.stop()
    loop.run_until(lambda: 7 not in behind.peers._links)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"secret": b"another"}, "the two have different secrets"),
        ({"secret": b""}, "only one of the two has a cell.secret_file"),
        ({"cell": bytes(16)[:-1] + b"\1"}, f"member 1 of cell {CELL.hex()}"),
        ({"raft_id": 1}, "is not the one that was dialled, with raft id 2"),
        ({"raft_id": 3}, "is not the one that was dialled, with raft id 2"),
        ({"cell": NO_CELL}, "member 2 is not in a cell yet"),
    ],
)
def test_who_does_not_belong_is_refused_with_one_line_a_side(
    loop: Loop, member: Make, other: dict[str, Any], reason: str
) -> None:
    first, second, third = member(1), member(2, **other), member(3)
    connect(loop, first, third)
    table = {1: (1, first.address), 2: (2, second.address), 3: (3, third.address)}
    with capturedLogs() as events:
        first.peers.set_members(table, 3)
        loop.run_until(lambda: any(reason in line for line in lines(events)))
        for _ in range(3):
            first.peers._links[2].hurry()
            loop.settle()
    told = [line for line in lines(events) if f"member 2 at {second.address}" in line and reason in line]
    assert len(told) == 1
    assert not first.peers.connected(2)
    assert first.peers.send(3, FrameKind.TELL, b"still there")
    loop.run_until(lambda: third.handler.frames)
    assert not second.handler.events


def test_neither_side_warns_of_a_member_that_is_not_in_the_cell_yet(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2, cell=NO_CELL)
    with capturedLogs() as events:
        first.peers.set_members({1: (1, first.address), 2: (2, second.address)}, 2)
        loop.run_until(lambda: len(lines(events)) >= 2)
    assert {event["log_level"] for event in events} == {LogLevel.info}


def test_another_member_at_an_address_is_refused(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    with capturedLogs() as events:
        first.peers.set_members({1: (1, first.address), 3: (3, second.address)}, 3)
        loop.run_until(lambda: any("it is member 2, not member 3: check" in line for line in lines(events)))
    assert f"127.0.0.1:{first.port}" not in "".join(lines(events))


def test_a_wiped_member_is_refused_on_both_sides(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    second.stop()
    loop.run_until(lambda: not first.peers.connected(2))
    wiped = member(2, "2 anew", port=second.port)
    with capturedLogs() as events:
        introduce(first, wiped)
        loop.run_until(lambda: len([line for line in lines(events) if "it was lost or replaced" in line]) >= 2)
    assert not first.peers.connected(2)
    assert not wiped.peers.connected(1)


def test_what_was_seen_of_a_member_outlives_a_restart(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    first.stop()
    second.stop()
    first, wiped = member(1), member(2, "2 anew")
    with capturedLogs() as events:
        introduce(first, wiped)
        loop.run_until(lambda: any("it was lost or replaced" in line for line in lines(events)))
    assert not first.peers.connected(2)


def test_a_message_in_the_name_of_another_is_refused(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    with capturedLogs() as events:
        assert first.peers.send(2, FrameKind.RAFT, beat(3, 2))
        loop.run_until(lambda: any("a message from 3 to 2 came from 1" in line for line in lines(events)))
    assert not second.handler.frames
    loop.run_until(lambda: first.peers.connected(2) and ("unreachable", 2) in first.handler.events)


def test_a_snapshot_without_its_state_is_refused(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    with capturedLogs() as events:
        first.peers.send(2, FrameKind.RAFT, InstallSnapshot(1, 2, 1, Snapshot(5, 1, Configuration.of([1, 2]))))
        loop.run_until(lambda: any("a snapshot came without its state" in line for line in lines(events)))
    assert not second.handler.frames


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes; 0 to 1024 are allowed"),
        (frame(b"hello?"), "bytes are needed"),
        (frame(b"x" * 100), "this is not a member of a znoded cell"),
        (frame(b"znoded peer\n\0\2\1" + bytes(80)), "one side speaks format 2 of the peer protocol, the other 1"),
        (frame(b"znoded peer\n\0\1\3" + bytes(80)), "part 3 of a handshake where part 1 belongs"),
        (b"", "it ended within the handshake"),
    ],
)
def test_a_stranger_is_refused_and_disturbs_nobody(loop: Loop, member: Make, garbage: bytes, reason: str) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    with capturedLogs() as events, socket.create_connection(("127.0.0.1", first.port)) as stranger:
        stranger.setblocking(False)
        stranger.sendall(garbage)
        if not garbage:
            loop.settle()
            stranger.shutdown(socket.SHUT_WR)
        where = "{}:{}".format(*stranger.getsockname())
        loop.run_until(lambda: any(where in line and reason in line for line in lines(events)))
    assert first.peers.send(2, FrameKind.TELL, b"")
    loop.run_until(lambda: second.handler.frames)
    assert not [event for event in first.handler.events if event[0] == "closed"]


def test_strangers_from_one_host_are_limited(loop: Loop, member: Make) -> None:
    first = member(1)
    with capturedLogs() as events:
        strangers = [socket.create_connection(("127.0.0.1", first.port)) for _ in range(20)]
        loop.run_until(lambda: any("too many connections" in line for line in lines(events)))
        loop.run_until(lambda: len(first.peers.acceptor._strangers) == STRANGERS_PER_HOST)
        for stranger in strangers:
            stranger.close()
        loop.run_until(lambda: not first.peers.acceptor._strangers)
    assert len(lines(events)) == 2


def test_strangers_who_say_nothing_keep_no_member_out(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    with capturedLogs():
        strangers = [socket.create_connection(("127.0.0.1", first.port)) for _ in range(STRANGERS_PER_HOST)]
        loop.run_until(lambda: len(first.peers.acceptor._strangers) == STRANGERS_PER_HOST)
        connect(loop, first, second)
    assert first.peers.connected(2)
    for stranger in strangers:
        stranger.close()
    loop.run_until(lambda: not first.peers.acceptor._strangers)


# Entering a cell


def enter(loop: Loop, *members: Member, **table: Any) -> list[list[Any]]:
    """What each blank member decides, once it does."""
    decisions: list[list[Any]] = []
    for each in members:
        decided: list[Any] = []
        decisions.append(decided)
        each.peers.enter_cell(table_of(*members, **table)).addCallback(decided.append)
    return decisions


def test_the_lowest_voter_founds_and_the_others_join(loop: Loop, member: Make) -> None:
    blank = [member(number, cell=NO_CELL) for number in (1, 2, 3)]
    decisions = enter(loop, *blank)
    loop.run_until(lambda: decisions[0])
    assert decisions == [[Found()], [], []]
    founder = blank[0]
    roster = {each.number: (each.number, each.address) for each in blank}
    founder.handler.roster = {number: Welcome(CELL, number, True, b"roster", roster, 3) for number in roster}
    founder.peers.adopt(Identity(CELL, 1, 1, founder.peers.identity.incarnation))
    loop.run_until(lambda: decisions[1] and decisions[2])
    assert decisions[1] == [Join(Welcome(CELL, 2, True, b"roster", roster, 3))]
    for each in blank[1:]:
        each.peers.adopt(Identity(CELL, each.number, each.number, each.peers.identity.incarnation))
    connect(loop, *blank)


def test_a_wiped_member_is_told_what_to_do(loop: Loop, member: Make) -> None:
    first, second = member(1), member(2)
    connect(loop, first, second)
    second.stop()
    roster = {1: (1, first.address), 2: (2, second.address)}
    first.handler.roster = {2: Welcome(CELL, 2, True, b"", roster, 2)}
    wiped = member(2, "2 anew", cell=NO_CELL)
    with capturedLogs() as events:
        decided = wiped.peers.enter_cell(table_of(first, wiped))
        loop.run_until(lambda: len(told(events, "remove the member and add it again with reconfig")) == 2)
    assert not decided.called


def test_a_member_that_is_not_in_the_cell_waits_to_be_added(loop: Loop, member: Make) -> None:
    first, fourth = member(1), member(4, cell=NO_CELL)
    with capturedLogs() as events:
        decided: list[Any] = []
        fourth.peers.enter_cell(table_of(first, fourth, voters={1})).addCallback(decided.append)
        loop.run_until(lambda: told(events, "member 4 is not in the cell; add it with reconfig"))
    welcome = Welcome(CELL, 9, False, b"", {1: (1, first.address), 9: (4, fourth.address)}, 9)
    first.handler.roster = {4: welcome}
    loop.run_until(lambda: decided)
    assert decided == [Join(welcome)]


@pytest.mark.parametrize("asked", [False, True])
def test_a_member_that_waits_to_come_in_can_be_stopped(loop: Loop, member: Make, asked: bool) -> None:
    second = member(2, cell=NO_CELL)
    failures: list[Failure] = []
    second.peers.enter_cell(table_of(member(1, cell=NO_CELL), second)).addErrback(failures.append)
    if asked:
        loop.run_until(lambda: second.peers._entering and second.peers._entering._why)
    second.stop()
    assert [failure.check(CancelledError) for failure in failures] == [CancelledError]
    loop.settle()


def test_why_a_member_does_not_answer_who_wants_to_come_in_is_told_once(
    loop: Loop, member: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entering, "ROUND_S", 0.5)
    dialled: list[str] = []
    connect_over_tcp = connector(loop.reactor, None)

    def connect(address: str, factory: Factory) -> Deferred[Any]:
        dialled.append(address)
        return connect_over_tcp(address, factory)

    blank, closes = member(1, cell=NO_CELL, connect=connect), member(5, cell=NO_CELL)
    monkeypatch.setattr(closes.peers, "_answer", lambda connection, *_: connection.close())
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refuses, says_nothing = (f"127.0.0.1:{each.getsockname()[1]}" for each in (unused, silent))
        addresses = {1: blank.address, 2: refuses, 3: "nowhere", 4: says_nothing, 5: closes.address}
        with capturedLogs() as events:
            entered = blank.peers.enter_cell(table_of(blank, voters={1, 2})._replace(addresses=addresses))
            loop.run_until(lambda: dialled.count(refuses) > 2)
    found = sorted(told(events, "it is asked again"))
    assert len(found) == 4
    whys = ("Connection refused", "nowhere", "nothing came within 0.5 s", "it closed the connection")
    for line, number, why in zip(found, (2, 3, 4, 5), whys, strict=True):
        prefix = f"no answer of member {number} at {addresses[number]}: "
        assert line.startswith(prefix)
        assert why in line.removeprefix(prefix)
    entered.addErrback(lambda failure: failure.trap(CancelledError))


def test_two_members_with_one_number_do_not_make_a_cell(loop: Loop, member: Make) -> None:
    blank = member(2, cell=NO_CELL), member(2, "other", cell=NO_CELL)
    with capturedLogs() as events:
        blank[0].peers.enter_cell(table_of(blank[0])._replace(addresses={2: "", 3: blank[1].address}))
        loop.run_until(lambda: told(events, "it is member 2, not member 3"))


def told(events: Sequence[LogEvent], what: str) -> list[str]:
    return [text for text in map(formatEvent, events) if text is not None and what in text]


def test_a_member_of_a_cell_that_was_given_up_is_told_and_the_one_that_went_on_is_not(
    loop: Loop, member: Make, tmp_path: Path
) -> None:
    first, third = member(1), member(3)
    connect(loop, first, third)
    incarnation = third.peers.identity.incarnation
    third.stop()
    went_on = Member(loop, tmp_path / "anew", 3, cell=b"another cell, it", incarnation=incarnation, port=third.port)
    went_on.peers.set_members({3: (3, went_on.address)}, 3)
    loop.run_until(lambda: first.handler.events[-1][0] == "abandoned")
    assert "had member 3 go on without it. Empty the data directory" in first.handler.events[-1][1]
    loop.settle()
    assert went_on.handler.events == []
    went_on.stop()


def test_a_stranger_of_another_cell_ends_nobody(loop: Loop, member: Make, tmp_path: Path) -> None:
    first, third = member(1), member(3)
    connect(loop, first, third)
    third.stop()
    stranger = Member(loop, tmp_path / "stranger", 3, cell=b"another cell, it", port=third.port)
    stranger.peers.set_members({1: (1, first.address)}, 3)
    loop.settle()
    assert "abandoned" not in {event[0] for each in (first, stranger) for event in each.handler.events}
    stranger.stop()
