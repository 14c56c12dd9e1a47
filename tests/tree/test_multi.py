"""Several operations as one (protocol facts 8)."""

from __future__ import annotations

import pytest

from tests.jute.factory import i4, multi, string
from tests.tree.world import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    EPHEMERAL,
    OPEN,
    SEQUENTIAL,
    TTL,
    TTL_SEQUENTIAL,
    Client,
    World,
    check,
    create,
    create_ttl,
    delete,
    only,
    set_data,
    world,
)
from znoded.jute.errors import ErrorCode
from znoded.jute.fields import Record
from znoded.jute.ops import CreateFlags, Op, Perm
from znoded.jute.records import Acl, Create2Reply, CreateReply, CreateRequest, EmptyRecord, StatReply

MARSHALLING = ErrorCode.MARSHALLING_ERROR
CONTAINER = CreateFlags.CONTAINER


def state_of(house: World) -> tuple[object, ...]:
    """All replicated state but the zxid and the sessions' sequences."""
    tree = house.tree
    children = {path: set(paths) for path, paths in tree.children.items()}
    owned = {session.id: session.ephemerals or set() for session in tree.sessions.values()}
    return dict(tree.nodes), children, dict(tree.created), dict(tree.acls), dict(tree.kinds), dict(tree.quotas), owned


def test_each_operation_answers_in_its_own_form(house: World, client: Client) -> None:
    client.create(b"/old")
    results = client.multi(
        check(b"/", -1),
        create(b"/a", b"1"),
        create(b"/b", b"22", op=Op.CREATE2),
        set_data(b"/a", b"333"),
        delete(b"/old"),
    )
    assert results == [
        (Op.CHECK, EmptyRecord()),
        (Op.CREATE, CreateReply(b"/a")),
        (Op.CREATE2, Create2Reply(b"/b", house.stat(b"/b"))),
        (Op.SET_DATA, StatReply(house.stat(b"/a"))),
        (Op.DELETE, EmptyRecord()),
    ]
    assert house.children(b"/") == [b"/a", b"/b", b"/zookeeper"]


def test_a_failed_one_is_answered_to_the_byte_as_zookeeper_does(client: Client) -> None:
    err, body = client.send(
        Op.MULTI,
        multi(
            (Op.CREATE, create(b"/a")[1].encode()),
            (Op.CHECK, check(b"/", 7)[1].encode()),
            (Op.DELETE, delete(b"/a")[1].encode()),
        ),
    )
    assert err == 0
    assert body == b"".join(i4(-1) + b"\0" + i4(code) * 2 for code in (0, -103, -2)) + i4(-1) + b"\1" + i4(-1)


def test_an_empty_one_is_answered_with_the_end_mark(client: Client) -> None:
    assert client.send(Op.MULTI, multi()) == (0, multi())


def test_when_one_fails_nothing_is_done(house: World, client: Client) -> None:
    client.create(b"/p", acl=world(Perm.ALL))
    client.create(b"/p/e", flags=EPHEMERAL)
    client.create(b"/p/plain", acl=only(b"ip", b"127.0.0.1"))
    client.create_container(b"/p/c")
    client.create(b"/p/c/x")
    client.create(b"/zookeeper/quota/p")
    client.create(b"/zookeeper/quota/p/zookeeper_limits", b"count=-1,bytes=-1=;countHardLimit=100")
    client.create(b"/zookeeper/quota/p/zookeeper_stats")
    house.events()
    before = state_of(house)
    changes_before = house.tree.history.since(0)
    assert client.multi_errors(
        set_data(b"/p", b"longer data"),
        delete(b"/p/e"),
        create(b"/p/e", b"not ephemeral any more"),
        delete(b"/p/plain"),
        create(b"/p/plain", flags=EPHEMERAL),
        delete(b"/p/c/x"),
        delete(b"/p/c"),
        create(b"/p/c", acl=world(Perm.READ)),
        create(b"/p/new", flags=EPHEMERAL, acl=world(Perm.ALL & ~Perm.ADMIN)),
        create(b"/p/new-container", op=Op.CREATE_CONTAINER),
        create(b"/p/new-container/x"),
        create(b"/p/s-", flags=SEQUENTIAL),
        delete(b"/zookeeper/quota/p/zookeeper_limits"),
        create(b"/p/uncounted", b"data"),
        create(b"/zookeeper/quota/p/zookeeper_limits", b"count=-1,bytes=-1=;countHardLimit=1"),
        check(b"/absent"),
        create(b"/never-tried"),
    ) == [0] * 15 + [ErrorCode.NO_NODE, ErrorCode.RUNTIME_INCONSISTENCY]
    assert state_of(house) == before
    assert house.events() == []
    assert house.tree.history.since(0) == changes_before
    assert client.create(b"/p/s-", flags=SEQUENTIAL) == b"/p/s-0000000003"


def test_the_last_one_failing_undoes_the_others(house: World, client: Client) -> None:
    assert client.multi_errors(create(b"/a"), create(b"/b"), check(b"/", 3)) == [0, 0, ErrorCode.BAD_VERSION]
    assert house.children(b"/") == [b"/zookeeper"]


def test_later_operations_see_what_earlier_ones_did(house: World, client: Client) -> None:
    results = client.multi(
        create(b"/a"),
        set_data(b"/a", version=0),
        create(b"/a/b"),
        check(b"/a", 1),
        delete(b"/a/b"),
        set_data(b"/a", version=1),
        delete(b"/a", version=2),
    )
    assert isinstance(results, list)
    assert house.stat(b"/").num_children == 1


def test_all_carry_one_zxid_and_time(house: World, client: Client) -> None:
    client.multi(create(b"/a"), create(b"/a/b"), set_data(b"/a"))
    stat = house.stat(b"/a")
    assert {stat.czxid, stat.mzxid, stat.pzxid, house.stat(b"/a/b").czxid} == {house.tree.zxid}
    assert stat.ctime == stat.mtime == house.now_ms


def test_a_stat_is_that_right_behind_its_operation(client: Client) -> None:
    results = client.multi(create(b"/a", op=Op.CREATE2), set_data(b"/a", b"1"), create(b"/a/b"), set_data(b"/a", b"22"))
    assert isinstance(results, list)
    stats = [results[index][1].stat for index in (0, 1, 3)]  # type: ignore[attr-defined]
    assert [(stat.version, stat.num_children, stat.data_length) for stat in stats] == [(0, 0, 0), (1, 0, 1), (2, 1, 2)]


def test_sequential_creates_are_numbered_in_order(client: Client) -> None:
    results = client.multi(create(b"/s-", flags=SEQUENTIAL), create(b"/plain"), create(b"/s-", flags=SEQUENTIAL))
    assert isinstance(results, list)
    assert [record.path for _, record in results] == [b"/s-0000000000", b"/plain", b"/s-0000000002"]  # type: ignore[attr-defined]


def test_events_come_in_the_order_of_the_operations(house: World, client: Client) -> None:
    client.create(b"/x")
    house.events()
    client.multi(create(b"/a"), set_data(b"/x"), delete(b"/a"))
    assert house.events() == [(CREATED, b"/a"), (CHILDREN, b"/"), (CHANGED, b"/x"), (DELETED, b"/a"), (CHILDREN, b"/")]


@pytest.mark.parametrize("op", [Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER])
def test_the_container_flag_makes_a_container_here(house: World, client: Client, op: Op) -> None:
    results = client.multi(create(b"/c", flags=CONTAINER, op=op))
    assert results == [(Op.CREATE2, Create2Reply(b"/c", house.stat(b"/c")))]
    assert house.tree.kinds == {b"/c": 0}


def test_create_container_with_plain_flags_makes_one_too(house: World, client: Client) -> None:
    client.multi(create(b"/c", flags=0, op=Op.CREATE_CONTAINER))
    assert house.tree.kinds == {b"/c": 0}


@pytest.mark.parametrize("flags", range(4))
@pytest.mark.parametrize("ttl_ms", [-1, 0, 5, 1 << 41])
def test_create_ttl_with_plain_flags_is_a_plain_create(house: World, client: Client, flags: int, ttl_ms: int) -> None:
    results = client.multi(create_ttl(b"/a", flags, ttl_ms))
    assert isinstance(results, list)
    assert results[0][0] == Op.CREATE
    assert house.tree.kinds == {}


def test_create_ttl_with_the_container_flag_makes_a_container(house: World, client: Client) -> None:
    client.multi(create_ttl(b"/a", CONTAINER, 5))
    assert house.tree.kinds == {b"/a": 0}


def test_ttl_nodes(house: World, client: Client) -> None:
    results = client.multi(create_ttl(b"/t", TTL, 5), create_ttl(b"/t-", TTL_SEQUENTIAL, 6))
    assert isinstance(results, list)
    assert [op for op, _ in results] == [Op.CREATE2] * 2
    assert house.tree.kinds == {b"/t": 5, b"/t-0000000001": 6}
    assert client.multi_errors(create_ttl(b"/u", TTL, 0)) == [ErrorCode.BAD_ARGUMENTS]


@pytest.mark.parametrize(
    "operation",
    [create(None), create(b"/n", acl=None), create_ttl(b"/n", TTL, 5), delete(None), set_data(None), check(None)],
)
def test_a_null_path_or_acl_anywhere_fails_the_whole_request(
    house: World, client: Client, operation: tuple[Op, Record]
) -> None:
    if operation[0] == Op.CREATE_TTL:
        operation = create_ttl(None, TTL, 5)  # type: ignore[arg-type]
    assert client.multi(create(b"/a"), operation) == MARSHALLING
    assert client.multi(delete(b"/absent"), operation) == MARSHALLING
    assert house.children(b"/") == [b"/zookeeper"]


def test_a_null_acl_of_create_ttl_is_invalid(client: Client) -> None:
    assert client.multi_errors(create_ttl(b"/n", TTL, 5, acl=None)) == [ErrorCode.INVALID_ACL]


def test_a_null_id_in_an_acl_fails_the_whole_request(house: World, client: Client) -> None:
    bad = create(b"/n", acl=(Acl(31, b"world", None),))
    before = state_of(house)
    assert client.multi(create(b"/a"), bad) == MARSHALLING
    assert state_of(house) == before
    assert house.events() == []
    assert client.multi_errors(delete(b"/absent"), bad) == [ErrorCode.NO_NODE, ErrorCode.RUNTIME_INCONSISTENCY]


@pytest.mark.parametrize("op", [9999, 3, 4, 7, 8, 9, 0, 14, 16, 20, 22, -11])
def test_operations_that_do_not_belong_there_fail_the_whole_request(house: World, client: Client, op: int) -> None:
    record = multi((Op.CREATE, create(b"/a")[1].encode()), (op, string(b"/a") + b"\0"))
    assert client.send(Op.MULTI, record) == (MARSHALLING, b"")
    assert house.children(b"/") == [b"/zookeeper"]


def test_flags_out_of_range_fail_the_whole_request(client: Client) -> None:
    assert client.send(Op.MULTI, multi((Op.CREATE, CreateRequest(b"/a", b"", OPEN, 9).encode()))) == (MARSHALLING, b"")


def test_a_check_looks_at_path_existence_rights_and_version_in_this_order(client: Client) -> None:
    client.create(b"/closed", acl=world(Perm.ALL & ~Perm.READ))
    client.create(b"/a")
    for operation, err in (
        (check(b"/."), ErrorCode.BAD_ARGUMENTS),
        (check(b""), ErrorCode.BAD_ARGUMENTS),
        (check(b"/absent"), ErrorCode.NO_NODE),
        (check(b"/closed", 9), ErrorCode.NO_AUTH),
        (check(b"/a", 9), ErrorCode.BAD_VERSION),
        (check(b"/a", -2), ErrorCode.BAD_VERSION),
    ):
        assert client.multi_errors(operation) == [err]


def test_what_a_session_owns_survives_a_rollback(house: World, client: Client) -> None:
    client.create(b"/mine", flags=EPHEMERAL)
    other = house.session(2)
    assert other.multi_errors(delete(b"/mine"), create(b"/mine", flags=EPHEMERAL), check(b"/x")) == [0, 0, -101]
    assert (client.ephemerals(), other.ephemerals()) == ([b"/mine"], [])
