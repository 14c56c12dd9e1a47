"""What a leader knows of a member, and the window of what is on its way there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.inflights import Inflights
from znoded.zab_raft.core.progress import Mode, Progress


def new_progress(next_index: int = 1, batches: int = 3) -> Progress:
    return Progress(next_index, Inflights(batches, 100), recently_active=True)


@given(st.integers(1, 5), st.integers(1, 100), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60)), max_size=20))
def test_a_window_is_full_by_count_or_by_bytes(batches: int, most_bytes: int, added: list[tuple[int, int]]) -> None:
    window = Inflights(batches, most_bytes)
    model: list[tuple[int, int]] = []
    last_index = 0
    for step, size_bytes in added:
        last_index += step
        window.add(last_index, size_bytes)
        model.append((last_index, size_bytes))
        if size_bytes % 3 == 0:
            window.free_to(last_index - 2)
            model = [batch for batch in model if batch[0] > last_index - 2]
        assert len(window) == len(model)
        assert window.bytes == sum(size for _, size in model)
        assert window.full == (len(model) >= batches or window.bytes >= most_bytes)


def test_what_goes_into_a_window_grows() -> None:
    window = Inflights(3, 100)
    window.add(5, 1)
    with pytest.raises(InvariantBroken, match="up to 5 is added behind one up to 5"):
        window.add(5, 1)


def test_a_probe_waits_for_its_answer() -> None:
    progress = new_progress(next_index=8)
    assert progress.may_send
    progress.sent(7, 0, commit=0)
    assert not progress.may_send
    assert progress.rejected(7, 3)
    assert (progress.next_index, progress.may_send) == (4, True)


def test_a_stale_rejection_of_a_probe_is_nothing() -> None:
    progress = new_progress(next_index=8)
    assert not progress.rejected(5, 1)
    assert progress.next_index == 8


def test_replication_goes_on_until_the_window_is_full() -> None:
    progress = new_progress()
    progress.acknowledged(2)
    progress.become_replicate()
    for last_index in (3, 4, 5):
        assert progress.may_send
        progress.sent(last_index, 10, commit=1)
    assert (progress.next_index, progress.may_send) == (6, False)
    progress.window.free_to(3)
    progress.acknowledged(3)
    assert progress.may_send


def test_s7_the_match_never_goes_back() -> None:
    progress = new_progress()
    assert progress.acknowledged(5)
    assert not progress.acknowledged(5)
    assert not progress.acknowledged(2)
    assert (progress.match_index, progress.next_index) == (5, 6)


def test_b12_a_rejection_below_the_match_is_stale() -> None:
    progress = new_progress()
    progress.acknowledged(5)
    progress.become_replicate()
    assert not progress.rejected(5, 2)
    assert progress.rejected(7, 2)
    assert progress.next_index == 6


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("acknowledged"), st.integers(0, 30)),
            st.tuples(st.just("rejected"), st.integers(0, 30), st.integers(0, 30)),
            st.tuples(st.just("become_probe")),
            st.tuples(st.just("become_replicate")),
            st.tuples(st.just("become_snapshot"), st.integers(1, 30)),
            st.tuples(st.just("snapshot_failed")),
        )
    )
)
def test_b13_next_is_always_beyond_the_match(calls: list[tuple[object, ...]]) -> None:
    progress = new_progress(next_index=10)
    for name, *arguments in calls:
        if name == "snapshot_failed" and progress.mode is not Mode.SNAPSHOT:
            continue
        if name == "become_snapshot" and arguments[0] <= progress.match_index:  # type: ignore[operator]
            continue
        match = progress.match_index
        getattr(progress, str(name))(*arguments)
        progress.check()
        assert progress.match_index >= match


def test_a_progress_that_cannot_be_is_noticed() -> None:
    progress = new_progress()
    progress.match_index = 1
    with pytest.raises(InvariantBroken):
        progress.check()


def test_l8_after_a_snapshot_sending_goes_on_behind_it() -> None:
    progress = new_progress()
    progress.become_snapshot(20)
    assert not progress.may_send
    progress.become_probe()
    assert (progress.mode, progress.next_index) == (Mode.PROBE, 21)


def test_l8_a_failed_snapshot_begins_at_the_match_again() -> None:
    progress = new_progress()
    progress.acknowledged(3)
    progress.become_snapshot(20)
    progress.snapshot_failed()
    assert (progress.mode, progress.next_index) == (Mode.PROBE, 4)


def test_nothing_is_sent_beside_a_snapshot() -> None:
    progress = new_progress()
    progress.become_snapshot(20)
    with pytest.raises(InvariantBroken):
        progress.sent(21, 10, commit=0)


def test_s12_a_commit_is_told_as_far_as_the_message_reaches() -> None:
    progress = new_progress(next_index=4)
    progress.become_replicate()
    progress.next_index = 4
    progress.sent(5, 10, commit=9)
    assert progress.sent_commit == 5
    assert not progress.lacks_commit(5)
    assert not progress.lacks_commit(9), "an empty append could not tell it"
    progress.sent(8, 10, commit=7)
    assert progress.lacks_commit(8)


def test_a_progress_says_what_it_is() -> None:
    progress = new_progress()
    progress.sent(0, 0, 0)
    assert str(progress) == "probe paused match=0 next=1 in_flight=0"
