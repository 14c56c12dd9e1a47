"""Apply as a whole: total, deterministic, and with every member the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.jute.factory import i4, i8, string, vector
from tests.tree.test_checkpoint_tables import state, use_everything
from tests.tree.world import Client, World, only
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Op
from znoded.jute.records import CreateRequest
from znoded.tree import commands
from znoded.tree.commands import HEAD, encode_command
from znoded.tree.tree import CLIENT_OPS, INTERNAL_OPS, Tree

MARSHALLING = ErrorCode.MARSHALLING_ERROR


def test_the_answer_names_session_attach_and_sequence(house: World, client: Client) -> None:
    record = CreateRequest(b"/a", b"", only(b"ip", b"127.0.0.1"), 0).encode()
    command = encode_command(5, client.id, client.attach, 1, Op.CREATE, b"", record)
    assert house.tree.apply(77, command) == (client.id, client.attach, 1, 0, string(b"/a"))
    assert house.tree.apply(78, command) == (client.id, client.attach, 1, ErrorCode.SESSION_MOVED, b"")
    assert house.tree.zxid == 78


def test_a_command_that_is_too_short_is_a_marshalling_error(house: World) -> None:
    for size_bytes in range(HEAD.size):
        assert house.tree.apply(9, bytes(size_bytes)) == (0, 0, 0, MARSHALLING, b"")


def test_identities_longer_than_the_command_are_a_marshalling_error(house: World, client: Client) -> None:
    for length in (1, -1, 1 << 30):
        command = HEAD.pack(5, client.id, client.attach, 1, Op.DELETE, length)
        assert house.tree.apply(9, command) == (client.id, client.attach, 1, MARSHALLING, b"")


def test_undecodable_identities_are_a_marshalling_error_where_they_are_needed(house: World, client: Client) -> None:
    client.create(b"/closed", acl=only(b"digest", b"u:h"))
    for identities in (i4(5), vector(string(b"ip")), b"x"):
        record = CreateRequest(b"/closed/a", b"", only(b"ip", b"127.0.0.1"), 0).encode()
        client.sequence += 1
        command = encode_command(5, client.id, client.attach, client.sequence, Op.CREATE, identities, record)
        assert house.tree.apply(9, command)[3] == MARSHALLING


def test_a_null_identity_is_an_empty_one(house: World) -> None:
    cache = commands.IdentityCache()
    assert cache.decode(vector(string(None) + string(None))) == ((b"", b""),)
    assert cache.decode(i4(-1)) == cache.decode(b"") == ()


def test_identities_are_decoded_once_while_they_are_remembered(monkeypatch: object) -> None:
    cache = commands.IdentityCache()
    one = vector(string(b"ip") + string(b"1.2.3.4"))
    assert cache.decode(one) is cache.decode(one)
    for number in range(5000):
        cache.decode(vector(string(b"ip") + string(b"%d" % number)))
    assert cache.decode(one) == ((b"ip", b"1.2.3.4"),)


def test_unknown_operations_and_internal_ones_out_of_place_are_unimplemented(house: World, client: Client) -> None:
    for op in (0, -1, 13, 999, Op.GET_DATA):
        assert client.send(op, b"")[0] == ErrorCode.UNIMPLEMENTED
        client.sequence -= 1
    assert house.command(Op.SET_DATA, b"", client.id, client.attach, -1) == ErrorCode.UNIMPLEMENTED


def test_an_undecodable_term_is_a_marshalling_error(house: World) -> None:
    assert house.command(commands.NEW_TERM, i8(5)) == MARSHALLING
    assert house.tree.term == 1


def test_every_member_comes_to_the_same(house: World) -> None:
    use_everything(house)
    other = Tree()
    for zxid, command in enumerate(house.log, 1):
        other.apply(zxid, command)
    assert state(other) == state(house.tree)
    assert other.events == house.tree.events


any_record = st.binary(max_size=60)
likely_record = st.tuples(
    st.sampled_from([b"/", b"/a", b"/a/b", b"/zookeeper/quota/a/zookeeper_stats", b"/\xff", b""]),
    st.binary(max_size=6),
    st.binary(max_size=30),
).map(lambda parts: string(parts[0]) + string(parts[1]) + parts[2])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*CLIENT_OPS, *INTERNAL_OPS, 0, 13, 99]),
            st.sampled_from([-1, 0, 1, 2, 3]),
            st.sampled_from([0, 0x100]),
            st.sampled_from([b"", i4(0), vector(string(b"super") + string(b"")), b"\x7f"]),
            st.one_of(any_record, likely_record),
        ),
        max_size=8,
    ),
    st.binary(max_size=50),
)
def test_no_bytes_make_apply_raise(steps: list[tuple[int, int, int, bytes, bytes]], raw: bytes) -> None:
    house = World()
    client = house.session()
    for op, sequence, session_id, identities, record in steps:
        house.apply(encode_command(1, session_id, client.attach, sequence, op, identities, record))
    house.apply(raw)
    assert house.tree.undo is None
    house.tree.take_changes()
