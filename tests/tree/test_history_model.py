"""The history against copies of the tree: whatever was done, every revision that is kept is as it was."""

from __future__ import annotations

from typing import NamedTuple
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.tree.past import range_at
from tests.tree.test_checkpoint_tables import Checkpoint
from tests.tree.world import CHILDREN, EPHEMERAL, Client, World, create, delete, set_data, world
from znoded.jute.fields import Record
from znoded.jute.ops import Op, Perm
from znoded.tree.acl import Acls, allowed
from znoded.tree.history import WIDE, Change
from znoded.tree.history_block import ChangeKind
from znoded.tree.history_segment import decode_segment, first_revision
from znoded.tree.options import TreeOptions
from znoded.tree.tree import Tree

PATHS = [b"/", b"/a", b"/a!", b"/a/b", b"/a/b/c", b"/a/b0", b"/a0", b"/" + b"n" * 210, b"/" + b"n" * 210 + b"/x"]
STATS = b"/zookeeper/quota/a/zookeeper_stats"
paths = st.sampled_from(PATHS)


class Copy(NamedTuple):
    """What the tree was at a revision."""

    nodes: dict[bytes, bytes]
    acls: dict[bytes, Acls]


class HistoryAgainstCopies(RuleBasedStateMachine):
    @initialize(
        block_changes=st.integers(1, 4),
        segment_bytes=st.integers(1, 1500),
        kept=st.sampled_from((2_000, 8_000, 1 << 20)),
    )
    def begin(self, block_changes: int, segment_bytes: int, kept: int) -> None:
        self.small = block_changes, segment_bytes
        self.options = TreeOptions(history_bytes=kept, history_retention_ms=1_000_000)
        self.house = World(self.options)
        self.shrink()
        self.client = self.house.session()
        self.checkpoint = Checkpoint()
        self.house.tree.history.read_stored = self.checkpoint.read_stored
        self.copies: dict[int, Copy] = {}
        self.remember()

    def shrink(self) -> None:
        history = self.house.tree.history
        history.block_changes, history.segment_bytes = self.small

    def remember(self) -> None:
        tree = self.house.tree
        nodes = {path: node for path, node in tree.nodes.items() if path != STATS}
        self.copies[tree.zxid] = Copy(nodes, dict(tree.acls))

    @rule(path=paths, data=st.binary(max_size=200), is_restricted=st.booleans(), is_ephemeral=st.booleans())
    def create_one(self, path: bytes, data: bytes, is_restricted: bool, is_ephemeral: bool) -> None:
        acl = world(Perm.ALL & ~Perm.ADMIN) if is_restricted else world(Perm.ALL)
        self.client.create(path, data, acl=acl, flags=EPHEMERAL if is_ephemeral else 0)
        self.remember()

    @rule(path=paths, data=st.binary(max_size=200))
    def set_one(self, path: bytes, data: bytes) -> None:
        self.client.set(path, data)
        self.remember()

    @rule(path=paths)
    def delete_one(self, path: bytes) -> None:
        self.client.delete(path)
        self.remember()

    @rule(some=st.lists(st.tuples(paths, st.integers(0, 2)), min_size=5, max_size=20), size=st.integers(0, 300))
    def change_a_lot(self, some: list[tuple[bytes, int]], size: int) -> None:
        for path, how in some:
            if how == 0:
                self.client.delete(path)
            elif path in self.house.tree.nodes:
                self.client.set(path, b"d" * size)
            else:
                self.client.create(path)
            self.remember()

    @rule(count=st.integers(1, 20), size=st.integers(0, 300))
    def change_one_a_lot(self, count: int, size: int) -> None:
        for number in range(count):
            self.client.create(b"/a")
            self.client.set(b"/a", b"d" * size)
            if number % 5 == 0:
                self.client.delete(b"/a")
            self.remember()

    @rule(path=paths, perms=st.integers(1, 31))
    def set_acl(self, path: bytes, perms: int) -> None:
        self.client.set_acl(path, world(perms | Perm.ADMIN))
        self.remember()

    @rule(
        wishes=st.lists(
            st.one_of(
                st.builds(create, paths, st.binary(max_size=50)),
                st.builds(set_data, paths, st.binary(max_size=50)),
                st.builds(delete, paths),
            ),
            max_size=8,
        )
    )
    def multi(self, wishes: list[tuple[Op, Record]]) -> None:
        self.client.multi(*wishes)
        self.remember()

    @rule()
    def end_session(self) -> None:
        self.client.close()
        self.remember()
        self.client = Client(self.house, self.client.id + 2)
        self.client = self.house.session(self.client.id)
        self.remember()

    @rule()
    def put_quota(self) -> None:
        for path in (b"/zookeeper/quota/a", b"/zookeeper/quota/a/zookeeper_limits", STATS):
            self.client.create(path, b"count=-1,bytes=-1" if path.endswith(b"limits") else b"")
            self.remember()

    @rule()
    def store(self) -> None:
        self.checkpoint.write(self.house.tree.take_changes())

    @rule()
    def store_and_see_it_stored(self) -> None:
        self.store()
        self.store()

    @rule(stored=st.sets(st.sampled_from([b"history_tail", b"history", b"history_paths", b"history_segments"])))
    def fail_to_store(self, stored: set[bytes]) -> None:
        changes = self.house.tree.take_changes()
        self.checkpoint.write({table: items for table, items in changes.items() if table in stored})
        self.house.tree.restore_changes(changes)

    @invariant()
    def it_is_not_too_large(self) -> None:
        assert self.house.tree.history.size_bytes <= self.options.history_bytes

    @rule()
    def the_checkpoint_holds_what_is_kept_and_nothing_else(self) -> None:
        self.store()
        tables = self.checkpoint.tables
        segments = [decode_segment(value) for value in tables[b"history_segments"].values()]
        assert set(tables[b"history"]) == set(tables[b"history_paths"]) == {segment.key for segment in segments}
        assert all(segment.last_revision > self.house.tree.history.oldest for segment in segments)
        kept = {key for key in tables[b"history_tail"] if first_revision(key) <= self.house.tree.history.oldest}
        assert not kept

    @rule()
    def restart(self) -> None:
        self.store()
        tree = Tree(self.options)
        tree.history.read_stored = self.checkpoint.read_stored
        tree.load(self.checkpoint.read)
        assert tree.history.oldest >= self.house.tree.history.oldest
        self.house.tree = tree
        self.shrink()

    @invariant()
    def every_revision_is_as_it_was(self) -> None:
        history = self.house.tree.history
        for revision, (nodes, acls) in self.copies.items():
            if revision < history.oldest:
                continue
            for path in PATHS:
                past = history.node_at(path, revision)
                assert (past and past.node) == nodes.get(path), (path, revision)
                assert past is None or past.acl == acls.get(path), (path, revision)

    @rule(prefix=paths, limit=st.integers(1, 5), wide=st.sampled_from([0, 1, WIDE]), data=st.data())
    def ranges_are_as_they_were(self, prefix: bytes, limit: int, wide: int, data: st.DataObject) -> None:
        with patch("znoded.tree.history.WIDE", wide):
            self.check_range(prefix, limit, data)

    def check_range(self, prefix: bytes, limit: int, data: st.DataObject) -> None:
        history = self.house.tree.history
        kept = [revision for revision in self.copies if revision >= history.oldest]
        revision = data.draw(st.sampled_from(kept))
        below = prefix.rstrip(b"/") + b"/"
        expected = [
            (path, node)
            for path, node in sorted(self.copies[revision].nodes.items())
            if path == prefix or path.startswith(below)
        ]
        found: list[tuple[bytes, bytes]] = []
        after = b""
        while page := range_at(history, prefix, revision, after, limit):
            assert len(page) <= limit
            found += [(path, node) for path, node in page if path != STATS]
            after = page[-1][0]
        assert found == expected

    @rule(limit=st.integers(1, 5), data=st.data())
    def changes_lead_from_one_revision_to_the_next(self, limit: int, data: st.DataObject) -> None:
        tree = self.house.tree
        kept = [revision for revision in self.copies if revision >= tree.history.oldest]
        begin = after = data.draw(st.sampled_from(kept))
        end = data.draw(st.sampled_from([revision for revision in kept if revision >= begin]))
        found: list[Change] = []
        while portion := tree.history.changes(after, end, limit):
            assert portion[0].revision > after, "a revision is never split"
            after = portion[-1].revision
            assert after <= end
            found += portion
        nodes = dict(self.copies[begin].nodes)
        for change in found:
            if change.path == STATS:
                continue
            assert _own(change.previous) == _own(nodes.get(change.path)), change
            if change.current is None:
                del nodes[change.path]
            else:
                nodes[change.path] = change.current
        assert {path: _own(node) for path, node in nodes.items()} == {
            path: _own(node) for path, node in self.copies[end].nodes.items()
        }
        last = {change.path: change for change in found}
        for path, change in last.items():
            at_its_revision = self.copies.get(change.revision)
            if at_its_revision is not None and path != STATS:
                assert change.current == at_its_revision.nodes.get(path)

    @rule(data=st.data())
    def events_are_those_of_the_changes(self, data: st.DataObject) -> None:
        history = self.house.tree.history
        kept = [revision for revision in self.copies if revision >= history.oldest]
        after = data.draw(st.sampled_from(kept))
        events = history.since(after, PATHS)
        assert events is not None
        assert [event for event in events if event[1] != CHILDREN] == [
            (change.revision, change.kind, change.path, allowed(change.acl, Perm.READ, ()))
            for change in history.changes(after, self.house.tree.zxid, 1_000_000)
            if change.kind != ChangeKind.ACL_CHANGED
        ]
        path = data.draw(paths)
        below = path.rstrip(b"/") + b"/"
        about = history.since(after, [path])
        assert about is not None
        assert [event for event in events if event[2] == path] == [event for event in about if event[2] == path]
        assert [event for event in events if event[2].startswith(below) and event[1] != CHILDREN] == [
            event for event in about if event[2].startswith(below) and event[1] != CHILDREN
        ]


def _own(node: bytes | None) -> bytes | None:
    """What of a znode its own changes change."""
    return None if node is None else node[:-32] + node[-28:-12]


TestHistoryAgainstCopies = HistoryAgainstCopies.TestCase
TestHistoryAgainstCopies.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
