"""FencedElection: an epoch for each leader, and elections that only look on."""

from __future__ import annotations

from threading import Event

import pytest
from kazoo.client import KazooClient

from tests.recipes.conftest import Connect
from tests.recipes.waiting import PATIENCE_S, InThread, eventually
from znoded.recipes import AcquireCancelled, FencedElection, Leader, Lease


def test_leaders_follow_each_other_with_growing_epochs(connect: Connect, path: str) -> None:
    resign = Event()
    epochs: list[int] = []

    def lead(lease: Lease) -> str:
        epochs.append(lease.token)
        resign.wait(PATIENCE_S)
        return "done"

    observer = FencedElection(connect(), path)
    assert observer.leader() is None
    first, second = (FencedElection(connect(), path, name) for name in ("first", "second"))
    leading = InThread(lambda: first.run(lead))
    eventually(lambda: epochs)
    following = InThread(lambda: second.run(lead))
    assert observer.leader() == Leader("first", epochs[0])
    resign.set()
    assert leading.result() == following.result() == "done"
    assert len(epochs) == 2
    assert epochs[0] < epochs[1]
    assert observer.leader() is None


def test_who_leads_and_fails_resigns(connect: Connect, path: str) -> None:
    def fail(lease: Lease) -> None:
        raise RuntimeError("of no use")

    election = FencedElection(connect(), path)
    with pytest.raises(RuntimeError):
        election.run(fail)
    assert election.leader() is None


def test_a_campaign_is_cancelled(connect: Connect, path: str) -> None:
    with FencedElection(connect(), path, "leader").campaign() as lease:
        election = FencedElection(connect(), path)
        running = InThread(lambda: election.run(lambda lease: pytest.fail("never elected")))
        eventually(lambda: len(connect().get_children(path)) == 4)
        election.cancel()
        assert running.result() is None
        assert election.leader() == Leader("leader", lease.token)


def test_a_campaign_that_is_cancelled_before_it_begins_never_does(connect: Connect, path: str) -> None:
    election = FencedElection(connect(), path)
    election.cancel()
    assert election.run(lambda lease: pytest.fail("elected")) is None
    assert election.run(lambda lease: pytest.fail("elected"), observe_only=True) is None
    with pytest.raises(AcquireCancelled):
        election.campaign()
    assert election.leader() is None


def test_who_is_cancelled_while_being_elected_does_not_lead(
    connect: Connect, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    election = FencedElection(connect(), path)
    campaign = election.campaign

    def cancelled_too_late(timeout_s: float | None = None) -> Lease:
        lease = campaign(timeout_s)
        election.cancel()
        return lease

    monkeypatch.setattr(election, "campaign", cancelled_too_late)
    assert election.run(lambda lease: pytest.fail("it leads")) is None
    assert election.leader() is None


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.003, 0.006, 0.012, 0.025])
def test_an_observer_that_is_cancelled_at_any_moment_ends(connect: Connect, path: str, after_s: float) -> None:
    """The cancel comes before, while and after it is elected."""
    election = FencedElection(connect(), path)
    observing = InThread(lambda: election.run(lambda lease: pytest.fail("it acted"), observe_only=True))
    Event().wait(after_s)
    election.cancel()
    assert observing.result() is None
    assert election.leader() is None


def test_an_election_that_only_observes_is_elected_and_does_not_act(
    connect: Connect, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "znoded.recipes")
    election = FencedElection(connect(), path, "shadow")
    observing = InThread(lambda: election.run(lambda lease: pytest.fail("it acted"), observe_only=True))
    eventually(lambda: election.leader())
    leader = election.leader()
    assert leader is not None
    assert leader.identifier == "shadow"
    eventually(lambda: f"shadow would lead with epoch {leader.epoch}" in caplog.text)
    election.cancel()
    assert observing.result() is None
    assert election.leader() is None
    assert "shadow would lead no more" in caplog.text


def test_what_a_lock_delay_keeps_of_a_leader_leads_nobody(client: KazooClient, path: str) -> None:
    election = FencedElection(client, path, "host-1")
    client.create(f"{path}/kept-fenced-x__lock__0000000001", b"host-2", makepath=True)
    assert election.leader() is None
