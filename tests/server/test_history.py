"""The history of a member: on the disk, in a snapshot, and told to watches that were away."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.jute.factory import i4, i8, request, string
from tests.server.harness import OPEN_ACL, Client, House, create, set_data
from tests.tree.past import range_at, value_at
from tests.tree.world import CHANGED, CREATED, DELETED, World
from znoded.jute.ops import Op
from znoded.jute.primitives import Reader
from znoded.server.set_watches import TreeAsSeen
from znoded.tree import history as history_module
from znoded.tree.acl import SUPER
from znoded.tree.history import History
from znoded.tree.options import TreeOptions
from znoded.tree.tree import Tree
from znoded.watches.catch_up import NodeZxids
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.peers.incoming_state import IncomingState
from znoded.zab_raft.peers.snapshot_send import ChunkReader
from znoded.zab_raft.peers.snapshot_wire import FRAME_LENGTH_BYTES

MIB = 1 << 20
OPTIONS = TreeOptions(history_bytes=MIB)
PATHS = [b"/%d" % number for number in range(30)] + [b"/0/%d" % number for number in range(10)]


class Written:
    """A tree that a lot was done to, with its checkpoint in a directory, and what it was now and then."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.house = World(OPTIONS)
        self.checkpoint = Checkpoint(str(path))
        self.house.tree.history.read_stored = self.checkpoint.get
        self.copies: dict[int, dict[bytes, bytes]] = {}
        self.client = self.house.session()
        self.random = random.Random(4)

    def work(self, count: int) -> None:
        for number in range(count):
            path = self.random.choice(PATHS)
            if self.random.random() < 0.1:
                self.client.delete(path)
            elif path in self.house.tree.nodes:
                self.client.set(path, b"d" * self.random.randrange(300))
            else:
                self.client.create(path)
            if number % 100 == 0:
                self.copies[self.house.tree.zxid] = dict(self.house.tree.nodes)

    def store(self) -> None:
        tree = self.house.tree
        self.checkpoint.write(tree.take_changes(), tree.zxid, 1)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    written = Written(tmp_path / "state")
    for _ in range(6):
        written.work(1_000)
        written.store()
    return written


def loaded(checkpoint: Checkpoint) -> Tree:
    tree = Tree(OPTIONS)
    tree.history.read_stored = checkpoint.get
    with checkpoint.reading() as read_table:
        tree.load(read_table)
    return tree


def assert_as_it_was(history: History, copies: dict[int, dict[bytes, bytes]]) -> None:
    kept = [revision for revision in copies if revision >= history.oldest]
    assert len(kept) > 20
    for revision in kept:
        nodes = copies[revision]
        assert range_at(history, b"/", revision, b"", 1_000) == sorted(nodes.items())
        assert {path: value_at(history, path, revision) for path in PATHS} == {path: nodes.get(path) for path in PATHS}


def test_it_is_read_from_the_disk(written: Written) -> None:
    assert_as_it_was(written.house.tree.history, written.copies)


def test_a_restart_goes_on_with_it_and_with_the_log(written: Written) -> None:
    begin = len(written.house.log)
    stored_zxid = written.house.tree.zxid
    written.work(300)
    written.checkpoint.close()
    tree = loaded(Checkpoint(str(written.checkpoint._path)))
    assert 0 < tree.history.oldest <= written.house.tree.history.oldest
    oldest = written.house.tree.history.oldest
    written.house.tree.history.read_stored = tree.history.read_stored
    for zxid, command in enumerate(written.house.log[begin:], stored_zxid + 1):
        tree.apply(zxid, command)
    assert_as_it_was(tree.history, written.copies)
    end = tree.zxid
    assert tree.history.changes(oldest, end, 10**6) == written.house.tree.history.changes(oldest, end, 10**6)


def test_a_snapshot_brings_it(written: Written, tmp_path: Path) -> None:
    source = written.checkpoint.source()
    reader = ChunkReader(source)
    written.work(500)
    written.store()  # what is sent is what was there when it began
    state = IncomingState(str(tmp_path / "incoming"), source.index, source.term, b"i" * 16)
    while chunk := reader.next():
        state.write([chunk[FRAME_LENGTH_BYTES:]])
    source.close()
    state.finish()
    (tmp_path / "other").mkdir()
    other = Checkpoint(str(tmp_path / "other"))
    other.write(World(OPTIONS).tree.take_changes(), 1, 1)
    other.install(str(tmp_path / "incoming"))
    tree = loaded(other)
    assert tree.history.oldest > 0
    copies = {revision: nodes for revision, nodes in written.copies.items() if revision <= tree.zxid}
    assert_as_it_was(tree.history, copies)


# ---- watches that were away


def watch(persistent: tuple[bytes, ...], recursive: tuple[bytes, ...], zxid: int) -> bytes:
    lists = [i4(len(paths)) + b"".join(map(string, paths)) for paths in (persistent, recursive)]
    return request(-8, Op.SET_WATCHES2, i8(zxid), *[i4(0)] * 3, *lists)


def told(client: Client) -> list[tuple[int, int, bytes]]:
    """Zxid, event type and path of each notification that came."""
    found = []
    for payload in client.frames():
        reader = Reader(payload)
        xid, zxid, _ = reader.int(), reader.long(), reader.int()
        if xid == -1:
            event_type, _, path = reader.int(), reader.int(), reader.buffer()
            found.append((zxid, event_type, path or b""))
    return found


def missed(client: Client, zxid: int, path: bytes) -> list[tuple[int, int, bytes]]:
    """What a recursive watch is told when it is set again: zxid, event type and path of each event."""
    client.frames()
    client.send(watch((), (path,), zxid))
    return told(client)


@pytest.fixture
def away(tmp_path: Path) -> tuple[House, int]:
    """A member with much of its history on the disk, and the zxid that a watch saw before it was away."""
    house = House(**{"history.bytes": 2 * MIB})
    member, client = house.member, World().session()
    tree = member.tree
    checkpoint = Checkpoint(str(tmp_path))
    tree.history.read_stored = checkpoint.get
    client.house.tree = tree
    client.house.session(client.id)
    for path in (b"/few", b"/many"):
        client.create(path)
    begin = tree.zxid
    client.create(b"/few/a")
    for _ in range(5_000):
        client.set(b"/many")
    client.set(b"/few/a")
    for _ in range(3):
        checkpoint.write(tree.take_changes(), tree.zxid, 1)
    client.delete(b"/few/a")
    tree.events.clear()
    house.replica._index = tree.zxid
    return house, begin


def test_a_watch_catches_up_from_the_disk(away: tuple[House, int]) -> None:
    house, begin = away
    client = house.client()
    assert missed(client, begin, b"/few") == [
        (begin + 1, CREATED, b"/few/a"),
        (begin + 5_002, CHANGED, b"/few/a"),
        (begin + 5_003, DELETED, b"/few/a"),
    ]
    assert len(missed(client, begin, b"/")) == 5_003


def test_only_the_blocks_that_matter_are_read(away: tuple[House, int]) -> None:
    house, begin = away
    history = house.member.tree.history
    read = []
    get = history.read_stored

    def read_stored(table: bytes, key: bytes, part: slice) -> bytes | None:
        read.append(table)
        return get(table, key, part)

    history.read_stored = read_stored
    missed(house.client(), begin, b"/few")
    assert read.count(b"history") <= 2
    assert read.count(b"history_paths") <= 2 * len(history._stored)


def test_a_watch_that_missed_too_much_is_told_what_there_is_now(
    away: tuple[House, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "CATCH_UP_BYTES", 300_000)
    house, begin = away
    client = house.client()
    assert missed(client, begin, b"/many") == [(-1, CHANGED, b"/many")]
    assert len(missed(client, begin, b"/few")) == 3, "it is what it missed itself that counts"


def test_a_watch_is_told_what_there_is_now_when_the_disk_does_not_answer(away: tuple[House, int]) -> None:
    house, begin = away
    house.member.tree.history.read_stored = lambda table, key, part: None
    assert missed(house.client(), begin, b"/many") == [(-1, CHANGED, b"/many")]


def test_only_nodes_that_changed_are_looked_at_when_the_history_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    zxids = TreeAsSeen.zxids

    def zxids_of(view: TreeAsSeen, path: bytes) -> NodeZxids | None:
        looked_at.append(path)
        return zxids(view, path)

    monkeypatch.setattr(TreeAsSeen, "zxids", zxids_of)
    house = House()
    client = house.client()
    paths = (b"/a", b"/a/b", b"/a/b/set", b"/a/b/same", b"/a/c", b"/a/c/gone", b"/a/d")
    client.send(*[create(1, path) for path in paths])
    house.replica.commit()
    begin = house.member.zxid
    client.send(set_data(1, b"/a/b/set"), request(1, Op.DELETE, string(b"/a/c/gone"), i4(-1)), create(1, b"/a/d/new"))
    house.replica.commit()
    house.member.tree.history.reset(house.member.zxid)
    expected = {b"/a/b/set": CHANGED, b"/a/c": CHANGED, b"/a/d": CHANGED, b"/a/d/new": CREATED}
    assert sorted(missed(client, begin, b"/a")) == sorted((-1, kind, path) for path, kind in expected.items())
    assert sorted(looked_at) == sorted([b"/a", *expected])


def test_the_words_tell_how_much_is_kept(away: tuple[House, int]) -> None:
    house, _ = away
    client = house.connect()
    client.connection.dataReceived(b"mntr")
    lines = dict(line.split("\t") for line in client.transport.value().decode().splitlines())
    history = house.member.tree.history
    assert int(lines["zk_history_bytes"]) == history.size_bytes > 100_000
    assert int(lines["zk_history_oldest_revision"]) == history.oldest


# ---- what they are told of, and what not

ANN = (b"digest", b"ann:bqX7qnzsPGTqPCRaHV2URRiRtj8=")
FOLDERS, NAMES = (b"/a", b"/b"), (b"x", b"y")


@pytest.mark.parametrize("seed", range(20))
def test_a_watch_that_was_away_is_told_what_it_was_told_if_it_had_stayed(seed: int) -> None:
    house, choose = House(), random.Random(seed)
    house.member.tree.history.block_changes = choose.choice((1, 5, 256))
    writer = house.client()
    writer.connection.add_identities((ANN, SUPER))
    persistent, recursive = (b"/", b"/a", b"/a/x", b"/b/y"), (b"/b",)
    stayed = house.client()
    stayed.send(watch(persistent, recursive, house.member.zxid))
    told(stayed)
    begin = house.member.zxid
    for number in range(200):
        folder = choose.choice(FOLDERS)
        path = choose.choice((folder, folder + b"/" + choose.choice(NAMES)))
        acl = choose.choice((OPEN_ACL, i4(1) + i4(31) + string(ANN[0]) + string(ANN[1])))
        change = choose.choice(
            (
                request(number, Op.CREATE, string(path), string(b""), acl, i4(0)),
                request(number, Op.SET_ACL, string(path), acl, i4(-1)),
                request(number, Op.DELETE, string(path), i4(-1)),
                set_data(number, path),
            )
        )
        writer.send(change)
        house.replica.commit()
    heard = told(stayed)
    assert len(heard) > 20
    came_back = house.client()
    came_back.send(watch(persistent, recursive, begin))
    assert told(came_back) == heard
    knows_all = house.client()
    knows_all.connection.add_identities((ANN,))
    knows_all.send(watch(persistent, recursive, begin))
    assert len(told(knows_all)) > len(heard)
