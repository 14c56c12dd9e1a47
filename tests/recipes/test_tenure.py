"""How sure a holder can be, by the clock."""

from __future__ import annotations

from znoded.recipes.tenure import Standing, Tenure


def tenure(grace_s: float = 45.0) -> Tenure:
    return Tenure(heard_s=100.0, session_timeout_s=10.0, grace_s=grace_s)


def test_it_is_safe_for_half_a_timeout_of_silence_and_lost_after_a_whole_one() -> None:
    lease = tenure()
    assert lease.standing(104.9) is Standing.SAFE
    assert lease.standing(105.0) is Standing.JEOPARDY
    assert lease.standing(109.9) is Standing.JEOPARDY
    assert lease.standing(110.0) is Standing.LOST


def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    lease = tenure()
    lease.heard(sent_s=103.0, now_s=109.0)
    assert lease.ends_s == 113.0
    lease.heard(sent_s=102.0, now_s=109.0)
    assert lease.ends_s == 113.0, "an older one tells nothing new"


def test_a_lost_connection_is_jeopardy_until_an_answer_to_what_was_asked_since() -> None:
    lease = tenure()
    lease.contact_lost(102.0)
    assert lease.standing(102.0) is Standing.JEOPARDY
    lease.heard(sent_s=101.0, now_s=102.5)
    assert lease.standing(102.5) is Standing.JEOPARDY
    lease.heard(sent_s=103.0, now_s=103.1)
    assert lease.standing(103.1) is Standing.SAFE


def test_the_grace_ends_it_sooner_than_the_session_would() -> None:
    lease = tenure(grace_s=3.0)
    lease.contact_lost(102.0)
    lease.contact_lost(104.0)
    assert lease.ends_s == 105.0
    assert lease.standing(105.0) is Standing.LOST


def test_the_session_ends_it_sooner_than_the_grace_would() -> None:
    lease = tenure(grace_s=45.0)
    lease.contact_lost(102.0)
    assert lease.ends_s == 110.0


def test_lost_is_final() -> None:
    lease = tenure()
    assert lease.standing(110.0) is Standing.LOST
    lease.heard(sent_s=109.0, now_s=111.0)
    assert lease.standing(109.0) is Standing.LOST
    lease = tenure()
    lease.end()
    lease.heard(sent_s=101.0, now_s=101.0)
    assert lease.standing(101.0) is Standing.LOST


def test_it_knows_when_to_look_again() -> None:
    lease = tenure(grace_s=1.0)
    assert lease.changes_in_s(100.0) == 5.0
    assert lease.changes_in_s(106.0) == 4.0
    lease.contact_lost(101.0)
    assert lease.changes_in_s(101.0) == 1.0
    assert lease.changes_in_s(200.0) == 0.0
