"""Stopping under load: what was taken is answered, what was not is not refused but left to the next member."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from tests.server import harness
from tests.server.harness import HandReplica, House, set_data


class SlowReplica(HandReplica):
    """Its disk is still at work when it is told to stop."""

    def stop(self) -> Deferred[None]:
        self.writable = False
        return Deferred()


def test_writes_that_a_stopping_member_does_not_take_are_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "HandReplica", SlowReplica)
    house = House(**{"limits.outstanding_per_connection": 5})
    client = house.client()
    client.send(*[set_data(xid, b"/") for xid in range(1, 30)])
    house.member.stop()
    house.replica.commit(2)
    house.replica.commit()
    assert client.replies() == [(xid, 0) for xid in range(1, 6)]
    assert client.is_closed
