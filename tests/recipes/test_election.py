"""FencedElection: an epoch for each leader, and elections that only look on."""

from __future__ import annotations

from threading import Event

import pytest

from tests.recipes.conftest import Connect
from tests.recipes.waiting import PATIENCE_S, InThread, eventually
from znoded.recipes import FencedElection, Leader, Lease


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
