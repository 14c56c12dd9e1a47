"""Locks and ranges with very many children: the same answers, and nobody else has to wait for them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admin.api import test_locks
from tests.admin.api.house import ApiHouse, HttpClient, b64
from tests.admin.api.test_streams import leaders
from tests.tree.past import range_at
from znoded.admin.api import lock_operations, queues, slices
from znoded.admin.api.queues import contender_of
from znoded.tree import history
from znoded.tree.history_segment import Unreadable
from znoded.tree.znode import czxid_of

LOCK = "/l"
Fields = dict[str, Any]


@pytest.fixture
def _all_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every parent counts as wide, and a slice is short."""
    monkeypatch.setattr(queues, "NARROW", 0)
    monkeypatch.setattr(queues, "CHANGES", 2)
    monkeypatch.setattr(slices, "SLICE", 2)
    monkeypatch.setattr(history, "WIDE", 0)


@pytest.fixture
def wide(house: ApiHouse, _all_wide: None) -> ApiHouse:
    house.put(LOCK)
    return house


def ask(house: ApiHouse, path: str, fields: Fields) -> HttpClient:
    client = house.dial()
    client.send(path, fields)
    return client


def contend(house: ApiHouse, name: str = "x-lock-") -> str:
    op = {"op": "create", "key": f"{LOCK}/{name}", "value": "", "sequential": True}
    return str(house.done("txn", {"then": [op]})["results"][0]["key"])


def delete(house: ApiHouse, key: str) -> None:
    house.done("txn", {"then": [{"op": "delete", "key": key}]})


def told(answer: Fields) -> list[str]:
    first = [] if answer["holder"] is None else [answer["holder"]]
    return [contender["key"] for contender in (*first, *answer["waiters"])]


def line(house: ApiHouse) -> list[str]:
    """Who stands in line, by a plain look."""
    nodes, children = house.member.tree.nodes, house.member.tree.children.get(LOCK.encode(), ())
    found = [contender_of(path, nodes[path]) for path in children]
    return [each.path.decode() for each in sorted(filter(None, found)) if not each.is_second]


def fence(house: ApiHouse, token: int = 1) -> Fields:
    return house.done("fence/check", {"lock": LOCK, "token": token})


# ---- the same answers


def test_the_line_is_told_as_of_the_revision_of_the_answer(wide: ApiHouse) -> None:
    keys = [contend(wide) for _ in range(9)]
    asking = ask(wide, "lock/info", {"lock": LOCK})
    for _ in range(3):  # the first look is under way
        wide.turn()
    assert not asking.is_answered
    ops: list[Fields] = [{"op": "delete", "key": keys[0]}, {"op": "delete", "key": keys[8]}]
    ops.append({"op": "create", "key": f"{LOCK}/x-lock-", "value": "", "sequential": True})
    ask(wide, "txn", {"then": ops})
    wide.commit()
    wide.settle()
    _, answer = asking.answer()
    assert told(answer) == [*keys[1:8], f"{LOCK}/x-lock-0000000009"]
    assert answer["revision"] == wide.member.zxid


def test_a_look_at_what_did_not_change_needs_no_slices(wide: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [contend(wide) for _ in range(9)]
    assert told(wide.done("lock/info", {"lock": LOCK})) == keys

    def fail(*_: object) -> None:
        raise AssertionError("it is looked through again")

    monkeypatch.setattr(queues, "sorted_in_slices", fail)
    wide.put("/other")
    assert told(wide.done("lock/info", {"lock": LOCK})) == keys
    delete(wide, keys[3])
    new = contend(wide)
    assert told(wide.done("lock/info", {"lock": LOCK})) == [*keys[:3], *keys[4:], new]


def test_a_fence_is_checked_with_one_look_while_the_holder_stays(
    wide: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [contend(wide) for _ in range(5)]
    tokens = [czxid_of(wide.member.tree.nodes[key.encode()]) for key in keys]
    assert fence(wide)["holder"] == tokens[0]
    contend(wide)
    bring_up = queues.Queues._bring_up
    monkeypatch.setattr(queues.Queues, "_bring_up", None)
    assert fence(wide, tokens[0])["valid"]
    monkeypatch.setattr(queues.Queues, "_bring_up", bring_up)
    delete(wide, keys[0])
    assert (fence(wide, tokens[0])["valid"], fence(wide)["holder"]) == (False, tokens[1])


def test_a_line_is_looked_through_again_when_that_is_less_to_do(wide: ApiHouse) -> None:
    keys = [contend(wide) for _ in range(3)]
    assert told(wide.done("lock/info", {"lock": LOCK})) == keys
    for _ in range(9):
        wide.put("/other")
    keys.append(contend(wide))
    assert told(wide.done("lock/info", {"lock": LOCK})) == keys


def test_a_line_is_looked_through_again_after_another_members_state_came(wide: ApiHouse) -> None:
    keys = [contend(wide) for _ in range(9)]
    assert told(wide.done("lock/info", {"lock": LOCK})) == keys
    keys.append(contend(wide))
    wide.member.tree.history.oldest = wide.member.zxid
    assert told(wide.done("lock/info", {"lock": LOCK})) == keys


def test_a_history_that_cannot_be_read_for_now_is_busy(wide: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(9):
        contend(wide)
    wide.done("lock/info", {"lock": LOCK})
    contend(wide)

    def fail(*_: object) -> None:
        raise Unreadable("for now")

    monkeypatch.setattr(wide.member.tree.history, "changes", fail)
    assert wide.refused("lock/info", {"lock": LOCK}) == "busy"


def test_only_some_lines_are_kept(wide: ApiHouse) -> None:
    for number in range(queues.QUEUES + 2):
        wide.put(f"/l{number}/x-0000000001")
        assert told(wide.done("lock/info", {"lock": f"/l{number}"})) == [f"/l{number}/x-0000000001"]


def test_who_has_two_znodes_in_line_counts_once(wide: ApiHouse) -> None:
    contend(wide, "x__lock__")
    second = contend(wide, "x__lock__lock-")
    assert wide.done("lock/info", {"lock": LOCK})["waiting"] == 0
    contend(wide, "y__lock__lock-")
    delete(wide, second)
    contend(wide, "y__lock__")
    assert wide.done("lock/info", {"lock": LOCK})["waiting"] == 1


def test_of_waiters_with_large_values_fewer_are_told(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_operations, "TOLD_BYTES", 1_000)
    for number in range(5):
        house.put(f"{LOCK}/x-000000000{number}", bytes(400))
    answer = house.done("lock/info", {"lock": LOCK})
    assert (len(told(answer)), answer["waiting"]) == (2, 4)


def test_observers_of_a_wide_election_hear_of_each_leader(wide: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [f"{LOCK}/x-000000000{number}" for number in range(4)]:
        wide.put(key, key.encode())
    observer = wide.dial()
    observer.send(f"election/observe?election={LOCK}")
    wide.settle()
    delete(wide, f"{LOCK}/x-0000000002")
    delete(wide, f"{LOCK}/x-0000000000")
    delete(wide, f"{LOCK}/x-0000000001")
    assert leaders(observer) == [b64(f"{LOCK}/x-000000000{number}".encode()) for number in (0, 1, 3)]
    unreadable = True
    changes = wide.member.tree.history.changes

    def fail_once(*arguments: Any) -> Any:
        nonlocal unreadable
        if unreadable:
            unreadable = False
            raise Unreadable("for now")
        return changes(*arguments)

    observing = wide.site.feed
    monkeypatch.setattr(wide.member.tree.history, "changes", fail_once)
    delete(wide, f"{LOCK}/x-0000000003")
    wide.pass_time(1)
    assert leaders(observer) == [None]
    assert len(observing) == 1


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["contend", "delete", "other", "info", "fence", "turn"]), max_size=40),
    choose=st.randoms(use_true_random=False),
)
def test_whatever_happens_in_between_the_line_is_right(steps: list[str], choose: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues, "NARROW", 1)
        patch.setattr(queues, "CHANGES", 1)
        patch.setattr(slices, "SLICE", 2)
        house = ApiHouse()
        house.put(LOCK)
        for step in steps:
            keys = line(house)
            if step == "contend":
                ask(house, "txn", {"then": [{"op": "create", "key": f"{LOCK}/x-", "value": "", "sequential": True}]})
                house.commit()
            elif step == "delete" and keys:
                ask(house, "txn", {"then": [{"op": "delete", "key": choose.choice(keys)}]})
                house.commit()
            elif step == "other":
                house.put("/other")
            elif step == "info":
                ask(house, "lock/info", {"lock": LOCK})
            elif step == "turn":
                house.turn()
            elif step == "fence":
                holder = fence(house)["holder"]
                nodes = house.member.tree.nodes
                assert holder == next((czxid_of(nodes[key.encode()]) for key in line(house)), None)
        assert told(house.done("lock/info", {"lock": LOCK})) == line(house)


@pytest.mark.usefixtures("_all_wide")
class TestLocksAreTheSame:
    """What holds of locks, holds of them when all are wide."""

    @pytest.fixture
    def session(self, house: ApiHouse) -> str:
        return house.session(40_000)

    @pytest.fixture
    def other(self, house: ApiHouse) -> str:
        return house.session(40_000)

    test_served = staticmethod(test_locks.test_those_who_wait_are_served_in_their_order)
    test_given_up = staticmethod(test_locks.test_who_does_not_get_it_in_time_leaves_the_line)
    test_expired = staticmethod(test_locks.test_a_session_that_ends_frees_its_locks_and_places)
    test_taken_over = staticmethod(test_locks.test_a_repeated_attempt_takes_the_place_over)
    test_deleted = staticmethod(test_locks.test_a_contender_that_somebody_deletes_hears_of_it)
    test_recipes = staticmethod(test_locks.test_kazoo_and_curator_wait_for_a_lock_taken_here)
    test_two_znodes = staticmethod(test_locks.test_who_has_two_znodes_in_line_is_told_once)


# ---- ranges


def page(house: ApiHouse, revision: int, after: str = "", **fields: Any) -> HttpClient:
    asked = {"prefix": "/r", "limit": 5, "revision": revision, **fields}
    return ask(house, "range", {**asked, "after": after} if after else asked)


def test_a_range_is_of_one_revision_whatever_happens_between_its_slices(wide: ApiHouse) -> None:
    for name in ("b", "b-1", "b-2", "b/x", "b/y", "c", "c/z", "a", "d", "d/q", "d/r", "e"):
        wide.put(f"/r/{name}")
    revision = wide.member.zxid
    expected = [path.decode() for path, _ in range_at(wide.member.tree.history, b"/r", revision, b"", 100)]
    keys: list[str] = []
    turns = 0
    while True:
        asking = page(wide, revision, keys[-1] if keys else "")
        while not asking.is_answered:
            turns += 1
            if turns % 3 == 0:
                ask(wide, "txn", {"then": [{"op": "put", "key": f"/r/b/n{turns}", "value": "", "parents": True}]})
            if turns == 10:
                ask(wide, "txn", {"then": [{"op": "delete", "key": "/r/d/q"}, {"op": "delete", "key": "/r/e"}]})
            wide.commit()
            wide.turn()
        _, answer = asking.answer()
        keys += [item["key"] for item in answer["items"]]
        if not answer["more"]:
            break
    assert b"/r/e" not in wide.member.tree.nodes
    assert keys == expected == sorted(expected)


def test_children_are_sorted_once_for_all_pages_of_a_revision(wide: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        wide.put(f"/r/{number}")
    first = wide.done("range", {"prefix": "/r", "limit": 5})
    monkeypatch.setattr(slices, "sorted_in_slices", None)
    wide.put("/r/new")
    rest = wide.done("range", {"prefix": "/r", "after": first["items"][-1]["key"], "revision": first["revision"]})
    assert len(first["items"]) + len(rest["items"]) == 21


def test_only_of_some_parents_the_children_are_kept(wide: ApiHouse) -> None:
    for number in range(slices.PARENTS + 2):
        wide.put(f"/r/{number}/x")
    assert len(wide.done("range", {"prefix": "/r"})["items"]) == 2 * slices.PARENTS + 5


# ---- and nobody waits

MANY = 200_000
LONGEST_S = 0.1


@pytest.fixture(scope="module")
def crowded() -> Iterator[ApiHouse]:
    """A member with very many contenders for one lock, in no order."""
    house = ApiHouse()
    house.put(LOCK)
    path = contend(house).encode()
    tree = house.member.tree
    node = tree.nodes[path]
    for number in range(MANY):
        path = b"%s/%08x-lock-%010d" % (LOCK.encode(), number * 0x9E3779B1 & 0xFFFFFFFF, number)
        tree.nodes[path] = node
        tree.link(path, LOCK.encode(), 0)
    return house


def longest_turn_s(house: ApiHouse, path: str, fields: Fields) -> float:
    """The longest turn of the reactor until a request is answered."""
    gc.collect()
    gc.disable()  # as in the server, which collects when it is idle
    begin_s = time.thread_time()
    client = ask(house, path, fields)
    longest_s = time.thread_time() - begin_s
    while not client.is_answered:
        begin_s = time.thread_time()
        house.turn()
        longest_s = max(longest_s, time.thread_time() - begin_s)
    gc.enable()
    return longest_s


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("lock/info", {"lock": LOCK}),
        ("fence/check", {"lock": LOCK, "token": 5}),
        ("range", {"prefix": LOCK, "limit": 1000}),
        ("range", {"prefix": LOCK, "limit": 1000, "after": f"{LOCK}/80000000"}),
    ],
)
def test_a_request_about_very_many_children_holds_nobody_up(crowded: ApiHouse, path: str, fields: Fields) -> None:
    for _ in range(2):  # the first time, and when something is known
        assert longest_turn_s(crowded, path, fields) < LONGEST_S
