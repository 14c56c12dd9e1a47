"""The tree as the checkpoint sees it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.tree.world import EPHEMERAL, SECRET, Client, World, check, create, delete, set_data, world
from znoded.jute.ops import Perm
from znoded.tree.tables import Changes
from znoded.tree.tree import Tree


class Checkpoint:
    """Tables in memory, written in increments."""

    def __init__(self) -> None:
        self.tables: dict[bytes, dict[bytes, bytes]] = {}

    def write(self, changes: Changes) -> None:
        for name, values in changes.items():
            table = self.tables.setdefault(name, {})
            for key, value in values.items():
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = value

    def read(self, table: bytes) -> Iterable[tuple[bytes, bytes]]:
        return self.tables.get(table, {}).items()

    def read_stored(self, table: bytes, key: bytes, part: slice) -> bytes | None:
        value = self.tables.get(table, {}).get(key)
        return None if value is None else value[part]

    def load(self) -> Tree:
        tree = Tree()
        tree.history.read_stored = self.read_stored
        tree.load(self.read)
        return tree


def state(tree: Tree, oldest: int | None = None) -> dict[str, object]:
    """Everything that is replicated, in a form that can be compared; of the history what is behind `oldest`, or all."""
    if oldest is None:
        oldest = tree.history.oldest
    return {
        "numbers": (tree.zxid, tree.term, tree.cell_secret, tree.options.encode()),
        "members": (tree.roster, tree.config_version),
        "nodes": tree.nodes,
        "children": {path: set(children) for path, children in tree.children.items()},
        "created": tree.created,
        "acls": tree.acls,
        "kinds": tree.kinds,
        "quotas": tree.quotas,
        "kept": tree.kept,
        "sessions": {
            session.id: (
                session.timeout_ms,
                session.password,
                session.attach,
                session.sequence,
                session.ephemerals or set(),
            )
            for session in tree.sessions.values()
        },  # fmt: skip
        "history": tree.history.changes(oldest, tree.zxid, 1_000_000),
        "oldest": oldest,
    }


def use_everything(house: World) -> Client:
    client = house.session(-0x0500000000000042)
    client.create(b"/a", b"data", acl=world(Perm.READ | Perm.CREATE))
    client.create(b"/a/e", flags=EPHEMERAL)
    client.create_container(b"/c")
    client.create(b"/c/x")
    client.delete(b"/c/x")
    client.create_ttl(b"/t", 1000)
    for path in (b"/q", b"/zookeeper/quota/q"):
        client.create(path)
    client.create(b"/zookeeper/quota/q/zookeeper_limits", b"count=-1,bytes=-1=;countHardLimit=4")
    client.create(b"/zookeeper/quota/q/zookeeper_stats")
    client.set(b"/a", b"refused")
    house.session(7).close()
    return client


def test_all_of_the_state_comes_back(house: World) -> None:
    use_everything(house)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    assert state(checkpoint.load()) == state(house.tree)


def test_increments_add_up(house: World) -> None:
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    client = use_everything(house)
    checkpoint.write(house.tree.take_changes())
    for path in (b"/a/e", b"/a", b"/c", b"/t", b"/zookeeper/quota/q/zookeeper_limits"):
        client.delete(path)
    client.set_acl(b"/q", world(Perm.ADMIN))
    client.close()
    checkpoint.write(house.tree.take_changes())
    assert state(checkpoint.load()) == state(house.tree)


def test_an_increment_holds_only_what_changed(house: World, client: Client) -> None:
    client.create(b"/a")
    client.create(b"/b")
    house.tree.take_changes()
    client.set(b"/a")
    changes = house.tree.take_changes()
    assert changes[b"nodes"].keys() == {b"/a"}
    assert changes[b"created"] == changes[b"acls"] == changes[b"kinds"] == {}
    assert len(changes[b"sessions"]) == 1, "its sequence moved"


def test_a_deleted_node_leaves_the_tables(house: World, client: Client) -> None:
    client.create_container(b"/c")
    client.create(b"/c/x", acl=world(Perm.READ))
    house.tree.take_changes()
    client.delete(b"/c/x")
    client.delete(b"/c")
    changes = house.tree.take_changes()
    for table in (b"nodes", b"created", b"kinds"):
        assert changes[table][b"/c"] is None
    assert changes[b"acls"] == {b"/c/x": None}


def test_what_could_not_be_stored_is_in_the_next_increment(house: World) -> None:
    client = use_everything(house)
    failed = house.tree.take_changes()
    client.set(b"/t", b"newer")
    house.tree.restore_changes(failed)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    assert state(checkpoint.load()) == state(house.tree)


def test_a_multi_that_failed_leaves_the_checkpoint_as_it_was(house: World, client: Client) -> None:
    for path in (b"/a", b"/b"):
        client.create(path)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    client.multi_errors(set_data(b"/a", b"x"), delete(b"/b"), create(b"/c"), check(b"/absent"))
    checkpoint.write(house.tree.take_changes())
    assert state(checkpoint.load()) == state(house.tree)


def test_dirty_bytes_grow_with_the_commands_and_begin_again_at_a_checkpoint(house: World, client: Client) -> None:
    before = house.tree.dirty_bytes
    client.create(b"/a", b"x" * 1000)
    assert house.tree.dirty_bytes >= before + 1000
    failed = house.tree.take_changes()
    assert house.tree.dirty_bytes == 0
    house.tree.restore_changes(failed)
    assert house.tree.dirty_bytes >= 1000


def test_a_loaded_tree_goes_on_as_the_one_that_was_stored(house: World) -> None:
    client = use_everything(house)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    stored, house.tree = house.tree, checkpoint.load()
    begin = len(house.log)
    client.create(b"/q/a")
    client.set(b"/t")
    client.delete(b"/a/e")
    client.close()
    for zxid, command in enumerate(house.log[begin:], stored.zxid + 1):
        stored.apply(zxid, command)
    assert state(house.tree) == state(stored)


def test_nothing_is_dirty_after_a_load(house: World) -> None:
    use_everything(house)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    changes = checkpoint.load().take_changes()
    assert {name for name, items in changes.items() if items} == {b"meta"}


def test_the_tables_of_a_new_cell_leave_the_reserved_nodes(house: World) -> None:
    tree = Checkpoint().load()
    assert state(tree) == state(Tree())
    assert len(tree.take_changes()[b"nodes"]) == 4


def test_a_root_without_children_is_loaded(house: World) -> None:
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    checkpoint.tables[b"nodes"] = {b"/": checkpoint.tables[b"nodes"][b"/"]}
    assert checkpoint.load().children == {}


def test_an_ephemeral_of_no_session_is_loaded_and_can_be_deleted(house: World, client: Client) -> None:
    client.create(b"/e", flags=EPHEMERAL)
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    checkpoint.tables[b"sessions"].clear()
    house.tree = checkpoint.load()
    assert house.session(2).delete(b"/e") == 0


def test_equal_acls_are_one_object_after_a_load(house: World, client: Client) -> None:
    for path in (b"/a", b"/b"):
        client.create(path, acl=world(Perm.ADMIN))
    checkpoint = Checkpoint()
    checkpoint.write(house.tree.take_changes())
    tree = checkpoint.load()
    assert tree.acls[b"/a"] is tree.acls[b"/b"]
    assert house.tree.cell_secret == tree.cell_secret == SECRET
