"""The history: what is recorded, how long it is kept, and what it takes. Whether it is right is the model's to say."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise

import pytest

from tests.tree.past import MIB, kept, range_at, store, value_at
from tests.tree.test_checkpoint_tables import Checkpoint
from tests.tree.world import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    START_MS,
    Client,
    World,
    create,
    only,
    set_data,
    world,
)
from znoded.jute.ops import Perm
from znoded.jute.records import Acl
from znoded.tree.acl import SUPER
from znoded.tree.history import CHANGES_BYTES
from znoded.tree.history_block import ACL_BYTES_MOST, NOBODY, ChangeKind
from znoded.tree.history_log import BLOCK_BYTES, BLOCK_CHANGES, MEMORY_BYTES
from znoded.tree.history_segment import decode_segment, first_revision
from znoded.tree.tree import Tree
from znoded.tree.znode import data_of, parsed_stat


def bytes_in(checkpoint: Checkpoint) -> int:
    """What the tables of the history hold."""
    tables = [table for name, table in checkpoint.tables.items() if name.startswith(b"history")]
    return sum(len(value) for table in tables for value in table.values())


# ---- what is recorded


def test_every_change_is_recorded_with_those_of_the_parents_children(house: World, client: Client) -> None:
    begin = house.tree.zxid
    client.create(b"/a")
    client.set(b"/a")
    client.set_acl(b"/a", world(Perm.ALL))
    client.create(b"/a/e", flags=EPHEMERAL)
    client.close()
    assert house.tree.history.since(begin, [b"/", b"/a"]) == [
        (begin + 1, CREATED, b"/a", True),
        (begin + 1, CHILDREN, b"/", True),
        (begin + 2, CHANGED, b"/a", True),
        (begin + 4, CREATED, b"/a/e", True),
        (begin + 4, CHILDREN, b"/a", True),
        (begin + 5, DELETED, b"/a/e", True),
        (begin + 5, CHILDREN, b"/a", True),
    ]
    assert house.tree.history.since(begin + 5) == []


@pytest.mark.parametrize("block_changes", [1, BLOCK_CHANGES])
def test_who_might_read_is_judged_by_the_acl_that_the_znode_or_the_parent_had(
    house: World, client: Client, block_changes: int
) -> None:
    house.tree.history.block_changes = block_changes
    closed, ann = only(b"digest", b"ann:x"), house.session(0x200, (b"digest", b"ann:x"))
    client.create(b"/p")
    begin = house.tree.zxid
    ann.create(b"/p/k", acl=closed)
    ann.set_acl(b"/p", closed)
    ann.delete(b"/p/k")
    ann.create(b"/p/open")
    ann.delete(b"/p/open")
    ann.delete(b"/p")
    client.create(b"/p")
    expected = [
        (begin + 1, CREATED, b"/p/k", False),
        (begin + 1, CHILDREN, b"/p", True),
        (begin + 3, DELETED, b"/p/k", False),
        (begin + 3, CHILDREN, b"/p", False),
        (begin + 4, CREATED, b"/p/open", True),
        (begin + 4, CHILDREN, b"/p", False),
        (begin + 5, DELETED, b"/p/open", True),
        (begin + 5, CHILDREN, b"/p", False),
        (begin + 6, DELETED, b"/p", False),
        (begin + 7, CREATED, b"/p", True),
    ]
    assert house.tree.history.since(begin, [b"/p"], client.identities) == expected
    for_ann = house.tree.history.since(begin, [b"/p"], ann.identities)
    assert for_ann == [(*change[:3], True) for change in expected]


def test_a_change_has_both_znodes_its_time_and_the_acl(house: World, client: Client) -> None:
    acl = only(b"ip", b"127.0.0.1")
    client.create(b"/a", b"1", acl=acl)
    begin = house.tree.zxid
    first = house.tree.nodes[b"/a"]
    client.set(b"/a", b"2")
    second = house.tree.nodes[b"/a"]
    client.set_acl(b"/a", world(Perm.ALL))
    third = house.tree.nodes[b"/a"]
    client.delete(b"/a")
    changes = house.tree.history.changes(begin, house.tree.zxid, 100)
    assert [change[:5] for change in changes] == [
        (begin + 1, ChangeKind.DATA_CHANGED, b"/a", first, second),
        (begin + 2, ChangeKind.ACL_CHANGED, b"/a", second, third),
        (begin + 3, ChangeKind.DELETED, b"/a", third, None),
    ]
    assert [change.acl for change in changes] == [acl, acl, None]
    assert [change.time_ms for change in changes] == [house.now_ms - 2, house.now_ms - 1, house.now_ms]
    assert house.now_ms > START_MS


def test_a_multi_is_one_revision_and_one_that_fails_none(house: World, client: Client) -> None:
    begin = house.tree.zxid
    client.multi(create(b"/a"), create(b"/a/b"), set_data(b"/a", b"x"))
    client.multi(create(b"/c"), set_data(b"/absent", b"x"))
    changes = house.tree.history.changes(begin, house.tree.zxid, 1)
    assert [(change.revision, change.path) for change in changes] == [
        (begin + 1, path) for path in (b"/a", b"/a/b", b"/a")
    ]
    assert house.tree.history.changes(begin + 1, house.tree.zxid, 1) == []


def test_usage_that_a_quota_counts_is_no_change(house: World, client: Client) -> None:
    for path in (b"/q", b"/zookeeper/quota/q", b"/zookeeper/quota/q/zookeeper_limits"):
        client.create(path, b"count=-1,bytes=-1")
    client.create(b"/zookeeper/quota/q/zookeeper_stats")
    begin = house.tree.zxid
    client.set(b"/q", b"longer")
    assert [change.path for change in house.tree.history.changes(begin, house.tree.zxid, 9)] == [b"/q"]


def test_what_a_change_of_the_usage_made_is_the_same_in_every_form_of_the_history(house: World, client: Client) -> None:
    """Members pack their history at different times."""
    stats = b"/zookeeper/quota/q/zookeeper_stats"
    begin = house.tree.zxid
    for path in (b"/q", b"/zookeeper/quota/q", b"/zookeeper/quota/q/zookeeper_limits"):
        client.create(path, b"count=-1,bytes=-1")
    client.create(stats, b"count=0,bytes=0")
    client.set(b"/q", b"longer")
    client.set(stats, b"count=7,bytes=7")
    client.set(b"/q", b"")
    client.delete(stats)
    changes = house.tree.history.changes(begin, house.tree.zxid, 99)
    house.tree.history._close_newest()
    assert house.tree.history.changes(begin, house.tree.zxid, 99) == changes


def test_an_acl_that_is_too_long_to_keep_lets_nobody_read_the_past(house: World, client: Client) -> None:
    long = (Acl(31, b"world", b"anyone"), Acl(31, b"digest", b"u:" + b"h" * ACL_BYTES_MOST))
    client.create(b"/a", acl=long)
    begin = house.tree.zxid
    client.set(b"/a")
    for _ in range(BLOCK_CHANGES):
        client.set(b"/")
    past = house.tree.history.node_at(b"/a", begin)
    assert past is not None
    assert past.acl == NOBODY
    for identities, might_read in ((client.identities, None), ((SUPER,), True)):
        assert house.tree.history.since(begin, [b"/a"], identities)[0] == (begin + 1, CHANGED, b"/a", might_read)


def test_a_lock_that_is_kept_under_another_name_after_its_session_expired_is_two_changes(house: World) -> None:
    client = house.session(0x500)
    for path, data in ((b"/zookeeper/lock_delay", b""), (b"/zookeeper/lock_delay/l", b"5000"), (b"/l", b"")):
        client.create(path, data)
    client.create(b"/l/lock-", flags=EPHEMERAL_SEQUENTIAL)
    before = house.tree.zxid
    held = house.tree.nodes[b"/l/lock-0000000000"]
    house.expire(client)
    gone, kept = house.tree.history.changes(before, house.tree.zxid, 10)
    assert (gone.path, gone.previous, gone.current) == (b"/l/lock-0000000000", held, None)
    assert (kept.path, kept.previous, kept.current) == (
        b"/l/kept-lock-0000000000",
        None,
        house.tree.nodes[b"/l/kept-lock-0000000000"],
    )


# ---- how much is kept


def test_the_oldest_changes_go_when_there_are_too_many() -> None:
    house, client, checkpoint = kept(MIB)
    client.create(b"/a")
    revisions = {}
    for number in range(20_000):
        client.set(b"/a", b"%d" % number)
        revisions[house.tree.zxid] = house.tree.nodes[b"/a"]
        if number % 3_000 == 0:
            checkpoint.write(house.tree.take_changes())
    store(house, checkpoint)
    history = house.tree.history
    assert history.size_bytes <= MIB
    assert bytes_in(checkpoint) < 1.3 * MIB
    assert history.size_bytes > 0.7 * MIB, "no more goes than has to"
    assert min(revisions) < history.oldest < max(revisions)
    for revision in list(revisions)[::500]:
        if revision >= history.oldest:
            assert value_at(history, b"/a", revision) == revisions[revision]
    loaded = Tree(house.tree.options)
    loaded.history.read_stored = checkpoint.read_stored
    loaded.load(checkpoint.read)
    assert loaded.history.oldest == history.oldest
    assert value_at(loaded.history, b"/a", history.oldest) == revisions[history.oldest]


def test_what_was_dropped_while_a_checkpoint_failed_leaves_the_tables_with_the_next() -> None:
    house, client, checkpoint = kept(MIB)
    client.create(b"/a")
    for _ in range(5):
        for _ in range(2_000):
            client.set(b"/a", b"x" * 100)
        store(house, checkpoint)
        for _ in range(2_000):
            client.set(b"/a", b"x" * 100)
        house.tree.restore_changes(house.tree.take_changes())
    store(house, checkpoint)
    tables = checkpoint.tables
    segments = [decode_segment(value) for value in tables[b"history_segments"].values()]
    assert set(tables[b"history"]) == set(tables[b"history_paths"]) == {segment.key for segment in segments}
    assert sorted(segment.last_revision for segment in segments)[0] > house.tree.history.oldest
    assert min(map(first_revision, tables[b"history_tail"])) >= max(segment.last_revision for segment in segments)


def test_changes_older_than_the_retention_go_with_the_next_checkpoint() -> None:
    house, client, checkpoint = kept(2 * MIB, retention_ms=10_000)
    client.create(b"/a")
    for _ in range(5_000):
        client.set(b"/a")
    store(house, checkpoint)
    old = house.tree.zxid
    assert house.tree.history.oldest == 0
    house.now_ms += 11_000
    for _ in range(5_000):
        client.set(b"/a")
    store(house, checkpoint)
    assert old - 3_000 < house.tree.history.oldest <= old, "whole segments go at once"
    assert value_at(house.tree.history, b"/a", house.tree.history.oldest) is not None


def test_a_clock_that_is_set_back_drops_nothing() -> None:
    house, client, checkpoint = kept(retention_ms=10_000)
    client.create(b"/a")
    oldest = house.tree.history.oldest
    house.now_ms -= 1_000_000
    client.set(b"/a")
    store(house, checkpoint)
    assert house.tree.history.oldest == oldest


# ---- what it takes


def test_only_what_is_not_in_the_checkpoint_stays_in_memory() -> None:
    house, client, checkpoint = kept(64 * MIB)
    tree = house.tree
    for number in range(100):
        client.create(b"/%d" % number)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            client.set(b"/%d" % (number % 100), b"x" * 100)
            house.log.clear()
            tree.events.clear()
            if number % 4_000 == 0:
                checkpoint.tables = {}
                tree.take_changes()
        tree.take_changes()
        tree.take_changes()
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert tree.history.size_bytes > 3 * MIB
    assert taken_bytes < 2.5 * MIB


def test_a_stuck_checkpoint_does_not_let_memory_grow_without_a_limit() -> None:
    house, client, _ = kept(2 * MIB)
    client.create(b"/a")
    for _ in range(30):
        client.set(b"/a", b"x" * 300_000)
        house.tree.restore_changes(house.tree.take_changes())
    assert house.tree.history.size_bytes <= 2 * MIB
    assert house.tree.history.unstored_bytes > MIB, "a checkpoint is due by what it would write"


def test_a_revision_of_many_large_changes_makes_many_blocks() -> None:
    house, client, checkpoint = kept(64 * MIB)
    for number in range(40):
        client.create(b"/%d" % number, b"x" * 100_000, flags=EPHEMERAL)
    before = house.tree.zxid
    client.close()
    house.session(0x200)
    for _ in range(2):
        house.tree.history.add((house.tree.zxid, 0, ChangeKind.DATA_CHANGED, b"/", b"", b"", None, b""))
        house.tree.zxid += 1
    store(house, checkpoint)
    segments = [decode_segment(value) for value in checkpoint.tables[b"history_segments"].values()]
    sizes = [end - start for segment in segments for start, end in pairwise((0, *segment.block_ends))]
    assert max(sizes) < BLOCK_BYTES + 110_000
    for number in range(40):
        assert value_at(house.tree.history, b"/%d" % number, before) is not None
        assert value_at(house.tree.history, b"/%d" % number, before + 1) is None


def test_a_revision_of_very_many_changes_with_an_acl_each_is_stored() -> None:
    """More than a block can number, in one checkpoint before they are packed, and in the next one after it."""
    house, client, checkpoint = kept(64 * MIB)
    many = (1 << 16) + 100
    for number in range(many):
        acl = (Acl(31, b"digest", b"u:%d" % number), Acl(31, b"world", b"anyone"))
        client.create(b"/%d" % number, acl=acl, flags=EPHEMERAL)
    before = house.tree.zxid
    client.close()
    history = house.tree.history
    for session_id in (0x200, 0x300):
        store(house, checkpoint)
        for number in (0, 1, many // 2, many - 1):
            past = history.node_at(b"/%d" % number, before)
            assert past is not None
            assert past.acl[0].id == b"u:%d" % number
            assert value_at(history, b"/%d" % number, house.tree.zxid) is None
        house.session(session_id).set(b"/")
    store(house, checkpoint)
    again = checkpoint.load()
    assert again.history.since(before) == history.since(before)


def test_a_revision_of_very_many_changes_is_told_and_looked_into_quickly() -> None:
    """Everybody waits: it took some seconds when each change looked through all behind it."""
    house, client, _ = kept()
    client.create(b"/a")
    before = house.tree.zxid
    client.multi(*[create(b"/a/%05d" % number) for number in range(10_000)])
    history = house.tree.history
    begin_s = time.process_time()
    changes = history.changes(before, house.tree.zxid, 500)
    found = history.range_slice(b"/a", before, b"", 200, {b"/a": sorted(house.tree.children[b"/a"])}).nodes
    assert time.process_time() - begin_s < 0.7
    assert len(changes) == 10_000
    assert all(change.current == house.tree.nodes[change.path] for change in changes)
    assert [past.path for past in found] == [b"/a"]


def test_changes_come_in_portions_of_a_bounded_size() -> None:
    house, client, _ = kept(64 * MIB)
    client.create(b"/a", b"x" * 500_000)
    begin = house.tree.zxid
    for _ in range(40):
        client.set(b"/a", b"x" * 500_000)
    portion = house.tree.history.changes(begin, house.tree.zxid, 1_000)
    size_bytes = sum(len(change.previous or b"") + len(change.current or b"") for change in portion)
    assert CHANGES_BYTES <= size_bytes < CHANGES_BYTES + 1_100_000


def test_a_slice_of_a_range_ends_although_nothing_was_found() -> None:
    house, client, _ = kept()
    begin = house.tree.zxid
    for number in range(1_500):
        client.create(b"/%04d" % number)
    found = house.tree.history.range_slice(b"/", begin, b"/zookeeper", 10, {})
    assert [node.path for node in found.nodes] == [b"/zookeeper/config", b"/zookeeper/quota"]
    assert found.resume_after is None
    found = house.tree.history.range_slice(b"/", begin, b"/", 10, {})
    assert (found.nodes, found.resume_after) == ([], b"/0238")
    assert len(range_at(house.tree.history, b"/", begin, b"", 10)) == 4


def test_a_slice_of_a_range_ends_earlier_where_each_path_was_touched_often() -> None:
    house, client, _ = kept()
    history = house.tree.history
    history.block_changes = 20
    paths = [b"/a/%02d" % number for number in range(20)]
    for path in (b"/a", *paths):
        client.create(path)
    begin = house.tree.zxid
    for _ in range(300):
        for path in paths:
            client.set(path)
    found = history.range_slice(b"/a", begin, b"/a", 1000, {})
    assert 10 < len(found.nodes) < 20
    assert [path for path, _ in range_at(history, b"/a", begin, b"/a", 1000)] == paths


def test_only_what_changed_is_stored_again() -> None:
    house, client, checkpoint = kept()
    for _ in range(2 * BLOCK_CHANGES + 1):
        client.set(b"/")
    store(house, checkpoint)
    assert house.tree.take_changes()[b"history_tail"] == {}
    client.set(b"/")
    assert len(house.tree.take_changes()[b"history_tail"]) == 1


def test_a_block_ends_by_the_bytes_of_its_changes_too() -> None:
    house, client, checkpoint = kept()
    client.create(b"/a")
    for _ in range(30):
        client.set(b"/a", b"x" * 10_000)
    store(house, checkpoint)
    sizes = [len(value) for value in checkpoint.tables[b"history_tail"].values()]
    assert max(sizes) < 2 * BLOCK_BYTES
    assert len(sizes) > 3


def test_what_was_taken_back_does_not_fill_a_block() -> None:
    house, client, _ = kept()
    for _ in range(10):
        client.multi(create(b"/" + b"n" * BLOCK_BYTES), set_data(b"/absent", b""))
    client.set(b"/")
    client.set(b"/")
    assert len(house.tree.take_changes()[b"history_tail"]) == 1


def test_a_tree_without_a_checkpoint_has_nothing_stored(house: World) -> None:
    assert house.tree.history.read_stored(b"history", b"key", slice(None)) is None


def test_what_no_segment_has_yet_goes_when_it_is_older_than_the_retention() -> None:
    house, client, _ = kept(retention_ms=10_000)
    client.create(b"/a")
    for _ in range(BLOCK_CHANGES):
        client.set(b"/a")
    begin = house.tree.history.oldest
    house.now_ms += 20_000
    client.set(b"/a")
    house.tree.take_changes()
    assert house.tree.history.oldest > begin


def test_watches_that_missed_too_much_of_what_is_stored_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    house, client, checkpoint = kept(MIB)
    begin = house.tree.zxid
    client.create(b"/a")
    for _ in range(2_000):
        client.set(b"/a", b"x" * 100)
    store(house, checkpoint)
    assert house.tree.history.since(begin) is not None
    monkeypatch.setattr("znoded.tree.history.CATCH_UP_BYTES", 1)
    assert house.tree.history.since(begin) is None


def test_a_path_is_found_among_those_of_many_pages() -> None:
    house, client, checkpoint = kept(2 * MIB)
    begin = house.tree.zxid
    paths = [b"/a-znode-with-a-long-name-%04d" % number for number in range(600)]
    for path in paths:
        client.create(path, b"old")
    revision = house.tree.zxid
    for path in paths * 3:
        client.set(path, b"x" * 100)
    store(house, checkpoint)
    missed = house.tree.history.since(begin)
    assert missed is not None
    assert {path for _, _, path, _ in missed} == {b"/", *paths}
    for path in paths[:2] + paths[-2:]:
        old = value_at(house.tree.history, path, revision)
        assert old is not None
        assert old[4:7] == b"old"
    found = range_at(house.tree.history, b"/", revision, paths[9], 3)
    assert [(path, old[4:7]) for path, old in found] == [(path, b"old") for path in paths[10:13]]


@pytest.mark.parametrize("more", [0, BLOCK_CHANGES])
def test_a_change_has_the_znode_as_it_was_before_a_childs_and_its_own(house: World, client: Client, more: int) -> None:
    begin = house.tree.zxid
    client.create(b"/p", b"1")
    client.create(b"/p/c")
    client.set(b"/p", b"2")
    for _ in range(more):
        client.set(b"/p/c")
    made = house.tree.history.changes(begin, house.tree.zxid, 100)[0]
    assert made.current is not None
    assert (data_of(made.current), parsed_stat(made.current).num_children) == (b"1", 0)


def test_the_past_is_found_over_many_blocks() -> None:
    house, client, _ = kept()
    history = house.tree.history
    names = [b"/a", b"/b", b"/c", b"/d"]

    def close_block() -> None:
        for _ in range(BLOCK_CHANGES):
            client.set(b"/d")

    for name in names:
        client.create(name, b"old")
    close_block()
    client.create(b"/b/early")
    revision = house.tree.zxid
    close_block()
    close_block()
    client.create(b"/a/x")
    close_block()
    client.create(b"/a/y")
    client.set(b"/a", b"new")
    close_block()
    of_a = value_at(history, b"/a", revision)
    assert of_a is not None
    assert parsed_stat(of_a).num_children == 0
    assert [path for path, _ in range_at(history, b"/a", revision, b"", 10)] == [b"/a"]
    found = [path for path, _ in range_at(history, b"/", revision, b"", 100) if not path.startswith(b"/zookeeper")]
    assert found == [b"/", b"/a", b"/b", b"/b/early", b"/c", b"/d"]
    assert [change.path for change in history.changes(revision - 1, revision, 10)] == [b"/b/early"]


def test_memory_is_bounded_although_more_may_be_kept() -> None:
    house, client, _ = kept(256 * MIB)
    client.create(b"/a")
    for _ in range(100):
        client.set(b"/a", b"x" * MIB)
    assert house.tree.history.oldest > 0
    assert house.tree.history.size_bytes <= MEMORY_BYTES
