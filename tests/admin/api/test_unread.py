"""What clients have not read is kept once for all of them, and is bounded over all of them together."""

from __future__ import annotations

import pytest

from tests.admin.api.house import ApiHouse, HttpClient
from tests.admin.api.test_streams import events, watch
from znoded.admin.api import lines, past
from znoded.admin.api.unread import Unread

MIB = 1024 * 1024


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents that were made into lines of events."""
    made: list[bytes] = []
    make = lines._line

    def counted(form: lines.Form, kind: str, content: bytes, revision: int | None) -> bytes:
        if kind == "events":
            made.append(content)
        return make(form, kind, content, revision)

    monkeypatch.setattr(lines, "_line", counted)
    return made


def unread(house: ApiHouse) -> Unread:
    return house.site.unread


def slow_watch(house: ApiHouse, query: str, host: str, user: str) -> HttpClient:
    client = house.dial(host)
    client.send(f"watch?{query}", user=user)
    house.settle()
    client.lines()
    client.transport.block()
    return client


def read_on(house: ApiHouse, client: HttpClient) -> None:
    client.transport.unblock()
    house.settle()


# ---- once for all


def test_a_change_is_encoded_once_for_all_hosts_and_users_and_kept_once(house: ApiHouse, encoded: list[bytes]) -> None:
    clients = [slow_watch(house, "prefix=/a", f"10.0.0.{number}", f"user-{number % 5}:secret") for number in range(50)]
    revision = house.put("/a", bytes(700_000))
    assert len(encoded) == 1
    assert unread(house).total_bytes < MIB
    for client in clients:
        read_on(house, client)
        assert events(client) == [(revision, "created", "/a")]
    assert unread(house).total_bytes == 0


def test_who_began_to_read_a_line_keeps_no_copy_of_the_rest(house: ApiHouse) -> None:
    clients = [watch(house, "prefix=/a") for _ in range(50)]
    for client in clients:
        block_after_each_write(client)
    house.put("/a", bytes(700_000))
    assert 700_000 < unread(house).total_bytes < MIB


def block_after_each_write(client: HttpClient) -> None:
    write = client.transport.write

    def write_once(data: bytes) -> None:
        write(data)
        client.transport.block()

    client.transport.write = write_once  # type: ignore[method-assign]


def test_the_past_is_encoded_once_for_all_who_go_on_from_the_same_revision(
    house: ApiHouse, encoded: list[bytes]
) -> None:
    after = house.put("/a")
    told = [(house.put("/a", bytes(700_000)), "changed", "/a") for _ in range(4)]
    clients = [house.dial(f"10.0.0.{number}") for number in range(20)]
    for client in clients:
        client.send(f"watch?prefix=/a&after={after}")
    house.settle()
    assert [events(client) for client in clients] == [told] * 20
    assert len(encoded) == 4
    house.pass_time(2)
    assert unread(house).total_bytes == 0


def test_the_past_is_encoded_anew_for_who_may_read_other_things(house: ApiHouse) -> None:
    acl = [{"perms": ["read", "write", "create", "delete", "admin"], "scheme": "auth", "id": ""}]
    after = house.put("/a")
    put = {"op": "put", "key": "/a/secret", "value": "", "acl": acl}
    revision = house.done("txn", {"then": [put]}, user="a:b")["revision"]
    clients = [house.dial(), house.dial()]
    clients[0].send(f"watch?prefix=/a&after={after}")
    clients[1].send(f"watch?prefix=/a&after={after}", user="a:b")
    house.settle()
    assert [events(client) for client in clients] == [[], [(revision, "created", "/a/secret")]]


def test_only_some_portions_of_the_past_are_kept(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PORTION_BYTES", 1)
    after = house.put("/a")
    told = [(house.put("/a", bytes(1_000)), "changed", "/a") for _ in range(20)]
    assert events(watch(house, f"prefix=/a&after={after}")) == told
    assert len(house.site.feed.past._portions) == past.PORTIONS


def test_however_much_is_applied_at_a_time_who_reads_is_not_cut(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [watch(house, "prefix=/a") for _ in range(3)]
    wake = house.site.backend.waiting.woken
    monkeypatch.setattr(house.site.backend.waiting, "woken", [])
    kinds = ["created"] + ["changed"] * 11
    told = [(house.put("/a", bytes(700_000)), kind, "/a") for kind in kinds]
    monkeypatch.setattr(house.site.backend.waiting, "woken", wake)
    house.site.feed.advance()
    house.settle()
    assert [events(client) for client in clients] == [told] * 3


# ---- bounded for all together


@pytest.fixture
def small() -> ApiHouse:
    """A member whose API may hold one MiB for slow readers."""
    return ApiHouse(**{"limits.api_unread_bytes": MIB})


def test_who_has_kept_a_change_waiting_for_longest_is_cut_and_goes_on_later(small: ApiHouse) -> None:
    quick = watch(small, "prefix=/")
    clients = []
    for number in range(4):
        client = watch(small, f"prefix=/{number}")
        client.lines()
        block_after_each_write(client)
        clients.append(client)
    quick.lines()
    seen = small.member.zxid
    revisions = [small.put(f"/{number}", bytes(300_000)) for number in range(4)]
    assert [client.transport.aborted for client in clients] == [True, True, False, False]
    assert unread(small).total_bytes <= MIB
    assert unread(small).cut_count == 2
    assert len(events(quick)) == 4
    assert not quick.transport.disconnecting
    assert events(watch(small, f"prefix=/0&after={seen}")) == [(revisions[0], "created", "/0")]


def test_those_who_keep_the_same_lines_waiting_are_cut_together(small: ApiHouse) -> None:
    clients = [watch(small, "prefix=/a") for _ in range(3)]
    for client in clients:
        client.lines()
        block_after_each_write(client)
    quick = watch(small, "prefix=/a")
    for _ in range(3):
        small.put("/a", bytes(400_000))
    assert [client.transport.aborted for client in clients] == [True] * 3
    assert len(events(quick)) == 3
    assert len(small.site.feed) == 1
    assert unread(small).total_bytes == 0


def test_who_is_cut_while_it_catches_up_goes_on_later(small: ApiHouse) -> None:
    after = small.put("/a")
    for number in range(3):
        small.put(f"/a/{number}", bytes(400_000))
    clients = []
    for number in range(3):
        clients.append(small.dial())
        clients[-1].send(f"watch?key=/a/{number}&after={after}")
        block_after_each_write(clients[-1])
        small.settle()
    small.pass_time(2)  # the portions that are kept for others are forgotten
    assert [client.transport.aborted for client in clients].count(False) <= 1
    assert unread(small).total_bytes <= MIB
    assert len(events(watch(small, f"prefix=/a&after={after}"))) == 3


def test_answers_that_are_not_read_are_cut_off(small: ApiHouse) -> None:
    small.put("/a", bytes(300_000))
    clients = []
    for _ in range(4):
        client = small.dial()
        block_after_each_write(client)
        client.send("get", {"key": "/a"})
        small.settle()
        clients.append(client)
    assert [client.transport.aborted for client in clients] == [True, True, False, False]
    assert unread(small).total_bytes <= MIB
    for client in clients[2:]:
        read_on(small, client)
        assert client.answer()[0] == 200
    assert unread(small).total_bytes == 0


def test_who_goes_away_owes_nothing(small: ApiHouse) -> None:
    small.put("/a", bytes(300_000))
    stream = watch(small, "prefix=/a")
    block_after_each_write(stream)
    small.put("/a", bytes(300_000))
    assert unread(small).total_bytes > 300_000
    stream.drop()
    small.settle()
    assert unread(small).total_bytes == 0


def test_what_many_hold_counts_once() -> None:
    counted = Unread(None, MIB)
    shared = bytes(1_000)
    for _ in range(3):
        counted.hold(shared)
    assert counted.total_bytes == 1_000
    counted.release(shared)
    counted.release(shared)
    assert counted.total_bytes == 1_000
    counted.release(shared)
    assert counted.total_bytes == 0


def test_nothing_is_kept_for_who_left(house: ApiHouse) -> None:
    client = slow_watch(house, "key=/a", "127.0.0.1", "")
    for _ in range(3):
        house.put("/a", b"x" * 300_000)
    assert unread(house).total_bytes > 0
    client.drop()
    house.settle()
    assert unread(house).total_bytes == 0
