"""The tree against a model that is written for nothing but to be plain: a dictionary of nodes with separate fields.

The model knows nothing of bytes, offsets, checkpoints or undoing: for a multi it works on a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.tree.test_checkpoint_tables import Checkpoint, state
from tests.tree.world import OPEN, Client, World, check, create, delete, set_data, world
from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Record
from znoded.jute.ops import CreateFlags, Op, Perm
from znoded.jute.records import (
    Acl,
    CheckRequest,
    Create2Reply,
    CreateReply,
    CreateRequest,
    DeleteRequest,
    EmptyRecord,
    SetDataRequest,
    StatReply,
)
from znoded.jute.stat import Stat
from znoded.tree.tree import Tree

RESERVED = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")


class No(Exception):
    """The model refuses."""

    def __init__(self, err: ErrorCode) -> None:
        self.err = err


@dataclass
class Node:
    data: bytes | None = b""
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    aversion: int = 0
    owner: int = 0
    created: int = 0
    acl: tuple[Acl, ...] = OPEN


@dataclass
class Model:
    nodes: dict[str, Node] = field(default_factory=lambda: {path: Node() for path in RESERVED})
    zxid: int = 0
    now_ms: int = 0
    session: int = 0

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [
            other
            for other in self.nodes
            if other != "/" and other.startswith(prefix) and "/" not in other[len(prefix) :]
        ]

    def stat(self, path: str) -> Stat:
        node = self.nodes[path]
        children = len(self.children(path))
        cversion = 2 * node.created - children
        length = len(node.data or b"")
        times = node.czxid, node.mzxid, node.ctime, node.mtime
        return Stat(*times, node.version, cversion, node.aversion, node.owner, length, children, node.pzxid)

    def node(self, path: str, err: ErrorCode = ErrorCode.NO_NODE) -> Node:
        if path not in self.nodes:
            raise No(err)
        return self.nodes[path]

    @staticmethod
    def need(node: Node, perm: Perm) -> None:
        if not any(entry.perms & perm for entry in node.acl):
            raise No(ErrorCode.NO_AUTH)

    def parent(self, path: str) -> str:
        return path.rpartition("/")[0] or "/"

    def create(self, path: str, data: bytes | None, flags: int, acl: tuple[Acl, ...]) -> str:
        parent = self.node(self.parent(path))
        self.need(parent, Perm.CREATE)
        if flags in (CreateFlags.PERSISTENT_SEQUENTIAL, CreateFlags.EPHEMERAL_SEQUENTIAL):
            path += f"{parent.created:010}"
        if path.endswith("/") and path != "/":
            raise No(ErrorCode.BAD_ARGUMENTS)
        if path in self.nodes:
            raise No(ErrorCode.NODE_EXISTS)
        if parent.owner:
            raise No(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        owner = self.session if flags in (CreateFlags.EPHEMERAL, CreateFlags.EPHEMERAL_SEQUENTIAL) else 0
        zxid, now_ms = self.zxid, self.now_ms
        self.nodes[path] = Node(data, zxid, zxid, zxid, now_ms, now_ms, owner=owner, acl=acl)
        parent.created += 1
        parent.pzxid = zxid
        return path

    def delete(self, path: str, version: int) -> None:
        if path in RESERVED:
            raise No(ErrorCode.BAD_ARGUMENTS)
        parent = self.node(self.parent(path))
        self.need(parent, Perm.DELETE)
        node = self.node(path)
        if version not in (-1, node.version):
            raise No(ErrorCode.BAD_VERSION)
        if self.children(path):
            raise No(ErrorCode.NOT_EMPTY)
        del self.nodes[path]
        parent.pzxid = self.zxid

    def set_data(self, path: str, data: bytes | None, version: int) -> Stat:
        node = self.node(path, ErrorCode.BAD_ARGUMENTS if path.endswith("/") and path != "/" else ErrorCode.NO_NODE)
        self.need(node, Perm.WRITE)
        if version not in (-1, node.version):
            raise No(ErrorCode.BAD_VERSION)
        node.data, node.version, node.mzxid, node.mtime = data, node.version + 1, self.zxid, self.now_ms
        return self.stat(path)

    def check(self, path: str, version: int) -> None:
        node = self.node(path, ErrorCode.BAD_ARGUMENTS if path.endswith("/") and path != "/" else ErrorCode.NO_NODE)
        self.need(node, Perm.READ)
        if version not in (-1, node.version):
            raise No(ErrorCode.BAD_VERSION)

    def set_acl(self, path: str, acl: tuple[Acl, ...]) -> Stat:
        node = self.node(path, ErrorCode.BAD_ARGUMENTS if path.endswith("/") and path != "/" else ErrorCode.NO_NODE)
        self.need(node, Perm.ADMIN)
        node.acl, node.aversion = acl, node.aversion + 1
        return self.stat(path)

    def end_of(self, session: int) -> None:
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            del self.nodes[path]
            self.nodes[self.parent(path)].pzxid = self.zxid

    def carry_out(self, op: Op, request: Record) -> Record | None:
        match request:
            case CreateRequest(path, data, acl, flags):
                made = self.create((path or b"").decode(), data, flags, acl or ())
                reply = made.encode()
                return CreateReply(reply) if op == Op.CREATE else Create2Reply(reply, self.stat(made))
            case DeleteRequest(path, version):
                self.delete((path or b"").decode(), version)
            case SetDataRequest(path, data, version):
                return StatReply(self.set_data((path or b"").decode(), data, version))
            case CheckRequest(path, version):
                self.check((path or b"").decode(), version)
        return None


#: A path, or the number of a znode that is there and what to append to its path.
Target = str | tuple[int, str]
#: An operation on a target, which is looked up when it is carried out.
Wish = tuple[Callable[[bytes], tuple[Op, Record]], Target]

targets = st.one_of(
    st.tuples(st.integers(0, 30), st.sampled_from(["", "", "", "/a", "/b", "/"])),
    st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/zookeeper", "/zookeeper/quota"]),
)
contents = st.sampled_from([b"", b"x", b"longer data", None])
versions = st.sampled_from([-1, -1, -1, 0, 1])
flags = st.sampled_from([0, 0, 0, 1, 2, 3])
acls = st.sampled_from([OPEN, OPEN, OPEN, world(Perm.ALL & ~Perm.WRITE), world(Perm.READ | Perm.ADMIN)])
creates = st.builds(
    lambda data, flag, acl, op: lambda path: create(path, data, flag, acl, op),
    contents, flags, acls, st.sampled_from([Op.CREATE, Op.CREATE2]),
)  # fmt: skip
deletes = st.builds(lambda version: lambda path: delete(path, version), versions)
sets = st.builds(lambda data, version: lambda path: set_data(path, data, version), contents, versions)
checks = st.builds(lambda version: lambda path: check(path, version), versions)
wishes = st.tuples(st.one_of(creates, creates, deletes, sets), targets)
wishes_of_a_multi = st.tuples(st.one_of(creates, creates, deletes, sets, checks), targets)


class TreeAndModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.house = World()
        self.model = Model()
        for path in RESERVED[1:]:
            self.model.nodes[path] = Node()
        self.model.nodes["/zookeeper/config"] = Node(aversion=-1, acl=world(Perm.READ))
        self.clients = [self.house.session(1), self.house.session(2)]
        self.checkpoint = Checkpoint()

    def begin(self, client: Client) -> Model:
        """The model, ready for the client's next command."""
        self.model.zxid, self.model.now_ms = self.house.tree.zxid + 1, self.house.now_ms + 1
        self.model.session = client.id
        return self.model

    def path_of(self, target: Target) -> str:
        if isinstance(target, str):
            return target
        number, rest = target
        mine = sorted(set(self.model.nodes) - set(RESERVED)) or ["/a"]
        return mine[number % len(mine)] + rest

    def operation(self, wish: Wish) -> tuple[Op, Record]:
        make, target = wish
        return make(self.path_of(target).encode())

    @rule(who=st.integers(0, 1), wish=wishes)
    def carry_out(self, who: int, wish: Wish) -> None:
        client = self.clients[who]
        op, request = self.operation(wish)
        model = self.begin(client)
        try:
            reply = model.carry_out(op, request)
            expected = 0, reply.encode() if reply is not None else b""
        except No as no:
            expected = int(no.err), b""
        assert client.send(op, request.encode()) == expected

    @rule(who=st.integers(0, 1), wanted=st.lists(wishes_of_a_multi, max_size=6))
    def carry_out_together(self, who: int, wanted: list[Wish]) -> None:
        client = self.clients[who]
        some = [self.operation(wish) for wish in wanted]
        model = self.begin(client)
        before = copy.deepcopy(model.nodes)
        expected: list[Record | None] = []
        refusal: ErrorCode | None = None
        for op, request in some:
            try:
                expected.append(model.carry_out(op, request))
            except No as no:
                refusal = no.err
                break
        if refusal is not None:
            model.nodes = before
            errors = [ErrorCode.OK] * len(expected) + [refusal]
            errors += [ErrorCode.RUNTIME_INCONSISTENCY] * (len(some) - len(errors))
            assert client.multi_errors(*some) == errors
            return
        results = client.multi(*some)
        assert isinstance(results, list)
        for (op, _), (answered_op, answered), reply in zip(some, results, expected, strict=True):
            assert answered_op == op
            assert answered == (EmptyRecord() if reply is None else reply)

    @rule(who=st.integers(0, 1), place=targets, acl=acls)
    def set_acl(self, who: int, place: Target, acl: tuple[Acl, ...]) -> None:
        client = self.clients[who]
        path = self.path_of(place)
        model = self.begin(client)
        try:
            expected: Stat | int = model.set_acl(path, acl)
        except No as no:
            expected = no.err
        assert client.set_acl(path.encode(), acl) == expected

    @rule(who=st.integers(0, 1), expire=st.booleans())
    def end_session(self, who: int, expire: bool) -> None:
        client = self.clients[who]
        self.begin(client).end_of(client.id)
        assert (self.house.expire(client) if expire else client.close()) == 0
        self.clients[who] = self.house.session(max(each.id for each in self.clients) + 1)

    @rule()
    def store(self) -> None:
        self.checkpoint.write(self.house.tree.take_changes())

    @rule()
    def fail_to_store(self) -> None:
        self.house.tree.restore_changes(self.house.tree.take_changes())

    @rule()
    def restart(self) -> None:
        self.store()
        loaded = self.checkpoint.load()
        assert state(loaded) == state(self.house.tree)
        self.house.tree = loaded

    @invariant()
    def nodes_are_the_same(self) -> None:
        tree: Tree = self.house.tree
        assert {path.decode() for path in tree.nodes} == set(self.model.nodes)
        for path, node in self.model.nodes.items():
            raw = path.encode()
            assert self.house.stat(raw) == self.model.stat(path)
            assert self.house.data(raw) == node.data
            assert self.house.acl(raw) == node.acl
            assert {child.decode() for child in tree.children.get(raw, ())} == set(self.model.children(path))
            assert tree.created.get(raw, 0) == node.created
        for session in tree.sessions.values():
            mine = {path.encode() for path, node in self.model.nodes.items() if node.owner == session.id}
            assert (session.ephemerals or set()) == mine

    @invariant()
    def nothing_is_kept_of_what_is_gone(self) -> None:
        tree = self.house.tree
        for table in (tree.created, tree.acls, tree.kinds, tree.children):
            assert set(table) <= set(tree.nodes)
        assert all(tree.children.values())


TestTreeAgainstModel = TreeAndModel.TestCase
TestTreeAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
