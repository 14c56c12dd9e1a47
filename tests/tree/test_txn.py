"""TXN: compares, then one list of ops or the other, all or none; and never a way for a client to send it."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jute.factory import request
from tests.server.harness import House
from tests.tree.test_checkpoint_tables import state
from tests.tree.world import EPHEMERAL, EPHEMERAL_SEQUENTIAL, SEQUENTIAL, Client, World, only, world
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Perm
from znoded.jute.primitives import Reader
from znoded.jute.records import Acl
from znoded.tree.commands import TXN
from znoded.tree.txn import LEVELS_MOST, READ_BYTES
from znoded.tree.txn_records import Compare, Kind, Relation, Target, TxnOp, TxnReply, TxnRequest
from znoded.tree.znode import data_of, owner_of

EQUAL, NOT_EQUAL, LESS, GREATER = Relation


@pytest.fixture
def house() -> World:
    return World()


@pytest.fixture
def carrier(house: World) -> Client:
    return house.session(0x1)


@pytest.fixture
def owner(house: World) -> Client:
    return house.session(0x2)


def op(
    kind: int,
    path: bytes | None,
    data: bytes | None = b"",
    flags: int = 0,
    version: int = -1,
    acl: tuple[Acl, ...] | None = None,
    infix: bytes | None = None,
    parents: bool = False,
) -> TxnOp:
    return TxnOp(kind, path, data, acl, flags, version, infix, parents)


def value(path: bytes, relation: int, wanted: bytes) -> Compare:
    return Compare(path, Target.VALUE, relation, wanted, 0)


def number(path: bytes, target: int, relation: int, wanted: int) -> Compare:
    return Compare(path, target, relation, None, wanted)


def txn(
    client: Client, *then: TxnOp, compares: tuple[Compare, ...] = (), otherwise: tuple[TxnOp, ...] = (), owner: int = 0
) -> TxnReply | int:
    """The reply, or the error of the command."""
    err, body = client.send(TXN, TxnRequest(owner, compares, then, otherwise).encode())
    return err or TxnReply.decode(Reader(body))


def done(reply: TxnReply | int) -> list[tuple[bytes | None, bytes | None]]:
    """The path and data of each result of a txn that was carried out."""
    assert isinstance(reply, TxnReply)
    assert (reply.failed, reply.err) == (-1, 0)
    return [(result.path, result.node and data_of(result.node)) for result in reply.results or ()]


def refused(reply: TxnReply | int) -> tuple[int, int]:
    """Which op failed, and how."""
    assert isinstance(reply, TxnReply)
    assert reply.results == ()
    return reply.failed, reply.err


def holds(client: Client, compare: Compare) -> bool:
    reply = txn(client, compares=(compare,))
    assert isinstance(reply, TxnReply)
    return reply.holds


def test_ops_see_what_those_before_them_did(carrier: Client) -> None:
    reply = txn(
        carrier,
        op(Kind.CREATE, b"/a", b"1"),
        op(Kind.SET, b"/a", b"2"),
        op(Kind.GET, b"/a"),
        op(Kind.DELETE, b"/a"),
        op(Kind.GET, b"/a"),
    )
    assert done(reply) == [(b"/a", b"1"), (b"/a", b"2"), (b"/a", b"2"), (b"/a", None), (b"/a", None)]


def test_the_other_ops_are_carried_out_when_a_compare_does_not_hold(carrier: Client) -> None:
    reply = txn(
        carrier,
        op(Kind.PUT, b"/a", b"then"),
        compares=(value(b"/a", EQUAL, b"x"), value(b"/a", NOT_EQUAL, b"y")),
        otherwise=(op(Kind.PUT, b"/a", b"else"),),
    )
    assert isinstance(reply, TxnReply)
    assert not reply.holds
    assert done(reply) == [(b"/a", b"else")]


def test_an_op_that_is_refused_undoes_all(house: World, carrier: Client) -> None:
    carrier.create(b"/a", b"before")
    before = copy.deepcopy(state(house.tree))
    house.events()
    reply = txn(carrier, op(Kind.PUT, b"/a", b"x"), op(Kind.CREATE, b"/b"), op(Kind.DELETE, b"/c"), op(Kind.GET, b"/a"))
    assert refused(reply) == (2, ErrorCode.NO_NODE)
    assert house.events() == []
    after = state(house.tree)
    assert {name: after[name] for name in ("nodes", "created", "children")} == {
        name: before[name] for name in ("nodes", "created", "children")
    }


def test_a_value_is_compared_as_bytes(carrier: Client) -> None:
    carrier.create(b"/a", b"m")
    assert holds(carrier, value(b"/a", EQUAL, b"m"))
    assert holds(carrier, value(b"/a", NOT_EQUAL, b"n"))
    assert holds(carrier, value(b"/a", LESS, b"n"))
    assert holds(carrier, value(b"/a", GREATER, b"l"))
    assert not holds(carrier, value(b"/a", GREATER, b"m"))


def test_a_znode_that_is_not_there_has_another_value_than_any(carrier: Client) -> None:
    assert holds(carrier, value(b"/none", NOT_EQUAL, b""))
    for relation in (EQUAL, LESS, GREATER):
        assert not holds(carrier, value(b"/none", relation, b""))


def test_numbers_are_compared(house: World, carrier: Client) -> None:
    carrier.create(b"/a")
    carrier.set(b"/a")
    stat = house.stat(b"/a")
    assert holds(carrier, number(b"/a", Target.VERSION, EQUAL, 1))
    assert holds(carrier, number(b"/a", Target.CREATE_REVISION, EQUAL, stat.czxid))
    assert holds(carrier, number(b"/a", Target.MOD_REVISION, EQUAL, stat.mzxid))
    assert holds(carrier, number(b"/a", Target.MOD_REVISION, GREATER, stat.czxid))


@pytest.mark.parametrize(
    ("target", "absent"), [(Target.VERSION, -1), (Target.CREATE_REVISION, 0), (Target.MOD_REVISION, 0)]
)
def test_a_znode_that_is_not_there_has_numbers_of_its_own(carrier: Client, target: int, absent: int) -> None:
    assert holds(carrier, number(b"/none", target, EQUAL, absent))
    carrier.create(b"/none")
    assert not holds(carrier, number(b"/none", target, EQUAL, absent))


def test_a_put_creates_and_sets(carrier: Client) -> None:
    assert done(txn(carrier, op(Kind.PUT, b"/a", b"1"))) == [(b"/a", b"1")]
    assert done(txn(carrier, op(Kind.PUT, b"/a", b"2"))) == [(b"/a", b"2")]
    assert refused(txn(carrier, op(Kind.PUT, b"/a", version=7))) == (0, ErrorCode.BAD_VERSION)


def test_missing_parents_are_created_when_asked_for(house: World, carrier: Client) -> None:
    acl = world(Perm.ALL & ~Perm.ADMIN)
    assert refused(txn(carrier, op(Kind.PUT, b"/a/b/c"))) == (0, ErrorCode.NO_NODE)
    done(txn(carrier, op(Kind.PUT, b"/a/b/c", acl=acl, parents=True)))
    done(txn(carrier, op(Kind.PUT, b"/a/b/d", parents=True)))
    assert house.children(b"/a/b") == [b"/a/b/c", b"/a/b/d"]
    assert house.acl(b"/a") == house.acl(b"/a/b") == acl


def test_only_so_many_levels_may_be_created_by_one(house: World, carrier: Client) -> None:
    """A short record would make very many znodes, and everybody wait for them."""
    deep = [op(Kind.PUT, b"/%d" % number + b"/a" * (LEVELS_MOST // 4 - 1), parents=True) for number in range(5)]
    assert len(done(txn(carrier, *deep[:4]))) == 4
    before = dict(house.tree.nodes)
    assert refused(txn(carrier, *deep)) == (4, ErrorCode.QUOTA_EXCEEDED)
    assert refused(txn(carrier, op(Kind.CREATE, b"/b"), *deep[:4], op(Kind.PUT, b"/c", parents=True))) == (
        5,
        ErrorCode.QUOTA_EXCEEDED,
    )
    assert dict(house.tree.nodes) == before


def test_the_answer_to_one_is_bounded(carrier: Client) -> None:
    """Or a short record would have every member make gigabytes."""
    half = bytes(READ_BYTES // 2 - 100)
    assert len(done(txn(carrier, op(Kind.CREATE, b"/a", half), op(Kind.GET, b"/a"), op(Kind.GET, b"/a")))) == 3
    get = op(Kind.GET, b"/a")
    assert refused(txn(carrier, get, get, get)) == (2, ErrorCode.QUOTA_EXCEEDED)


def test_an_ephemeral_belongs_to_the_owner(house: World, carrier: Client, owner: Client) -> None:
    done(txn(carrier, op(Kind.CREATE, b"/e", flags=EPHEMERAL), owner=owner.id))
    assert owner_of(house.tree.nodes[b"/e"]) == owner.id
    owner.close()
    assert b"/e" not in house.tree.nodes


def test_without_an_owner_there_is_no_ephemeral(carrier: Client) -> None:
    assert refused(txn(carrier, op(Kind.CREATE, b"/e", flags=EPHEMERAL))) == (0, ErrorCode.BAD_ARGUMENTS)


def test_nothing_is_done_for_an_owner_that_is_gone(house: World, carrier: Client, owner: Client) -> None:
    house.expire(owner)
    assert txn(carrier, op(Kind.PUT, b"/a"), owner=owner.id) == ErrorCode.SESSION_EXPIRED
    assert b"/a" not in house.tree.nodes


def test_an_infix_repeats_the_number(carrier: Client, owner: Client) -> None:
    for count in range(2):
        reply = txn(
            carrier,
            op(Kind.CREATE, b"/locks/x-lock-", flags=EPHEMERAL_SEQUENTIAL, infix=b"__lock__", parents=True),
            owner=owner.id,
        )
        name = b"/locks/x-lock-%010d__lock__%010d" % (count, count)
        assert done(reply) == [(name, b"")]


def test_an_infix_means_nothing_without_a_number(carrier: Client) -> None:
    assert done(txn(carrier, op(Kind.CREATE, b"/a", infix=b"-"))) == [(b"/a", b"")]
    assert done(txn(carrier, op(Kind.CREATE, b"/b", flags=SEQUENTIAL))) == [(b"/b0000000001", b"")]


def test_rights_apply(house: World, carrier: Client) -> None:
    carrier.create(b"/secret", acl=only(b"digest", b"a:b"))
    for then in (op(Kind.GET, b"/secret"), op(Kind.SET, b"/secret"), op(Kind.CREATE, b"/secret/x")):
        assert refused(txn(carrier, then)) == (0, ErrorCode.NO_AUTH)
    # Whatever the first compare says: else an answer would tell what may not be read.
    guess = value(b"/none", EQUAL, b""), value(b"/secret", EQUAL, b"")
    assert txn(carrier, compares=guess) == ErrorCode.NO_AUTH
    friend = house.session(0x3, (b"digest", b"a:b"))
    assert done(txn(friend, op(Kind.GET, b"/secret"))) == [(b"/secret", b"")]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        TxnRequest(0, (number(b"/", 9, 0, 0),), (), ()).encode(),
        TxnRequest(0, (number(b"/", Target.VERSION, 9, 0),), (), ()).encode(),
        TxnRequest(0, (), (op(9, b"/a"),), ()).encode(),
        TxnRequest(0, (), (op(Kind.PUT, b"/made"), op(9, b"/a")), ()).encode(),
    ],
    ids=["empty", "target", "relation", "kind", "kind behind a write"],
)
def test_a_record_that_makes_no_sense_changes_nothing(house: World, carrier: Client, record: bytes) -> None:
    nodes = dict(house.tree.nodes)
    assert carrier.send(TXN, record) == (ErrorCode.MARSHALLING_ERROR, b"")
    assert house.tree.nodes == nodes


def test_null_lists_and_paths_are_taken_for_empty(carrier: Client) -> None:
    assert carrier.send(TXN, TxnRequest(0, None, None, None).encode())[0] == 0
    assert refused(txn(carrier, op(Kind.SET, None))) == (0, ErrorCode.BAD_ARGUMENTS)
    assert refused(txn(carrier, op(Kind.PUT, None, parents=True))) == (0, ErrorCode.BAD_ARGUMENTS)
    assert done(txn(carrier, op(Kind.GET, None), compares=(value(b"", NOT_EQUAL, b""),))) == [(b"", None)]


@given(st.binary(max_size=200))
def test_it_takes_any_bytes(record: bytes) -> None:
    house = World()
    house.session(0x1).send(TXN, record)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([b"/a", b"/a/b", b"/a/b/c", b"a", b""]), st.booleans())))
def test_members_that_apply_the_same_are_alike(ops: list[tuple[int, bytes, bool]]) -> None:
    first, second = World(), World()
    client = first.session(0x1)
    for kind, path, parents in ops:
        txn(client, op(Kind.PUT, b"/x"), op(kind, path, b"v", parents=parents))
    for zxid, command in enumerate(first.log, 1):
        second.tree.apply(zxid, command)
    assert state(first.tree) == state(second.tree)


def test_no_client_can_send_it() -> None:
    house = House()
    client = house.client()
    client.send(request(1, TXN, TxnRequest(0, (), (op(Kind.PUT, b"/a"),), ()).encode()))
    assert not house.replica.collected
    assert client.replies() == [(1, ErrorCode.UNIMPLEMENTED)]
    assert client.is_closed
