"""Watches and observers: every change once and in order, from a past revision on, whatever a client does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.admin.api.house import ApiHouse, HttpClient, b64

Fields = dict[str, Any]
ALICE = "alice:secret"
ONLY_CREATOR = [{"perms": ["read", "write", "create", "delete", "admin"], "scheme": "auth", "id": ""}]


def watch(house: ApiHouse, query: str, **options: Any) -> HttpClient:
    client = house.dial()
    client.send(f"watch?{query}", **options)
    house.settle()
    return client


def events(client: HttpClient) -> list[tuple[int, str, str]]:
    """Revision, event and key of what was told since the last look."""
    return [
        (line["revision"], event["event"], event["key"]) for line in client.lines() for event in line.get("events", ())
    ]


def delete(house: ApiHouse, key: str) -> int:
    return int(house.done("txn", {"then": [{"op": "delete", "key": key}]})["revision"])


def test_changes_of_a_key_are_told(house: ApiHouse) -> None:
    client = watch(house, "key=/a")
    told = [
        (house.put("/a"), "created", "/a"),
        (house.put("/a"), "changed", "/a"),
        (delete(house, "/a"), "deleted", "/a"),
    ]
    house.put("/b")
    house.put("/a/b")
    assert events(client) == [*told, (told[2][0] + 2, "created", "/a")]


def test_a_prefix_is_a_key_and_all_below_it(house: ApiHouse) -> None:
    client = watch(house, "prefix=/a")
    first = house.put("/a/b/c")
    house.put("/ab")
    assert events(client) == [(first, "created", "/a"), (first, "created", "/a/b"), (first, "created", "/a/b/c")]


def test_the_root_is_a_prefix_of_all(house: ApiHouse) -> None:
    client = watch(house, "prefix=/")
    assert events(client) == []
    revision = house.put("/a")
    assert events(client) == [(revision, "created", "/a")]


def test_the_changes_of_a_transaction_come_in_one_line(house: ApiHouse) -> None:
    client = watch(house, "prefix=/")
    client.lines()
    ops = [{"op": "put", "key": f"/{name}", "value": b64(name.encode())} for name in "abc"]
    house.done("txn", {"then": ops})
    (line,) = client.lines()
    assert [(event["key"], event["value"]) for event in line["events"]] == [
        (f"/{name}", b64(name.encode())) for name in "abc"
    ]


def test_what_was_missed_is_told_and_then_what_is_new(house: ApiHouse) -> None:
    seen = house.put("/a", b"0")
    missed = [house.put("/a", b"%d" % number) for number in range(3)]
    client = watch(house, f"key=/a&after={seen}")
    lines = client.lines()
    assert [line["revision"] for line in lines] == [*missed, missed[-1]]
    assert lines[-1]["type"] == "progress"
    assert [line["events"][0]["value"] for line in lines[:-1]] == [b64(b"%d" % number) for number in range(3)]
    live = house.put("/a")
    assert events(client) == [(live, "changed", "/a")]


def test_a_watch_begins_with_what_comes_after_it(house: ApiHouse) -> None:
    house.put("/a")
    client = watch(house, "key=/a")
    (line,) = client.lines()
    assert line == {"type": "progress", "revision": house.member.zxid}


def test_a_revision_of_the_future_is_refused(house: ApiHouse) -> None:
    assert house.refused(f"watch?key=/a&after={house.member.zxid + 1}") == "future_revision"


def test_a_past_that_is_gone_is_named_with_the_oldest_there_is(house: ApiHouse) -> None:
    house.put("/a")
    house.member.tree.history.oldest = house.member.zxid
    status, content = house.ask("watch?key=/a&after=1")
    assert (status, content["error"]["code"], content["error"]["oldest"]) == (410, "compacted", house.member.zxid)


def test_progress_is_told_after_all_before_it(house: ApiHouse) -> None:
    client = watch(house, "key=/a")
    client.lines()
    revision = house.put("/a")
    other = house.put("/b")
    house.pass_time(11)
    lines = client.lines()
    assert [line["type"] for line in lines] == ["events", "progress"]
    assert lines[0]["revision"] == revision
    assert lines[1]["revision"] >= other


def test_events_come_as_server_sent_events_to_who_asks(house: ApiHouse) -> None:
    client = watch(house, "key=/a", headers={"Accept": "text/event-stream"})
    revision = house.put("/a", b"x")
    first, second = client.text().strip().split("\n\n")
    assert first.startswith("id: ")
    name, kind, data = second.split("\n")
    assert (name, kind) == (f"id: {revision}", "event: events")
    assert json.loads(data.removeprefix("data: "))["events"][0]["value"] == b64(b"x")


def test_a_browser_goes_on_where_it_was(house: ApiHouse) -> None:
    seen = house.put("/a")
    missed = house.put("/a")
    client = watch(house, "key=/a", headers={"Accept": "text/event-stream", "Last-Event-ID": str(seen)})
    assert f"id: {missed}\nevent: events" in client.text()


def test_a_browser_that_began_in_the_past_does_not_go_back_there(house: ApiHouse) -> None:
    """It asks for the same URL again, with what it got last in the header."""
    begin = house.put("/a")
    seen = house.put("/a")
    missed = house.put("/a")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(seen)}
    client = watch(house, f"key=/a&after={begin}", headers=headers)
    told = [line for line in client.text().splitlines() if line.startswith("id: ")]
    assert told == [f"id: {missed}", f"id: {missed}"]  # the event, and the progress up to it


def test_many_groups_are_served_in_turns(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has another identity is a group of its own: many changes for many groups take long."""
    clients = []
    for number in range(3):
        clients.append(house.dial())
        clients[-1].send("watch?prefix=/a", user=f"user-{number}:secret")
    house.settle()
    for client in clients:
        client.lines()
    feed = house.site.feed
    wake = house.site.backend.waiting.woken
    monkeypatch.setattr(house.site.backend.waiting, "woken", [])
    told = [(house.put("/a"), kind, "/a") for kind in ("created", "changed", "changed")]
    monkeypatch.setattr(house.site.backend.waiting, "woken", wake)
    monkeypatch.setattr("znoded.admin.api.feed.TURN_S", -1.0)
    for revision, _, _ in told:
        feed.advance()
        assert feed.position == revision
    house.settle()
    assert [events(client) for client in clients] == [told] * 3


def test_what_may_not_be_read_is_not_told(house: ApiHouse) -> None:
    stranger, alice = watch(house, "prefix=/s"), watch(house, "prefix=/s", user=ALICE)
    put = {"op": "put", "key": "/s", "value": "", "acl": ONLY_CREATOR}
    made = house.done("txn", {"then": [put]}, user=ALICE)["revision"]
    gone = house.done("txn", {"then": [{"op": "delete", "key": "/s"}]}, user=ALICE)["revision"]
    assert events(stranger) == []
    assert events(alice) == [(made, "created", "/s"), (gone, "deleted", "/s")]
    assert events(watch(house, f"prefix=/s&after={made - 1}")) == []
    assert len(events(watch(house, f"prefix=/s&after={made - 1}", user=ALICE))) == 2


def test_what_one_address_may_read_is_told_to_it_and_nobody_else_in_order(house: ApiHouse) -> None:
    clients = {}
    for host in ("10.0.0.1", "10.0.0.2"):
        clients[host] = house.dial(host)
        clients[host].send("watch?prefix=/a")
    house.settle()
    acl = [{"perms": ["read", "write", "create", "delete", "admin"], "scheme": "ip", "id": "10.0.0.2"}]
    first = house.put("/a")
    only = house.put("/a/b", acl=acl)
    last = house.put("/a")
    assert len(house.site.feed._groups) == 1
    assert events(clients["10.0.0.1"]) == [(first, "created", "/a"), (last, "changed", "/a")]
    told = [(first, "created", "/a"), (only, "created", "/a/b"), (last, "changed", "/a")]
    assert events(clients["10.0.0.2"]) == told


def test_what_nobody_follows_live_is_not_queued(house: ApiHouse) -> None:
    after = house.put("/a")
    told = [(house.put("/a", bytes(700_000)), "changed", "/a") for _ in range(3)]
    client = house.dial()
    client.send(f"watch?prefix=/a&after={after}")
    house.site.feed._run()
    client.transport.block()
    told += [(house.put("/a", bytes(700_000)), "changed", "/a") for _ in range(3)]
    (group,) = house.site.feed._groups.values()
    assert group.lines_from(group.end) == (b"", group.end, 0)
    assert not group._lines
    client.transport.unblock()
    house.settle()
    assert events(client) == told


def test_a_group_of_streams_shares_the_bytes(house: ApiHouse) -> None:
    clients = [watch(house, "prefix=/a") for _ in range(50)]
    for client in clients:
        client.lines()
    sent: list[bytes] = []
    for client in clients:
        client.transport.write = sent.append  # type: ignore[method-assign]
    house.put("/a", b"x")
    assert len(sent) == 50
    assert len({id(data) for data in sent}) == 1


def test_a_slow_reader_is_cut_with_a_named_error_and_hurts_nobody() -> None:
    house = ApiHouse(**{"limits.queued_bytes_per_connection": 65_536})
    slow, quick = watch(house, "prefix=/a"), watch(house, "prefix=/a")
    slow.transport.block()
    for _ in range(10):
        house.put("/a", bytes(10_000))
        quick.lines()
    house.pass_time(2)
    slow.transport.unblock()
    last = slow.lines()[-1]
    assert (last["type"], last["error"]["code"]) == ("error", "slow_reader")
    assert slow.transport.disconnecting
    assert not quick.transport.disconnecting
    missed = watch(house, f"prefix=/a&after={last['error']['revision']}")
    assert len(events(missed)) == 10


def test_a_reader_that_is_cut_hears_how_far_it_was_told() -> None:
    house = ApiHouse(**{"limits.queued_bytes_per_connection": 500_000})
    client = watch(house, "prefix=/a")
    client.lines()
    client.transport.block()
    for _ in range(4):
        house.put("/a", bytes(70_000))
    write = client.transport.write

    def write_once(data: bytes) -> None:
        write(data)
        client.transport.block()

    client.transport.write = write_once  # type: ignore[method-assign]
    client.transport.unblock()
    for _ in range(8):
        house.put("/a", bytes(70_000))
    house.pass_time(3)
    client.transport.write = write  # type: ignore[method-assign]
    client.transport.unblock()
    *told, last = client.lines()
    assert len(told) == 1
    assert last["error"]["revision"] == told[-1]["revision"]


def test_a_reader_that_stops_while_it_catches_up_is_cut_after_a_while(house: ApiHouse) -> None:
    seen = house.put("/a")
    for _ in range(3):
        house.put("/a", bytes(700_000))
    client = house.dial()
    client.send(f"watch?prefix=/a&after={seen}")
    house.site.feed.write_later(next(iter(next(iter(house.site.feed._groups.values())).streams)))
    client.transport.block()
    house.pass_time(30, 1)
    assert not client.transport.disconnecting
    while len(house.site.feed):
        house.pass_time(1)
    client.transport.unblock()
    house.settle()
    assert client.lines()[-1]["error"]["code"] == "slow_reader"
    assert client.transport.disconnecting


def test_one_that_catches_up_is_not_cut_for_what_its_group_has_passed() -> None:
    house = ApiHouse(**{"limits.queued_bytes_per_connection": 65_536})
    quick = watch(house, "prefix=/a")
    seen = house.put("/a")
    behind = house.dial()
    behind.send(f"watch?prefix=/a&after={seen}")
    behind.transport.block()
    told = []
    for _ in range(10):
        told.append((house.put("/a", bytes(10_000)), "changed", "/a"))
        quick.lines()
    house.pass_time(3)
    behind.transport.unblock()
    house.settle()
    assert events(behind) == told


def test_a_reader_that_pauses_and_goes_on_gets_everything_once(house: ApiHouse) -> None:
    client = watch(house, "prefix=/a")
    told = [(house.put("/a"), "created", "/a")]
    client.transport.block()
    told += [(house.put("/a"), "changed", "/a") for _ in range(5)]
    client.transport.unblock()
    house.settle()
    told.append((house.put("/a"), "changed", "/a"))
    assert events(client) == told


def test_streams_that_end_are_forgotten(house: ApiHouse) -> None:
    clients = [watch(house, "prefix=/a"), watch(house, "key=/a"), watch(house, "key=/b")]
    assert len(house.site.feed) == 3
    for client in clients:
        client.drop()
    house.settle()
    assert len(house.site.feed) == 0
    assert not house.site.feed._by_path


def test_a_member_that_stops_says_so(house: ApiHouse) -> None:
    client = watch(house, "prefix=/a")
    house.site.feed.stop()
    assert client.lines()[-1]["error"]["code"] == "stopping"
    assert client.transport.disconnecting


def test_a_stream_needs_a_key_or_a_prefix_and_a_modern_client(house: ApiHouse) -> None:
    assert house.refused("watch") == "bad_request"
    assert house.refused("watch?key=/a&prefix=/a") == "bad_request"
    assert house.refused("watch?key=/a&after=x") == "bad_request"
    assert house.refused("watch?key=a") == "bad_request"
    assert house.refused("watch?key=/a&key=/b") == "bad_request"
    assert house.refused("watch?key=/%ff") == "bad_request"
    assert house.refused("watch?key=/a&other=1") == "bad_request"
    assert house.refused("election/observe") == "bad_request"
    client = house.dial()
    client.channel.dataReceived(b"GET /v1/watch?key=/a HTTP/1.0\r\n\r\n")
    house.settle()
    assert client.answer()[1]["error"]["code"] == "bad_request"


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["put", "delete", "watch", "block", "unblock", "drop", "other"]), max_size=40),
    choose=st.randoms(use_true_random=False),
)
def test_no_event_is_told_twice_left_out_or_out_of_order(steps: list[str], choose: Any) -> None:
    """Clients come, stall, break off and go on after the last line: each hears what a plain list of changes has."""
    house = ApiHouse()
    changes: list[tuple[int, str, str]] = []
    readers: list[Reader] = []
    start = house.member.zxid
    for step in steps:
        if step == "put":
            key = choose.choice(["/a", "/a/b", "/a/c"])
            missing = [each for each in ("/a", key) if each.encode() not in house.member.tree.nodes]
            revision = house.put(key)
            changes += [(revision, "created", each) for each in dict.fromkeys(missing)] or [(revision, "changed", key)]
        elif step == "delete":
            keys = [key for key in ("/a/b", "/a/c") if key.encode() in house.member.tree.nodes]
            if keys:
                changes.append((delete(house, keys[0]), "deleted", keys[0]))
        elif step == "other":
            house.put("/other")
        elif step == "watch":
            readers.append(Reader(house, choose.choice([start, house.member.zxid])))
        elif readers:
            getattr(choose.choice(readers), step)()
    for reader in readers:
        reader.unblock()
        reader.read()
        assert reader.told == [change for change in changes if change[0] > reader.begun_after]
        assert reader.marks == sorted(reader.marks)


class Reader:
    """A client that goes on after the last line it got when its stream breaks."""

    def __init__(self, house: ApiHouse, after: int) -> None:
        self.house = house
        self.begun_after = self.after = after
        self.told: list[tuple[int, str, str]] = []
        self.marks: list[int] = []
        self.client = watch(house, f"prefix=/a&after={after}")

    def read(self) -> None:
        self.house.settle()
        for line in self.client.lines():
            self.marks.append(line["revision"])
            self.after = line["revision"]
            self.told += [(line["revision"], event["event"], event["key"]) for event in line.get("events", ())]

    def block(self) -> None:
        self.read()
        self.client.transport.block()

    def unblock(self) -> None:
        self.client.transport.unblock()

    def drop(self) -> None:
        """Break off, with or without having read what came last."""
        self.client.drop()
        self.client = watch(self.house, f"prefix=/a&after={self.after}")


# ---- elections


def leaders(client: HttpClient) -> list[str | None]:
    return [line["leader"] and line["leader"]["value"] for line in client.lines() if line["type"] == "leader"]


def observe(house: ApiHouse) -> HttpClient:
    client = house.dial()
    client.send("election/observe?election=/leader")
    house.settle()
    return client


@pytest.fixture
def campaign(house: ApiHouse) -> Callable[[bytes], tuple[str, HttpClient]]:
    def begin(value: bytes) -> tuple[str, HttpClient]:
        session, client = house.session(40_000), house.dial()
        client.send("election/campaign", {"session": session, "election": "/leader", "value": b64(value)})
        house.settle()
        return session, client

    return begin


def test_observers_follow_the_leader(house: ApiHouse, campaign: Callable[[bytes], tuple[str, HttpClient]]) -> None:
    early = observe(house)
    session, client = campaign(b"one")
    campaign(b"two")
    late = observe(house)
    house.done("session/close", {"session": session})
    assert leaders(early) == [None, b64(b"one"), b64(b"two")]
    assert leaders(late) == [b64(b"one"), b64(b"two")]


def test_observers_hear_of_another_value_of_the_same_leader(
    house: ApiHouse, campaign: Callable[[bytes], tuple[str, HttpClient]]
) -> None:
    _, client = campaign(b"one")
    observer = observe(house)
    house.put(client.answer()[1]["key"], b"moved")
    house.put("/leader/unrelated")
    assert leaders(observer) == [b64(b"one"), b64(b"moved")]


def test_observers_who_may_not_read_the_election_any_more_are_told_nothing(house: ApiHouse) -> None:
    observer, alice = house.dial(), house.dial()
    observer.send("election/observe?election=/leader")
    alice.send("election/observe?election=/leader", user=ALICE)
    house.settle()
    put = {"op": "put", "key": "/leader", "value": "", "acl": ONLY_CREATOR}
    house.done("txn", {"then": [put]}, user=ALICE)
    campaign = {"session": house.session(), "election": "/leader", "value": b64(b"one")}
    house.done("election/campaign", campaign, user=ALICE)
    assert [line.get("error", {}).get("code") for line in observer.lines()] == [None, "no_auth"]
    assert leaders(alice) == [None, b64(b"one")]
