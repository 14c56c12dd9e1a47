"""The limits at accept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from znoded.config import Limits
from znoded.server.admission import Admission


def connection(host: str = "192.0.2.1", accepted_ms: int = 0) -> Any:
    """Stands for a ClientConnection: it only has to be distinct."""

    class Connection(SimpleNamespace):
        __hash__ = object.__hash__
        __eq__ = object.__eq__

    return cast(Any, Connection(host=host, accepted_ms=accepted_ms, is_own=False))


def test_an_address_has_its_own_limit() -> None:
    admission = Admission(Limits(connections_per_address=2))
    assert [admission.enter(connection()) for _ in range(2)] == [None, None]
    assert "limits.connections_per_address" in str(admission.enter(connection()))
    assert admission.enter(connection("192.0.2.2")) is None


def test_a_place_is_free_again_when_its_connection_closes() -> None:
    admission = Admission(Limits(connections_per_address=1))
    first, refused = connection(), connection()
    assert admission.enter(first) is None
    assert admission.enter(refused) is not None
    admission.leave(refused)
    assert admission.enter(connection()) is not None
    admission.leave(first)
    assert admission.enter(connection()) is None


def test_all_connections_together_have_a_limit() -> None:
    admission = Admission(Limits(connections=1, connections_per_address=0))
    assert admission.enter(connection("192.0.2.1")) is None
    assert "limits.connections)" in str(admission.enter(connection("192.0.2.2")))
    assert len(admission) == len(list(admission)) == 1


def test_zero_means_no_limit() -> None:
    admission = Admission(Limits(connections=0, connections_per_address=0))
    assert all(admission.enter(connection()) is None for _ in range(100))


def test_who_never_asks_for_a_session_overstays() -> None:
    admission = Admission(Limits(handshake_timeout_ms=10_000))
    silent, spoke, late = connection(accepted_ms=0), connection(accepted_ms=0), connection(accepted_ms=5_000)
    for each in (silent, spoke, late):
        admission.enter(each)
    admission.leave_lobby(spoke)
    assert admission.overstayed(9_999) == []
    assert admission.overstayed(10_000) == [silent]


def test_open_files_may_allow_fewer_connections_than_the_limit() -> None:
    for limit in (0, 5):
        admission = Admission(Limits(connections=limit, connections_per_address=0))
        admission.cap(2)
        assert [admission.enter(connection()) is None for _ in range(3)] == [True, True, False]
    admission = Admission(Limits(connections=1, connections_per_address=0))
    admission.cap(2)
    assert [admission.enter(connection()) is None for _ in range(2)] == [True, False]
