"""The tracker of silent sessions: no clock, times are arguments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from znoded.server.sessions import SessionTracker

TICK_MS = 1000


def tracker(now_ms: int = 0) -> SessionTracker:
    return SessionTracker(TICK_MS, now_ms)


def ended(sessions: SessionTracker, now_ms: int, limit: int = 100) -> list[int]:
    return [live.session_id for live in sessions.due(now_ms, limit)]


def test_a_silent_session_ends_at_the_first_tick_after_its_timeout() -> None:
    sessions = tracker()
    sessions.add(1, 2500, 100, 0)
    assert ended(sessions, 2999) == []
    assert ended(sessions, 3000) == [1]


def test_a_timeout_that_falls_on_a_tick_ends_one_tick_later() -> None:
    sessions = tracker()
    sessions.add(1, 2000, 0, 0)
    assert ended(sessions, 2000) == []
    assert ended(sessions, 3000) == [1]


def test_a_touch_moves_the_end() -> None:
    sessions = tracker()
    live = sessions.add(1, 2500, 0, 0)
    live.heard_ms = 2000
    assert ended(sessions, 3000) == []
    assert ended(sessions, 4999) == []
    assert ended(sessions, 5000) == [1]


def test_a_session_is_given_out_once() -> None:
    sessions = tracker()
    sessions.add(1, 500, 0, 0)
    assert ended(sessions, 1000) == [1]
    assert ended(sessions, 9000) == []


def test_an_end_that_could_not_be_proposed_comes_due_again() -> None:
    sessions = tracker()
    sessions.add(1, 500, 0, 0)
    sessions.reopen(sessions.due(1000, 100))
    assert ended(sessions, 1000) == [1]


def test_a_removed_session_does_not_end() -> None:
    sessions = tracker()
    sessions.add(1, 500, 0, 0)
    assert sessions.remove(1) is not None
    assert ended(sessions, 9000) == []
    assert sessions.remove(1) is None


def test_many_that_fall_silent_together_end_in_bounded_batches() -> None:
    sessions = tracker()
    for session_id in range(10):
        sessions.add(session_id, 500, 0, 0)
    batches = [ended(sessions, 1000, limit=4) for _ in range(4)]
    assert [len(batch) for batch in batches] == [4, 4, 2, 0]
    assert sorted(sum(batches, [])) == list(range(10))


def test_a_shorter_timeout_on_resume_counts() -> None:
    sessions = tracker()
    live = sessions.add(1, 60_000, 0, 0)
    sessions.renew(live, 1500, 100)
    assert ended(sessions, 2000) == [1]


def test_a_longer_timeout_on_resume_counts() -> None:
    sessions = tracker()
    live = sessions.add(1, 1500, 0, 0)
    sessions.renew(live, 5500, 100)
    assert ended(sessions, 5000) == []
    assert ended(sessions, 6000) == [1]


def test_after_a_pause_everybody_gets_a_full_timeout() -> None:
    sessions = tracker()
    sessions.add(1, 1500, 0, 0)
    sessions.grant_all(50_000)
    assert ended(sessions, 50_000) == []
    assert ended(sessions, 52_000) == [1]


def test_a_member_that_does_not_end_sessions_forgets_those_that_ended() -> None:
    sessions = tracker()
    for session_id in range(10):
        sessions.add(session_id, 1500, 0, 0)
        sessions.remove(session_id)
    sessions.pass_over(60_000)
    assert not sessions._buckets
    assert not sessions._overdue


def test_a_member_that_begins_to_end_sessions_has_them_all() -> None:
    sessions = tracker()
    sessions.add(1, 1500, 0, 0)
    for now_ms in range(1000, 60_001, 1000):
        sessions.pass_over(now_ms)
    sessions.grant_all(60_500)
    assert ended(sessions, 62_000) == []
    assert ended(sessions, 63_000) == [1]


def test_the_buckets_of_the_word_dump() -> None:
    sessions = tracker()
    sessions.add(1, 1500, 0, 0)
    sessions.add(2, 1600, 0, 0)
    assert sessions.expiry_buckets() == {2000: [1, 2]}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1500), st.booleans()), max_size=60))
def test_no_session_ends_early_and_none_is_forgotten(steps: list[tuple[int, int, bool]]) -> None:
    """Touches and ticks in any order: a session ends only after its timeout, and within two ticks of it."""
    sessions = tracker()
    heard = dict.fromkeys(range(4), 0)
    live = {session_id: sessions.add(session_id, 3000, 0, 0) for session_id in heard}
    now_ms = 0
    for session_id, step_ms, touch in steps:
        now_ms += step_ms
        for gone in ended(sessions, now_ms):
            assert now_ms > heard.pop(gone) + 3000
        assert all(now_ms <= at_ms + 3000 + 2 * TICK_MS for at_ms in heard.values())
        if touch and session_id in heard:
            heard[session_id] = live[session_id].heard_ms = now_ms
