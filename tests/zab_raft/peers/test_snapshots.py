"""Snapshots over loopback: whole, in order, resumed where they broke off, and never taken for what they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import lmdb
import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from tests.zab_raft.peers.loop import Loop, Member, connect
from znoded.jute.primitives import JuteError
from znoded.zab_raft.checkpoint import Checkpoint, CheckpointSource
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.messages import InstallSnapshot, Snapshot
from znoded.zab_raft.peers.handshake import Purpose
from znoded.zab_raft.peers.incoming_state import IncomingState
from znoded.zab_raft.peers.snapshot_wire import Part, encode_chunk, encode_header, encode_part

Make = Callable[..., Member]
Tables = dict[bytes, dict[bytes, bytes]]

TABLES = b"created", b"nodes", b"sessions"
CONFIGURATION = Configuration.of([1, 2])
MESSAGE = InstallSnapshot(1, 2, 3, Snapshot(5, 3, CONFIGURATION))
BAD_CHUNK = encode_chunk(b"nodes", [(b"/a", b"1")])[:-1] + b"2"


def filled(path: Path, nodes: int, index: int = 40, term: int = 3) -> Checkpoint:
    path.mkdir()
    checkpoint = Checkpoint(str(path))
    checkpoint.write(
        {
            b"nodes": {b"/n%07d" % number: b"%d" % number * 20 for number in range(nodes)}
            | {b"/long" * 200: b"value of a long key", b"/wide": bytes(1 << 20), b"/none": b""},
            b"created": {b"/": b"1234"},
            b"sessions": {},
        },
        index,
        term,
    )
    return checkpoint


def content(checkpoint: Checkpoint) -> Tables:
    with checkpoint.reading() as read_table:
        return {table: dict(read_table(table)) for table in TABLES}


def message(checkpoint: Checkpoint) -> InstallSnapshot:
    return InstallSnapshot(1, 2, checkpoint.term, Snapshot(checkpoint.index, checkpoint.term, CONFIGURATION))


class CountingSource:
    """Counts the items that are read, and can stop at a number of them."""

    def __init__(self, source: CheckpointSource) -> None:
        self.index, self.term = source.index, source.term
        self.tables = source.tables
        self.count = 0
        self.closed = False
        self.fails = False
        self.may_go_on = Event()
        self.may_go_on.set()
        self._source = source

    def items(self, table: bytes, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        self.may_go_on.wait()
        if self.fails:
            raise OSError("the disk is gone")
        items = self._source.items(table, after, count)
        self.count += len(items)
        return items

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        self._source.close()


@pytest.fixture
def pair(loop: Loop, member: Make) -> tuple[Member, Member]:
    leader, lagging = member(1), member(2)
    connect(loop, leader, lagging)
    return leader, lagging


def delivered(leader: Member) -> list[bool]:
    return [event[2] for event in leader.handler.events if event[0] == "finished"]


def installed(member: Member, path: Path) -> Tables:
    path.mkdir()
    checkpoint = Checkpoint(str(path))
    (arrived, incoming), *more = member.handler.arrived
    assert not more
    checkpoint.install(incoming)
    assert (checkpoint.index, checkpoint.term) == (arrived.snapshot.index, arrived.snapshot.term)
    tables = content(checkpoint)
    checkpoint.close()
    return tables


def test_a_snapshot_arrives_whole(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, lagging = pair
    checkpoint = filled(tmp_path / "state", nodes=20_000)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [True]
    assert source.closed
    assert ("progressed", 2) in leader.handler.events
    assert lagging.handler.arrived[0][0] == message(checkpoint)
    assert installed(lagging, tmp_path / "copy") == content(checkpoint)
    checkpoint.close()


def test_an_empty_state_arrives(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, lagging = pair
    (tmp_path / "state").mkdir()
    checkpoint = Checkpoint(str(tmp_path / "state"))
    checkpoint.write({}, 7, 1)
    leader.peers.send_snapshot(message(checkpoint), checkpoint.source())
    loop.run_until(lambda: delivered(leader))
    assert installed(lagging, tmp_path / "copy") == dict.fromkeys(TABLES, {})
    checkpoint.close()


def test_a_snapshot_that_broke_off_goes_on_where_it_was(
    loop: Loop, pair: tuple[Member, Member], tmp_path: Path
) -> None:
    leader, lagging = pair
    checkpoint = filled(tmp_path / "state", nodes=60_000)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    for cuts in range(3):
        loop.run_until(lambda: leader.handler.events.count(("progressed", 2)) > 3)
        leader.handler.events.clear()
        assert not lagging.handler.arrived, f"it was over after {cuts} cuts"
        leader.peers._streams[2]._connection.close()  # type: ignore[union-attr]
    loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [True]
    assert source.count < 60_000 * 2
    assert installed(lagging, tmp_path / "copy") == content(checkpoint)
    checkpoint.close()


def test_nothing_is_read_while_a_lost_connection_is_made_again(
    loop: Loop, pair: tuple[Member, Member], tmp_path: Path
) -> None:
    """Even if the disk was so slow that what was read for the lost one comes only then."""
    leader, _lagging = pair
    checkpoint = filled(tmp_path / "state", nodes=60_000)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    loop.run_until(lambda: leader.handler.events.count(("progressed", 2)) > 3)
    stream = leader.peers._streams[2]
    stream._dial = Deferred  # nobody is reached any more
    source.may_go_on.clear()
    loop.run_until(lambda: stream._reading)
    stream._connection.close()  # type: ignore[union-attr]
    loop.run_until(lambda: stream._dialling)
    source.may_go_on.set()
    loop.run_until(lambda: not stream._reading)
    count = source.count
    for _ in range(10):
        loop.reactor.iterate(0.02)
    assert source.count == count
    leader.peers.end_snapshots()
    assert source.closed
    checkpoint.close()


def test_a_member_that_restarts_keeps_what_it_has(loop: Loop, member: Make, tmp_path: Path) -> None:
    leader, lagging = member(1), member(2)
    connect(loop, leader, lagging)
    checkpoint = filled(tmp_path / "state", nodes=60_000)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    loop.run_until(lambda: leader.handler.events.count(("progressed", 2)) > 3)
    lagging.stop()
    incoming = IncomingState(str(tmp_path / "2" / "incoming"), 40, 3, leader.peers.identity.incarnation)
    kept = incoming.table, incoming.key
    incoming.close()
    assert b"" < kept[0] <= b"nodes", "some of it is there, and not all"
    again = member(2, port=lagging.port)
    connect(loop, leader, again)
    loop.run_until(lambda: delivered(leader))
    assert installed(again, tmp_path / "copy") == content(checkpoint)
    checkpoint.close()


def test_what_is_left_of_another_snapshot_is_thrown_away(
    loop: Loop, pair: tuple[Member, Member], tmp_path: Path
) -> None:
    leader, lagging = pair
    incoming = IncomingState(str(tmp_path / "2" / "incoming"), 39, 3, leader.peers.identity.incarnation)
    incoming.write([encode_chunk(b"nodes", [(b"/zombie", b"")])[4:]])
    incoming.close()
    checkpoint = filled(tmp_path / "state", nodes=10)
    leader.peers.send_snapshot(message(checkpoint), checkpoint.source())
    loop.run_until(lambda: delivered(leader))
    assert installed(lagging, tmp_path / "copy") == content(checkpoint)
    checkpoint.close()


def test_a_newer_stream_takes_the_place_of_an_older_one(
    loop: Loop, pair: tuple[Member, Member], tmp_path: Path
) -> None:
    leader, lagging = pair
    older = filled(tmp_path / "older", nodes=60_000)
    source = CountingSource(older.source())
    leader.peers.send_snapshot(message(older), source)
    loop.run_until(lambda: leader.handler.events.count(("progressed", 2)) > 3)
    newer = filled(tmp_path / "newer", nodes=100, index=50)
    leader.peers.send_snapshot(message(newer), newer.source())
    loop.run_until(lambda: delivered(leader))
    loop.run_until(lambda: source.closed)
    assert installed(lagging, tmp_path / "copy") == content(newer)
    older.close()
    newer.close()


def test_a_snapshot_that_is_not_wanted_is_refused(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, lagging = pair
    lagging.handler.wants = False
    checkpoint = filled(tmp_path / "state", nodes=1)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [False]
    assert source.closed
    assert not lagging.handler.arrived
    checkpoint.close()


def test_a_source_that_cannot_be_read_ends_the_stream(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, _ = pair
    checkpoint = filled(tmp_path / "state", nodes=1)
    source = CountingSource(checkpoint.source())
    source.fails = True
    with capturedLogs() as events:
        leader.peers.send_snapshot(message(checkpoint), source)
        loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [False]
    assert source.closed
    assert any("the checkpoint for member 2 cannot be read" in str(formatEvent(event)) for event in events)
    checkpoint.close()


def test_a_member_whose_disk_fails_says_so(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, lagging = pair
    (tmp_path / "2" / "incoming").write_bytes(b"in the way")
    checkpoint = filled(tmp_path / "state", nodes=1)
    with capturedLogs() as events:
        leader.peers.send_snapshot(message(checkpoint), checkpoint.source())
        loop.run_until(lambda: any("the snapshot cannot be stored in" in str(formatEvent(event)) for event in events))
    (tmp_path / "2" / "incoming").unlink()
    loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [True]
    assert lagging.handler.arrived
    checkpoint.close()


def test_a_source_of_another_index_is_not_sent(pair: tuple[Member, Member], tmp_path: Path) -> None:
    checkpoint = filled(tmp_path / "state", nodes=1)
    other = message(checkpoint)._replace(snapshot=Snapshot(41, 3, CONFIGURATION))
    with pytest.raises(ValueError, match="a source of index 40 for the snapshot of index 41"):
        pair[0].peers.send_snapshot(other, checkpoint.source())
    checkpoint.close()


def test_a_snapshot_for_a_stranger_fails(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    checkpoint = filled(tmp_path / "state", nodes=1)
    pair[0].peers.send_snapshot(message(checkpoint)._replace(to=9), checkpoint.source())
    assert not delivered(pair[0])
    loop.run_until(lambda: delivered(pair[0]))
    assert delivered(pair[0]) == [False]
    checkpoint.close()


def test_the_rate_is_kept(loop: Loop, member: Make, tmp_path: Path) -> None:
    leader, lagging = member(1, snapshot_bytes_per_second=1), member(2)
    connect(loop, leader, lagging)
    checkpoint = filled(tmp_path / "state", nodes=60_000)
    leader.peers.send_snapshot(message(checkpoint), checkpoint.source())
    loop.run_until(lambda: leader.handler.events.count(("progressed", 2)) == 2)
    loop.settle()
    assert (
        leader.peers._streams[2]._sent == 1
    )  # the second chunk has to wait for as many seconds as the first has bytes
    checkpoint.close()


def test_who_leads_no_longer_streams_no_longer(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, lagging = pair
    checkpoint = filled(tmp_path / "state", nodes=60_000)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    loop.run_until(lambda: leader.handler.events.count(("progressed", 2)) > 3)
    leader.peers.end_snapshots()
    loop.run_until(lambda: source.closed)
    loop.run_until(lambda: not lagging.peers._receivers)
    assert not delivered(leader)
    checkpoint.close()


def test_a_member_that_is_removed_gets_no_more(loop: Loop, pair: tuple[Member, Member], tmp_path: Path) -> None:
    leader, lagging = pair
    checkpoint = filled(tmp_path / "state", nodes=60_000)
    source = CountingSource(checkpoint.source())
    leader.peers.send_snapshot(message(checkpoint), source)
    leader.peers.set_members({1: (1, leader.address)}, 2)
    loop.run_until(lambda: source.closed)
    assert not lagging.handler.arrived
    checkpoint.close()


def test_a_stream_without_progress_is_given_up(
    loop: Loop, pair: tuple[Member, Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, lagging = pair
    monkeypatch.setattr("znoded.zab_raft.peers.snapshot_send.GIVE_UP_S", 0.1)
    checkpoint = filled(tmp_path / "state", nodes=1)
    source = CountingSource(checkpoint.source())
    lagging.stop()
    loop.run_until(lambda: not leader.peers.connected(2))
    leader.peers.send_snapshot(message(checkpoint), source)
    loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [False]
    assert source.closed
    checkpoint.close()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (encode_chunk(b"nodes", [(b"/a", b"1")])[4:-1] + b"2", "the checksum of a chunk does not match"),
        (encode_chunk(b"nodes", [(b"/b", b""), (b"/a", b"")])[4:], "the keys of a snapshot are not in order"),
    ],
)
def test_a_bad_chunk_stores_nothing(tmp_path: Path, payload: bytes, reason: str) -> None:
    state = IncomingState(str(tmp_path), 40, 3, bytes(16))
    state.write([encode_chunk(b"created", [(b"/", b"1")])[4:]])
    with pytest.raises(JuteError, match=reason):
        state.write([encode_chunk(b"nodes", [(b"/0", b"")])[4:], payload])
    state.close()
    again = IncomingState(str(tmp_path), 40, 3, bytes(16))
    assert (again.table, again.key) == (b"created", b"/")
    again.write([encode_chunk(b"nodes", [(b"/0", b"")])[4:]])  # which is not there yet
    again.close()


def test_a_state_of_another_index_is_not_taken_for_the_one_announced(tmp_path: Path) -> None:
    state = IncomingState(str(tmp_path), 40, 3, bytes(16))
    with pytest.raises(JuteError, match="the snapshot of index 40 holds the state of index 0"):
        state.finish()


def test_an_unreadable_state_on_its_way_in_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not LMDB" * 1024)
    state = IncomingState(str(tmp_path), 40, 3, bytes(16))
    assert (state.table, state.key) == (b"", b"")
    state.close()


def test_a_state_that_outgrows_its_map_gets_a_larger_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("znoded.zab_raft.peers.incoming_state.FIRST_MAP_BYTES", 1 << 18)
    state = IncomingState(str(tmp_path), 40, 3, bytes(16))
    for number in range(8):
        state.write([encode_chunk(b"nodes", [(b"/%d" % number, bytes(1 << 17))])[4:]])
    assert state.key == b""
    state.close()
    again = IncomingState(str(tmp_path), 40, 3, bytes(16))
    assert again.key == b"/7"
    again.close()


def test_a_member_that_can_store_nothing_is_given_up(
    loop: Loop, pair: tuple[Member, Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says each time from where on it wants the state, which is no progress."""

    def full(_state: IncomingState, _payloads: object) -> None:
        raise lmdb.DiskError("No space left on device")

    leader, _lagging = pair
    monkeypatch.setattr("znoded.zab_raft.peers.snapshot_send.GIVE_UP_S", 0.5)
    monkeypatch.setattr(IncomingState, "write", full)
    checkpoint = filled(tmp_path / "state", nodes=1)
    source = CountingSource(checkpoint.source())
    with capturedLogs():
        leader.peers.send_snapshot(message(checkpoint), source)
        loop.run_until(lambda: delivered(leader))
    assert delivered(leader) == [False]
    assert source.closed


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([encode_header(MESSAGE), BAD_CHUNK], "the checksum of a chunk does not match"),
        ([encode_part(Part.END)], "END where it does not belong in a snapshot"),
        ([b"\0\0\0\1\x09"], "no part of a snapshot begins with 09"),
        ([encode_header(InstallSnapshot(3, 2, 1, Snapshot(5, 1, CONFIGURATION)))], "a snapshot from 3"),
    ],
)
def test_a_stream_that_breaks_the_rules_is_refused(
    loop: Loop, pair: tuple[Member, Member], frames: list[bytes], reason: str
) -> None:
    leader, lagging = pair
    with capturedLogs() as events:
        connection = loop.result_of(leader.peers._dialler.dial(Purpose.SNAPSHOT, 2, 2, lagging.address))
        left = list(frames)

        def send_next(answer: bytes = b"") -> None:
            connection.send(left.pop(0))

        connection.open(1 << 20, 1 << 20, send_next)
        send_next()
        loop.run_until(lambda: any(reason in str(formatEvent(event)) for event in events))
    assert leader.peers.connected(2)
