"""Sessions, get, range and txn, as a client of HTTP sees them."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.admin.api.house import ApiHouse, b64
from tests.server.harness import get_data

Fields = dict[str, Any]
ALICE, BOB = "alice:secret", "bob:secret"
ONLY_CREATOR = [{"perms": ["read", "write", "create", "delete", "admin"], "scheme": "auth", "id": ""}]


def keys(answer: Fields) -> list[str]:
    return [item["key"] for item in answer["items"]]


# ---- sessions


def test_a_session_lives_as_long_as_it_is_kept_alive(house: ApiHouse) -> None:
    session = house.session(timeout_ms=4_000)
    for _ in range(4):
        house.pass_time(3)
        assert house.done("session/keepalive", {"session": session})["timeout_ms"] == 4_000
    house.pass_time(8)
    assert house.refused("session/keepalive", {"session": session}) == "session_expired"


def test_a_timeout_is_what_the_limits_allow(house: ApiHouse) -> None:
    assert house.done("session/create", {"timeout_ms": 1})["timeout_ms"] == 4_000
    assert house.done("session/create", {"timeout_ms": 3_600_000})["timeout_ms"] == 40_000


def test_a_closed_session_takes_its_ephemerals_along(house: ApiHouse) -> None:
    session = house.session()
    ephemeral = {"op": "create", "key": "/e", "value": "", "ephemeral": True}
    house.done("txn", {"session": session, "then": [ephemeral]})
    assert house.done("session/close", {"session": session})["closed"] is True
    assert house.refused("get", {"key": "/e"}) == "no_such_key"
    assert house.refused("session/close", {"session": session}) == "session_expired"


def test_a_session_is_known_by_its_secret_only(house: ApiHouse) -> None:
    session = house.session()
    other = session[:-1] + ("A" if session[-1] != "A" else "B")
    assert house.refused("session/keepalive", {"session": other}) == "session_expired"
    assert house.refused("session/close", {"session": other}) == "session_expired"


def test_a_session_can_be_taken_to_a_socket_and_closed_all_the_same(house: ApiHouse) -> None:
    answer = house.done("session/create", {})
    client = house.connect()
    session = house.member.tree.sessions[int(answer["id"], 16)]
    client.resume(session.id, session.password)
    assert client.established() == 10_000
    assert house.done("session/close", {"session": answer["session"]})["closed"] is True
    assert client.is_closed


def test_no_more_sessions_than_the_limit() -> None:
    house = ApiHouse(**{"limits.sessions": 2})
    house.session()  # the member's own is the other
    assert house.refused("session/create", {}) == "busy"


# ---- get and range


def test_a_value_is_base64_of_any_bytes(house: ApiHouse) -> None:
    value = bytes(range(256))
    house.put("/a", value)
    assert house.done("get", {"key": "/a"})["item"]["value"] == b64(value)


def test_zookeeper_clients_see_the_same_tree(house: ApiHouse) -> None:
    house.put("/a", b"by http")
    client = house.client()
    client.send(get_data(1, b"/a"))
    (reply,) = client.frames()
    assert b"by http" in reply


def test_a_key_that_is_not_there_is_named(house: ApiHouse) -> None:
    status, content = house.ask("get", {"key": "/none"})
    assert status == 404
    assert content["error"]["code"] == "no_such_key"
    assert content["error"]["key"] == "/none"
    assert content["error"]["action"]


def test_the_past_can_be_read(house: ApiHouse) -> None:
    first = house.put("/a", b"1")
    house.put("/a", b"2")
    answer = house.done("get", {"key": "/a", "revision": first})
    assert answer["item"]["value"] == b64(b"1")
    assert (answer["revision"], answer["consistency"]) == (first, "past")
    assert house.refused("get", {"key": "/a", "revision": first - 1}) == "no_such_key"


def test_there_is_no_reading_of_the_future(house: ApiHouse) -> None:
    revision = house.put("/a")
    status, content = house.ask("get", {"key": "/a", "revision": revision + 1})
    assert (status, content["error"]["code"], content["error"]["newest"]) == (400, "future_revision", revision)


def test_a_range_has_the_key_and_all_below_and_nothing_beside(house: ApiHouse) -> None:
    for key in ("/a/b/c", "/a/d", "/ab", "/a-b"):
        house.put(key)
    assert keys(house.done("range", {"prefix": "/a"})) == ["/a", "/a/b", "/a/b/c", "/a/d"]
    assert keys(house.done("range", {"prefix": "/none"})) == []


def test_pages_of_a_range_are_of_one_revision(house: ApiHouse) -> None:
    for number in range(7):
        house.put(f"/a/{number}", b"old")
    page = house.done("range", {"prefix": "/a", "limit": 3})
    revision = page["revision"]
    found = page["items"]
    house.put("/a/5", b"new")
    house.done("txn", {"then": [{"op": "delete", "key": "/a/6"}]})
    while page["more"]:
        after = page["items"][-1]["key"]
        page = house.done("range", {"prefix": "/a", "limit": 3, "after": after, "revision": revision})
        found += page["items"]
    assert [item["key"] for item in found] == ["/a", *(f"/a/{number}" for number in range(7))]
    assert {item["value"] for item in found[1:]} == {b64(b"old")}


def test_a_range_of_keys_only_has_no_values(house: ApiHouse) -> None:
    house.put("/a", b"x")
    (item,) = house.done("range", {"prefix": "/a", "keys_only": True})["items"]
    assert item["value"] is None


def test_a_large_page_ends_before_its_limit(house: ApiHouse) -> None:
    for number in range(6):
        house.put(f"/a/{number}", bytes(1_000_000))
    page = house.done("range", {"prefix": "/a"})
    assert page["more"]
    rest = house.done("range", {"prefix": "/a", "after": keys(page)[-1]})
    assert len(page["items"]) + len(rest["items"]) == 7


# ---- txn


def test_a_compare_and_set_has_one_winner(house: ApiHouse) -> None:
    revision = house.put("/a", b"0")
    compare = {"target": "mod_revision", "key": "/a", "is": "=", "number": revision}
    ask = {
        "compare": [compare],
        "then": [{"op": "set", "key": "/a", "value": b64(b"1")}],
        "else": [{"op": "get", "key": "/a"}],
    }
    first, second = house.done("txn", ask), house.done("txn", ask)
    assert first["succeeded"]
    assert not second["succeeded"]
    assert second["results"][0]["item"]["value"] == b64(b"1")
    assert second["revision"] == first["revision"] + 1


def test_an_op_that_is_refused_is_named(house: ApiHouse) -> None:
    ops = [{"op": "put", "key": "/a", "value": ""}, {"op": "create", "key": "/zookeeper", "value": ""}]
    status, content = house.ask("txn", {"then": ops})
    assert (status, content["error"]["code"], content["error"]["op"]) == (409, "key_exists", 1)
    assert house.refused("get", {"key": "/a"}) == "no_such_key"


@pytest.mark.parametrize(
    ("op", "code"),
    [
        ({"op": "set", "key": "/none", "value": ""}, "no_such_key"),
        ({"op": "set", "key": "/zookeeper", "value": "", "version": 7}, "bad_version"),
        ({"op": "delete", "key": "/zookeeper"}, "bad_request"),
        ({"op": "delete", "key": "/p"}, "not_empty"),
        ({"op": "put", "key": "/a//b", "value": ""}, "bad_request"),
        ({"op": "put", "key": "/a/../b", "value": "", "parents": True}, "bad_request"),
        ({"op": "create", "key": "/e", "value": "", "ephemeral": True}, "bad_request"),
        ({"op": "put", "key": "/b", "value": "", "acl": ONLY_CREATOR}, "bad_request"),
    ],
)  # fmt: skip
def test_refusals_have_names(house: ApiHouse, op: Fields, code: str) -> None:
    house.put("/p/q")
    assert house.refused("txn", {"then": [op]}) == code


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("get", {"key": "/a/"}),
        ("range", {"prefix": "/a/"}),
        ("range", {"prefix": "/", "after": "/a/"}),
        ("watch?prefix=/a/", None),
        ("watch?key=/a/", None),
        ("lock/info", {"lock": "/a/"}),
        ("fence/check", {"lock": "/a/", "token": 1}),
        ("election/observe?election=/a/", None),
    ],
)  # fmt: skip
def test_a_slash_at_the_end_is_refused(house: ApiHouse, path: str, fields: Fields | None) -> None:
    """No znode is called so: who watched it would be told nothing of what is below."""
    house.put("/a/b")
    status, content = house.ask(path, fields)
    assert (status, content["error"]["code"]) == (400, "bad_request")
    assert '"/a/" is not right' in content["error"]["message"]


def test_a_sequential_key_may_be_a_number_alone(house: ApiHouse) -> None:
    house.put("/a")
    op = {"op": "create", "key": "/a/", "value": ""}
    assert house.done("txn", {"then": [{**op, "sequential": True}]})["results"][0]["key"] == "/a/0000000000"
    assert house.refused("txn", {"then": [op]}) == "bad_request"


def test_sequential_keys_are_told(house: ApiHouse) -> None:
    op = {"op": "create", "key": "/n-", "value": "", "sequential": True}
    results = house.done("txn", {"then": [op, op]})["results"]
    assert [result["key"] for result in results] == ["/n-0000000000", "/n-0000000001"]


def test_nothing_is_done_in_a_session_that_is_over(house: ApiHouse) -> None:
    session = house.session()
    house.done("session/close", {"session": session})
    put = {"op": "put", "key": "/a", "value": ""}
    assert house.refused("txn", {"session": session, "then": [put]}) == "session_expired"


def test_what_does_not_fit_into_a_command_is_refused(house: ApiHouse) -> None:
    put = {"op": "put", "key": "/a", "value": b64(bytes(1_048_576))}
    status, content = house.ask("txn", {"then": [put]})
    assert (status, content["error"]["code"]) == (413, "value_too_large")
    assert house.put("/a", bytes(1_000_000))


def test_a_full_disk_is_named(house: ApiHouse) -> None:
    house.replica.writable = False
    assert house.refused("txn", {"then": []}) == "disk_full"
    assert house.refused("session/create", {}) == "disk_full"


def test_a_quota_is_kept(house: ApiHouse) -> None:
    house.put("/t")
    house.put("/zookeeper/quota/t/zookeeper_limits", b"byteHardLimit=10")
    house.put("/zookeeper/quota/t/zookeeper_stats", b"count=0,bytes=0")
    put = {"op": "put", "key": "/t/a", "value": b64(bytes(100))}
    assert house.refused("txn", {"then": [put]}) == "quota_exceeded"


# ---- who asks


def test_acls_apply_and_basic_is_scheme_digest(house: ApiHouse) -> None:
    put = {"op": "put", "key": "/secret", "value": "", "acl": ONLY_CREATOR}
    house.done("txn", {"then": [put]}, user=ALICE)
    assert house.refused("get", {"key": "/secret"}) == "no_auth"
    assert house.refused("get", {"key": "/secret"}, user=BOB) == "no_auth"
    assert house.done("get", {"key": "/secret"}, user=ALICE)["item"]
    assert keys(house.done("range", {"prefix": "/secret"})) == []
    assert house.refused("txn", {"then": [{"op": "set", "key": "/secret", "value": ""}]}, user=BOB) == "no_auth"


def test_requests_of_several_people_do_not_mix(house: ApiHouse) -> None:
    put = {"op": "put", "key": "/secret", "value": "", "acl": ONLY_CREATOR}
    clients = [house.dial() for _ in range(2)]
    clients[0].send("txn", {"then": [put]}, user=ALICE)
    clients[1].send("txn", {"then": [{"op": "set", "key": "/secret", "value": ""}]}, user=BOB)
    house.settle()
    assert clients[0].answer()[0] == 200
    assert clients[1].answer()[1]["error"]["code"] == "no_auth"


@pytest.mark.parametrize("authorization", ["Bearer x", "Basic %%%", "Basic " + "x" * 12_000])
def test_an_authorization_that_is_none_is_refused(house: ApiHouse, authorization: str) -> None:
    status, content = house.ask("get", {"key": "/"}, headers={"Authorization": authorization})
    assert (status, content["error"]["code"]) == (401, "auth_failed")


def test_a_transaction_that_is_on_its_way_when_the_member_stops_may_have_been_carried_out(house: ApiHouse) -> None:
    house.put("/queue")
    client = house.dial()
    create = {"op": "create", "key": "/queue/item-", "value": b64(b"x"), "sequential": True}
    client.send("txn", {"then": [create]})
    house.turn()
    assert house.replica.collected
    Deferred.fromCoroutine(house.site.stop())
    house.turn()
    status, content = client.answer()
    assert (status, content["error"]["code"]) == (504, "outcome_unknown")
    house.settle()
    assert len(house.member.tree.children[b"/queue"]) == 1


def test_one_that_waits_for_room_when_the_disk_fills_is_refused_for_that() -> None:
    house = ApiHouse(**{"limits.outstanding_per_connection": 2})
    clients = [house.dial() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send("txn", {"then": [{"op": "put", "key": f"/{number}", "value": ""}]})
    for _ in range(3):
        house.turn()
    house.replica.writable = False
    house.settle()
    answers = [client.answer() for client in clients]
    assert [status for status, _ in answers] == [200, 200, 507]
    assert answers[2][1]["error"]["code"] == "disk_full"
