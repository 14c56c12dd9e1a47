"""The API of a member that follows a leader, which may be out of reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.admin.api.house import ApiHouse
from tests.admin.api.test_streams import ALICE, ONLY_CREATOR
from tests.server.test_cell_member import FollowersHouse, FollowingReplica
from znoded.admin.api.site import ApiSite
from znoded.admin.api.waiting import PATIENCE_S
from znoded.server import cell_member
from znoded.tree.history import Compacted
from znoded.tree.history_segment import Unreadable


class SlowReplica(FollowingReplica):
    """Confirms reads when the test says so."""

    answers: bool | None = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[Callable[[bool], None]] = []

    def confirm_reads(self, then: Callable[[bool], None]) -> None:
        if self.answers is None:
            self.asked.append(then)
        else:
            then(self.answers)


class FollowersApi(FollowersHouse, ApiHouse):
    """A follower with its API."""

    replica: SlowReplica

    def __init__(self) -> None:
        FollowersHouse.__init__(self)
        self.site = ApiSite(self.member, self.clock)
        self.site.start()
        self.settle()

    def pass_time(self, time_s: float, step_s: float = 0.5) -> None:  # type: ignore[override]
        """Let time go by in steps."""
        while time_s > 0:
            self.now_ms += int(step_s * 1000)
            self.clock.advance(step_s)
            self.settle()
            time_s -= step_s


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> FollowersApi:
    def make(_config: Any, *arguments: Any) -> SlowReplica:
        return SlowReplica(*arguments)

    monkeypatch.setattr(cell_member, "_make_replica", make)
    return FollowersApi()


def cut_off(house: FollowersApi) -> None:
    house.replica.reaches_leader = False
    house.pass_time(8)
    assert house.member.turns_clients_away


def test_a_read_waits_until_it_is_confirmed(house: FollowersApi) -> None:
    house.replica.answers = None
    client = house.dial()
    client.send("get", {"key": "/"})
    house.settle()
    assert not client.is_answered
    house.replica.asked.pop()(True)
    assert client.answer()[0] == 200


def test_a_serializable_read_does_not_wait(house: FollowersApi) -> None:
    house.replica.answers = None
    answer = house.done("get", {"key": "/", "consistency": "serializable"})
    assert answer["consistency"] == "serializable"


def test_a_read_that_nobody_confirms_ends_with_a_name(house: FollowersApi) -> None:
    for answers in (False, None):
        house.replica.answers = answers
        client = house.dial()
        client.send("get", {"key": "/"})
        house.pass_time(PATIENCE_S + 1)
        assert client.answer()[1]["error"]["code"] == "not_leader"
    for then in house.replica.asked:
        then(True)  # too late, and no harm


def test_a_read_is_asked_for_again_while_there_is_no_leader(house: FollowersApi) -> None:
    house.replica.answers = False
    client = house.dial()
    client.send("get", {"key": "/"})
    house.settle()
    house.replica.answers = True
    house.pass_time(0.5)
    assert client.answer()[0] == 200


def test_a_member_that_is_cut_off_says_so(house: FollowersApi) -> None:
    stream = house.dial()
    stream.send("watch?key=/a")
    house.settle()
    stream.lines()
    cut_off(house)
    assert stream.lines()[-1]["error"]["code"] == "not_leader"
    assert house.refused("get", {"key": "/"}) == "not_leader"
    assert house.refused("session/create", {}) == "not_leader"
    assert house.refused("watch?key=/a") == "not_leader"
    assert house.done("get", {"key": "/", "consistency": "serializable"})


def test_a_lock_is_refused_at_once_by_a_member_that_is_cut_off(house: FollowersApi) -> None:
    """Nothing was put in line, so there is nothing to take out of it."""
    session = house.session(40_000)
    cut_off(house)
    assert house.refused("lock/acquire", {"session": session, "lock": "/lock", "timeout_ms": 1000}) == "not_leader"


def test_the_leader_hears_of_a_session_before_it_is_asked_to_confirm(house: FollowersApi) -> None:
    answer = house.done("session/create", {})
    number = int(answer["id"], 16).to_bytes(8)
    house.replica.told.clear()
    house.replica.answers = None
    client = house.dial()
    client.send("session/keepalive", {"session": answer["session"]})
    assert house.replica.told == [number]
    house.settle()
    assert not client.is_answered
    house.replica.asked.pop()(True)
    assert client.answer()[0] == 200


def test_what_was_heard_without_a_leader_is_told_to_the_next(house: FollowersApi) -> None:
    answer = house.done("session/create", {})
    number = int(answer["id"], 16).to_bytes(8)
    house.replica.told.clear()
    house.replica.reaches_leader = False
    house.done("session/keepalive", {"session": answer["session"]})
    assert house.replica.told == []
    house.replica.reaches_leader = True
    house.pass_time(1)
    assert any(number in told for told in house.replica.told)


def test_another_state_ends_the_own_session_and_another_follows(house: FollowersApi) -> None:
    house.put("/a")
    house.member.load(lambda _table: ())
    house.pass_time(1)
    assert house.put("/b")


def jump_once(house: FollowersApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for changes next finds that the state was replaced by a newer one, with a shorter history."""
    history = house.member.tree.history
    changes = history.changes
    jumped: list[int] = []

    def fail_once(*arguments: int) -> Any:
        if not jumped:
            jumped.append(1)
            raise Compacted(1)
        return changes(*arguments)

    monkeypatch.setattr(history, "changes", fail_once)


def test_streams_look_for_what_a_jump_of_the_state_left_out(
    house: FollowersApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = house.dial()
    stream.send("watch?prefix=/a")
    house.settle()
    stream.lines()
    jump_once(house, monkeypatch)
    revision = house.put("/a")
    house.settle()
    assert [line["revision"] for line in stream.lines()] == [revision, revision]


def test_streams_that_a_jump_of_the_state_ends_keep_nothing_from_others(
    house: FollowersApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of an observer who may not read the leader's key any more."""
    observer, stream = house.dial(), house.dial()
    observer.send("election/observe?election=/leader")
    house.settle()
    stream.send("watch?prefix=/a")
    house.settle()
    stream.lines()
    jump_once(house, monkeypatch)
    leader = {"op": "put", "key": "/leader", "value": "", "acl": ONLY_CREATOR}
    house.done("txn", {"then": [leader, {"op": "put", "key": "/a", "value": ""}]}, user=ALICE)
    house.settle()
    house.pass_time(1)
    assert [line["type"] for line in stream.lines()] == ["events", "progress"]
    assert observer.lines()[-1]["error"]["code"] == "no_auth"


def test_streams_wait_while_the_history_cannot_be_read(house: FollowersApi, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = house.dial()
    stream.send("watch?prefix=/a")
    house.settle()
    stream.lines()
    history = house.member.tree.history
    changes = history.changes

    def fail(*_: int) -> Any:
        raise Unreadable

    monkeypatch.setattr(history, "changes", fail)
    revision = house.put("/a")
    late = house.dial()
    late.send(f"watch?prefix=/a&after={revision}")
    house.settle()
    assert not stream.is_answered
    monkeypatch.setattr(history, "changes", changes)
    house.pass_time(0.5)
    assert [line["revision"] for line in stream.lines()] == [revision]
    assert [line["type"] for line in late.lines()] == ["progress"]


def test_a_stream_whose_past_is_gone_is_ended_with_the_oldest_there_is(
    house: FollowersApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = house.dial()
    stream.send("watch?prefix=/a")
    house.settle()
    stream.lines()

    def fail(*_: int) -> Any:
        raise Compacted(house.member.zxid)

    monkeypatch.setattr(house.member.tree.history, "changes", fail)
    house.put("/a")
    house.settle()
    error = stream.lines()[-1]["error"]
    assert (error["code"], error["oldest"]) == ("compacted", house.member.zxid)
