"""Locks and elections: one holder, a line behind it, and nobody in it who does not want the lock any more."""

from __future__ import annotations

import re
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.admin.api.house import ApiHouse, HttpClient, b64
from tests.jute.factory import i4, request, string
from tests.server.harness import OPEN_ACL, Client, create
from znoded.admin.api.locks import WITHDRAW_PATIENCE_S, WITHDRAW_RETRY_S, Locks
from znoded.jute.ops import Op

Fields = dict[str, Any]
LOCK = "/locks/a"


def contender(number: int) -> str:
    return f"{number:032x}"


def acquire(house: ApiHouse, session: str, timeout_ms: int = 60_000, **fields: Any) -> HttpClient:
    """A request for the lock, which may wait."""
    client = house.dial()
    client.send("lock/acquire", {"session": session, "lock": LOCK, "timeout_ms": timeout_ms, **fields})
    house.settle()
    return client


def token(client: HttpClient) -> int:
    status, content = client.answer()
    assert status == 200, content
    return int(content["token"])


def children(house: ApiHouse) -> list[bytes]:
    return sorted(house.member.tree.children.get(LOCK.encode(), ()))


def info(house: ApiHouse) -> Fields:
    return house.done("lock/info", {"lock": LOCK})


def release(house: ApiHouse, session: str, held: int) -> bool:
    return bool(house.done("lock/release", {"session": session, "lock": LOCK, "token": held})["released"])


@pytest.fixture
def session(house: ApiHouse) -> str:
    return house.session(40_000)


@pytest.fixture
def other(house: ApiHouse) -> str:
    return house.session(40_000)


def test_the_token_is_the_revision_that_created_the_contender(house: ApiHouse, session: str) -> None:
    held = token(acquire(house, session))
    assert info(house)["holder"]["token"] == held
    (path,) = children(house)
    assert house.done("get", {"key": path.decode()})["item"]["create_revision"] == held


def test_those_who_wait_are_served_in_their_order(house: ApiHouse, session: str, other: str) -> None:
    first, second, third = acquire(house, session), acquire(house, other), acquire(house, session)
    tokens = [token(first)]
    assert not second.is_answered
    told = info(house)
    assert (told["holder"]["token"], told["waiting"], len(told["waiters"])) == (tokens[0], 2, 2)
    assert release(house, session, tokens[0])
    tokens.append(token(second))
    assert not third.is_answered
    assert release(house, other, tokens[1])
    tokens.append(token(third))
    assert tokens == sorted(tokens)


def test_a_release_may_be_repeated(house: ApiHouse, session: str) -> None:
    held = token(acquire(house, session))
    assert release(house, session, held)
    assert not release(house, session, held)


def test_nobody_releases_the_lock_of_another_session(house: ApiHouse, session: str, other: str) -> None:
    held = token(acquire(house, session))
    assert not release(house, other, held)
    assert info(house)["holder"]["token"] == held


def test_who_does_not_get_it_in_time_leaves_the_line(house: ApiHouse, session: str, other: str) -> None:
    token(acquire(house, session))
    waiting = acquire(house, other, timeout_ms=5_000)
    house.pass_time(6)
    status, content = waiting.answer()
    assert (status, content["error"]["code"]) == (409, "lock_timeout")
    assert len(children(house)) == 1


def test_who_does_not_wait_is_told_at_once(house: ApiHouse, session: str, other: str) -> None:
    token(acquire(house, session))
    waiting = acquire(house, other, timeout_ms=0)
    house.settle()
    assert waiting.answer()[1]["error"]["code"] == "lock_timeout"
    assert len(children(house)) == 1


def test_a_client_that_goes_away_leaves_the_line(house: ApiHouse, session: str, other: str) -> None:
    held = token(acquire(house, session))
    waiting, last = acquire(house, other), acquire(house, other)
    waiting.drop()
    house.settle()
    assert len(children(house)) == 2
    release(house, session, held)
    assert last.is_answered


def test_a_client_that_goes_away_before_it_stands_in_line_never_does(house: ApiHouse, session: str) -> None:
    client = house.dial()
    client.send("lock/acquire", {"session": session, "lock": LOCK})
    client.drop()
    house.settle()
    assert children(house) == []


def test_a_session_that_ends_frees_its_locks_and_places(house: ApiHouse, session: str, other: str) -> None:
    token(acquire(house, session))
    waiting, mine = acquire(house, other), acquire(house, session)
    house.done("session/close", {"session": session})
    assert token(waiting)
    assert mine.answer()[1]["error"]["code"] == "session_expired"
    assert len(children(house)) == 1


def test_a_repeated_attempt_keeps_its_place(house: ApiHouse, session: str, other: str) -> None:
    held = token(acquire(house, session, contender=contender(1)))
    assert token(acquire(house, session, contender=contender(1))) == held
    assert not acquire(house, session, contender=contender(2)).is_answered
    assert not acquire(house, other, contender=contender(1)).is_answered


def test_a_repeated_attempt_takes_the_place_over(house: ApiHouse, session: str, other: str) -> None:
    held = token(acquire(house, other))
    first = acquire(house, session, contender=contender(1))
    second = acquire(house, session, contender=contender(1))
    first.drop()  # which the member learns only now
    house.settle()
    assert len(children(house)) == 2
    release(house, other, held)
    assert token(second)
    assert len(children(house)) == 1


def test_an_attempt_that_was_taken_over_hears_of_it(house: ApiHouse, session: str, other: str) -> None:
    held = token(acquire(house, other))
    first = acquire(house, session, contender=contender(1))
    second = acquire(house, session, contender=contender(1))
    release(house, other, held)
    assert first.answer()[1]["error"]["code"] == "lock_lost"
    assert token(second)


def test_what_an_earlier_request_creates_late_is_taken_over_as_well(house: ApiHouse, session: str, other: str) -> None:
    held = token(acquire(house, other))
    first = house.dial()
    first.send("lock/acquire", {"session": session, "lock": LOCK, "contender": contender(1)})
    second = house.dial()  # which does not see what the first is about to create
    second.send("lock/acquire", {"session": session, "lock": LOCK, "contender": contender(1)})
    house.settle()
    release(house, other, held)
    house.settle()
    answers = [client.answer() for client in (first, second)]
    assert sorted(status for status, _ in answers) == [200, 409]
    assert len(children(house)) == 1


def test_a_fault_of_ours_leaves_nobody_in_line(house: ApiHouse, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise KeyError

    monkeypatch.setattr(Locks, "_wait", fail)
    assert acquire(house, session).answer()[1]["error"]["code"] == "internal"
    assert children(house) == []


def test_a_full_disk_is_told_at_once(house: ApiHouse, session: str) -> None:
    house.replica.writable = False
    assert acquire(house, session).answer()[1]["error"]["code"] == "disk_full"


def test_who_waits_is_answered_in_time_although_it_cannot_leave_the_line_yet(
    house: ApiHouse, session: str, other: str
) -> None:
    token(acquire(house, session))
    waiting = acquire(house, other, timeout_ms=1000)
    house.replica.writable = False
    house.pass_time(1 + WITHDRAW_PATIENCE_S)
    assert waiting.answer()[1]["error"]["code"] == "outcome_unknown"  # this member may end before it can
    assert len(children(house)) == 2
    house.replica.writable = True
    house.pass_time(1 + WITHDRAW_RETRY_S)
    assert len(children(house)) == 1


def test_one_half_of_a_contender_of_the_recipes_is_none(house: ApiHouse) -> None:
    """They remove its two znodes one after the other where they cannot do it at once."""
    pair = [f"{LOCK}/fenced-x__lock__0000000001", f"{LOCK}/fenced-x__lock__lock-0000000002"]
    house.put(LOCK)
    house.done("txn", {"then": [{"op": "put", "key": key, "value": ""} for key in pair]})
    house.done("txn", {"then": [{"op": "delete", "key": pair[0]}]})
    info = house.done("lock/info", {"lock": LOCK})
    assert (info["holder"], info["waiters"]) == (None, [])


def test_what_a_lock_delay_keeps_is_no_holder(house: ApiHouse, other: str) -> None:
    house.put(f"/zookeeper/lock_delay{LOCK}", b"30000")
    session = house.session(4_000)
    held = token(acquire(house, session))
    observer = house.dial()
    observer.send(f"election/observe?election={LOCK}")
    house.settle()
    waiting = acquire(house, other)
    for _ in range(8):
        house.pass_time(1)
        house.done("session/keepalive", {"session": other})
    told = info(house)
    assert (told["holder"], told["waiting"]) == (None, 1)
    assert not house.done("fence/check", {"lock": LOCK, "token": held})["valid"]
    assert [line["leader"] and line["leader"]["token"] for line in observer.lines()] == [held, None]
    assert not waiting.is_answered


def test_a_contender_that_somebody_deletes_hears_of_it(house: ApiHouse, session: str, other: str) -> None:
    token(acquire(house, session))
    waiting = acquire(house, other)
    house.done("txn", {"then": [{"op": "delete", "key": info(house)["waiters"][0]["key"]}]})
    house.settle()
    assert waiting.answer()[1]["error"]["code"] == "lock_lost"


def test_a_fence_is_valid_while_its_holder_holds(house: ApiHouse, session: str, other: str) -> None:
    first = token(acquire(house, session))
    waiting = acquire(house, other)
    assert house.done("fence/check", {"lock": LOCK, "token": first})["valid"]
    release(house, session, first)
    second = token(waiting)
    answer = house.done("fence/check", {"lock": LOCK, "token": first})
    assert (answer["valid"], answer["holder"]) == (False, second)
    release(house, other, second)
    assert house.done("fence/check", {"lock": LOCK, "token": second})["holder"] is None


def test_a_guarded_write_fails_without_the_lock(house: ApiHouse, session: str) -> None:
    held = acquire(house, session).answer()[1]
    compare = {"target": "create_revision", "key": held["key"], "is": "=", "number": held["token"]}
    write = {"compare": [compare], "then": [{"op": "put", "key": "/guarded", "value": ""}]}
    assert house.done("txn", write)["succeeded"]
    release(house, session, held["token"])
    assert not house.done("txn", write)["succeeded"]


def test_it_tells_who_holds_and_since_when(house: ApiHouse, session: str) -> None:
    acquire(house, session, value=b64(b"host-1"))
    holder = info(house)["holder"]
    assert holder["value"] == b64(b"host-1")
    assert holder["since_ms"] > 0
    assert holder["session"].startswith("0x")


def test_the_acl_of_a_contender_is_kept(house: ApiHouse, session: str) -> None:
    acl = [{"perms": ["read", "create", "delete"], "scheme": "auth", "id": ""}]
    client = house.dial()
    client.send("lock/acquire", {"session": session, "lock": LOCK, "acl": acl}, user="a:b")
    house.settle()
    assert token(client)
    assert house.refused("lock/info", {"lock": LOCK}) == "no_auth"
    assert house.refused("lock/acquire", {"session": session, "lock": LOCK}) == "no_auth"
    assert house.ask("lock/info", {"lock": LOCK}, user="a:b")[1]["holder"]["value"] == ""


# ---- other recipes on the same path


def zookeeper_contender(house: ApiHouse, name: bytes) -> tuple[Client, bytes]:
    """A client of the wire that stands in line with a name of its recipe, and the path that it got."""
    client = house.client(timeout_ms=40_000)
    if b"/locks" not in house.member.tree.nodes:
        client.send(create(1, b"/locks"), create(2, LOCK.encode()))
        house.settle()
        client.replies()
    client.send(request(3, Op.CREATE, string(LOCK.encode() + b"/" + name), string(b""), OPEN_ACL, i4(3)))
    house.settle()
    (reply,) = client.frames()
    return client, reply[20:]


@pytest.mark.parametrize("name", [b"0123456789abcdef__lock__", b"_c_01234567-89ab-lock-", b"x__rlock__"])
def test_a_lock_of_another_recipe_is_waited_for(house: ApiHouse, session: str, name: bytes) -> None:
    holder, _ = zookeeper_contender(house, name)
    waiting = acquire(house, session)
    assert not waiting.is_answered
    holder.send(request(4, Op.CLOSE_SESSION))
    house.settle()
    assert token(waiting)


def test_numbers_below_0_are_in_line_too(house: ApiHouse, session: str, other: str) -> None:
    """The server counts on from 2147483647 to -2147483648, and comes to shorter numbers in the end."""
    house.put(LOCK)
    house.member.tree.created[LOCK.encode()] = -2
    holder = acquire(house, session)
    waiting = acquire(house, other)
    first = token(holder)
    assert not waiting.is_answered
    release(house, session, first)
    assert token(waiting) > first


def test_the_nodes_of_one_revision_are_in_line_by_their_numbers(house: ApiHouse) -> None:
    """A dash in front of a number is the end of the name, and no sign."""
    house.put(LOCK)
    ops = [{"op": "create", "key": f"{LOCK}/x-lock-", "value": "", "sequential": True}] * 2
    results = house.done("txn", {"then": ops})["results"]
    line = info(house)
    assert [each["key"] for each in (line["holder"], *line["waiters"])] == [result["key"] for result in results]


def test_kazoo_and_curator_wait_for_a_lock_taken_here(house: ApiHouse, session: str) -> None:
    """As their recipes order: by what matches Kazoo's pattern, and by what follows Curator's last `lock-`."""
    token(acquire(house, session))
    for name, order in ((b"ff__lock__", kazoo_order), (b"_c_0-lock-", curator_order), (b"00__lock__", kazoo_order)):
        _, path = zookeeper_contender(house, name)
        names = [child.rpartition(b"/")[2].decode() for child in children(house)]
        own = path.rpartition(b"/")[2].decode()
        ours = next(each for each in names if "lock__0000000000" in each)
        in_line = order(names)
        assert in_line.index(ours) < in_line.index(own)


def kazoo_order(names: list[str]) -> list[str]:
    matches = [match for match in (re.search(r"(?:__lock__)(-?\d{10})$", name) for name in names) if match]
    return [match.string for match in sorted(matches, key=lambda match: match.groups())]


def curator_order(names: list[str]) -> list[str]:
    def key(name: str) -> str:
        at = name.rfind("lock-")
        return name[at + len("lock-") :] if at >= 0 else name

    return sorted(names, key=key)


# ---- elections


def test_an_election_is_a_lock_with_an_epoch(house: ApiHouse, session: str, other: str) -> None:
    ask = {"session": session, "election": "/leader", "value": b64(b"first")}
    first = house.done("election/campaign", ask)
    client = house.dial()
    client.send("election/campaign", {"session": other, "election": "/leader"})
    house.settle()
    assert not client.is_answered
    resign = {"session": session, "lock": "/leader", "token": first["epoch"]}
    assert house.done("lock/release", resign)["released"]
    assert client.answer()[1]["epoch"] > first["epoch"]


# ---- the end of the member


def test_a_member_that_stops_has_nobody_left_in_line(house: ApiHouse, session: str, other: str) -> None:
    token(acquire(house, session))
    waiting = acquire(house, other)
    stopped: Deferred[None] = Deferred.fromCoroutine(house.site.stop())
    house.settle()
    assert waiting.answer()[1]["error"]["code"] == "stopping"
    assert len(children(house)) == 1
    house.pass_time(1)
    assert stopped.called


def test_who_has_two_znodes_in_line_is_told_once(house: ApiHouse, other: str) -> None:
    pair = [f"{LOCK}/fenced-x__lock__0000000001", f"{LOCK}/fenced-x__lock__lock-0000000002"]
    house.put(LOCK)
    held = house.done("txn", {"then": [{"op": "put", "key": key, "value": ""} for key in pair]})["revision"]
    told = info(house)
    assert (told["holder"]["key"], told["holder"]["token"], told["waiting"]) == (pair[0], held, 0)
    waiting = acquire(house, other)
    house.done("txn", {"then": [{"op": "delete", "key": pair[0]}]})
    assert not waiting.is_answered, "the second one is in line all the same"
    house.done("txn", {"then": [{"op": "delete", "key": pair[1]}]})
    assert token(waiting) > held
