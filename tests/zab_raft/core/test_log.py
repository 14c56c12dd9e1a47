"""The log: the unstable end over the durable part, matching, truncation, and what is handed out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken, LostTail
from znoded.zab_raft.core.log import RaftLog
from znoded.zab_raft.core.messages import Entry, EntryKind, Snapshot
from znoded.zab_raft.core.stored import StoredLog

THREE = Configuration.of([1, 2, 3])


def entries_of(terms: Sequence[int], first_index: int = 1) -> list[Entry]:
    return [
        Entry(index, term, EntryKind.COMMAND, b"%d.%d" % (index, term)) for index, term in enumerate(terms, first_index)
    ]


def log_of(terms: Sequence[int], committed: int = 0, base: int = 0, base_term: int = 0) -> RaftLog:
    """A durable log with entries of these terms."""
    return RaftLog(StoredLog(Snapshot(base, base_term, THREE), entries_of(terms, base + 1)), committed)


def terms_of(log: RaftLog) -> list[int | None]:
    return [log.term(index) for index in range(log.first_index, log.last_index + 1)]


def write(log: RaftLog) -> list[Entry]:
    """Make durable what is not; what was written."""
    entries = log.unstable.take_entries()
    if entries:
        log.stored.append(entries)
        log.stable_to(entries[-1].index, entries[-1].term)
    return entries


def test_s3_entries_that_fit_are_taken() -> None:
    log = log_of([1, 1])
    assert log.try_append(2, 1, entries_of([2], 3), commit=0) == 3
    assert terms_of(log) == [1, 1, 2]


@pytest.mark.parametrize(("index", "term"), [(2, 2), (3, 1), (9, 1)])
def test_s3_entries_that_do_not_fit_are_not(index: int, term: int) -> None:
    log = log_of([1, 1])
    assert log.try_append(index, term, entries_of([3], index + 1), commit=9) is None
    assert (terms_of(log), log.committed) == ([1, 1], 0)


def test_s8_b8_an_old_append_cuts_nothing_that_matches() -> None:
    log = log_of([1, 1, 2, 2])
    assert log.try_append(0, 0, entries_of([1, 1]), commit=0) == 2
    assert terms_of(log) == [1, 1, 2, 2]
    assert log.unstable.take_entries() == [], "nothing is to be written"


def test_s8_only_what_differs_is_replaced() -> None:
    log = log_of([1, 1, 1, 1])
    log.try_append(1, 1, entries_of([1, 3], 2), commit=0)
    assert terms_of(log) == [1, 1, 3]
    assert [entry.index for entry in log.unstable.take_entries()] == [3]


def test_s8_what_is_committed_is_never_replaced() -> None:
    log = log_of([1, 1, 1], committed=2)
    with pytest.raises(InvariantBroken, match="entry 2 is replaced"):
        log.try_append(1, 1, entries_of([2], 2), commit=0)


def test_s12_a_follower_commits_no_further_than_the_message_reaches() -> None:
    log = log_of([1, 1, 1, 1])
    log.try_append(1, 1, entries_of([1], 2), commit=4)
    assert log.committed == 2


def test_s7_the_commit_never_goes_back() -> None:
    log = log_of([1, 1], committed=2)
    log.commit_to(1)
    assert log.committed == 2


def test_b33_a_commit_beyond_the_log_is_a_lost_tail() -> None:
    with pytest.raises(LostTail, match="lost what it had acknowledged"):
        log_of([1]).commit_to(2)


def test_d5_a_stored_commit_beyond_the_stored_log_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="committed up to 3, but the log ends at 2"):
        log_of([1, 1], committed=3)


def test_d7_a_write_of_replaced_entries_makes_nothing_stable() -> None:
    log = log_of([1])
    log.append(entries_of([2, 2], 2))
    old = log.unstable.take_entries()
    log.append(entries_of([3], 2))
    log.stored.append(old)
    log.stable_to(3, 2)
    assert log.stable_index == 1
    assert terms_of(log) == [1, 3], "the durable entry 3 does not count any more"
    write(log)
    assert (log.stable_index, log.stored.last_index) == (2, 2)


def test_d9_only_durable_entries_are_handed_out() -> None:
    log = log_of([1])
    log.append(entries_of([1, 1], 2))
    log.commit_to(3)
    assert [entry.index for entry in log.take_committed(1 << 20)] == [1]
    assert log.take_committed(1 << 20) == []
    write(log)
    assert [entry.index for entry in log.take_committed(1 << 20)] == [2, 3]


def test_d20_committed_entries_come_in_pages_each_once() -> None:
    log = log_of([1] * 5, committed=4)
    pages = [[entry.index for entry in log.take_committed(most_bytes=70)] for _ in range(4)]
    assert pages == [[1, 2], [3, 4], [], []]


def test_applied_stays_within_what_was_handed_out() -> None:
    log = log_of([1, 1], committed=2)
    with pytest.raises(InvariantBroken, match="applied up to 1"):
        log.applied_to(1)


def test_d11_the_term_in_front_of_the_first_entry_is_known() -> None:
    log = log_of([4, 4, 5], committed=3)
    log.take_committed(1 << 20)
    log.applied_to(3)
    log.stored.compact(Snapshot(2, 4, THREE), keep_from=3)
    assert (log.first_index, log.term(2), log.term(1)) == (3, 4, None)
    assert log.try_append(2, 4, [], commit=0) == 2


def test_entries_behind_a_snapshot_may_be_kept() -> None:
    log = log_of([4, 4, 5], committed=3)
    log.stored.compact(Snapshot(3, 5, THREE), keep_from=2)
    assert (log.first_index, log.last_index, log.term(1)) == (2, 3, 4)


@pytest.mark.parametrize("wrong", [Snapshot(0, 0, THREE), Snapshot(2, 5, THREE), Snapshot(9, 4, THREE)])
def test_a_checkpoint_of_another_log_is_refused(wrong: Snapshot) -> None:
    stored = StoredLog(Snapshot(1, 4, THREE), entries_of([4], 2))
    with pytest.raises(InvariantBroken):
        stored.compact(wrong, keep_from=1)


def test_b14_b17_a_match_at_a_compacted_entry_is_none() -> None:
    log = log_of([5], base=10, base_term=4)
    assert log.try_append(0, 0, entries_of([5], 1), commit=0) is None
    assert log.term(9) is None
    assert not log.matches(9, 0)


def test_s8_a_snapshot_replaces_the_log_only_ahead_of_the_commit() -> None:
    log = log_of([1, 1, 1], committed=2)
    with pytest.raises(InvariantBroken, match="a snapshot of 2"):
        log.restore(Snapshot(2, 2, THREE))
    log.restore(Snapshot(9, 3, THREE))
    assert (log.first_index, log.last_index, log.last_term, log.committed) == (10, 9, 3, 9)
    assert log.take_committed(1 << 20) == [], "not while it is being installed"
    log.append(entries_of([3], 10))
    assert log.unstable.take_snapshot() == Snapshot(9, 3, THREE)
    assert log.unstable.take_snapshot() is None
    log.snapshot_stable(Snapshot(9, 3, THREE))
    assert (log.applied, log.term(9), log.term(10)) == (9, 3, 3)
    write(log)
    assert log.stored.last_index == 10


def test_a_newer_snapshot_takes_the_place_of_one_being_installed() -> None:
    log = log_of([1])
    log.restore(Snapshot(5, 2, THREE))
    log.unstable.take_snapshot()
    log.restore(Snapshot(8, 2, THREE))
    log.snapshot_stable(Snapshot(5, 2, THREE))
    assert log.applied == 0
    assert log.unstable.take_snapshot() == Snapshot(8, 2, THREE)
    log.snapshot_stable(Snapshot(8, 2, THREE))
    assert log.applied == 8


@pytest.mark.parametrize(
    ("terms", "index", "term", "expected"),
    [
        ([1, 2, 2, 2, 5, 5], 6, 4, (4, 2)),
        ([1, 2, 2, 2, 5, 5], 6, 5, (6, 5)),
        ([1, 2, 2, 2, 5, 5], 3, 1, (1, 1)),
        ([3, 3], 2, 1, (0, 0)),
    ],
)
def test_l6_whole_terms_are_skipped_to_find_a_match(
    terms: list[int], index: int, term: int, expected: tuple[int, int]
) -> None:
    assert log_of(terms).last_possible_match(index, term) == expected


@pytest.mark.parametrize(
    ("last_index", "last_term", "expected"),
    [(3, 2, True), (2, 2, False), (1, 3, True), (9, 1, False), (4, 2, True)],
)
def test_s4_up_to_date_goes_by_term_then_by_index(last_index: int, last_term: int, expected: bool) -> None:
    assert log_of([1, 2, 2]).is_up_to_date(last_index, last_term) is expected


def test_m6_two_open_changes_are_noticed() -> None:
    change = [Entry(index, 1, EntryKind.CONFIGURATION, b"") for index in (1, 2)]
    log = RaftLog(StoredLog(Snapshot(0, 0, THREE)), 0)
    log.append(change)
    with pytest.raises(InvariantBroken, match="changes at"):
        log.check_changes()
    log.commit_to(1)
    log.check_changes()


def test_gaps_are_noticed() -> None:
    log = log_of([1])
    with pytest.raises(InvariantBroken, match="leave a gap"):
        log.append(entries_of([1], 5))
    with pytest.raises(InvariantBroken, match="entries from 5 are stored"):
        log.stored.append(entries_of([1], 5))
    with pytest.raises(InvariantBroken, match="entries 1 to 9"):
        log.stored.slice(1, 9)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 6), st.integers(1, 4)),
            st.tuples(st.just("take"), st.just(0), st.just(0)),
            st.tuples(st.just("complete"), st.just(0), st.just(0)),
        ),
        max_size=30,
    )
)
def test_the_log_is_what_was_appended_last_however_writes_complete(calls: list[tuple[str, int, int]]) -> None:
    """Against a plain list, with the guard of the term as the machine has it: a new leader's term for each append."""
    log = log_of([])
    model: list[int] = []
    writes: list[tuple[int, list[Entry], int, int]] = []
    durable: list[int] = []
    term = 0
    for call, back, count in calls:
        if call == "append":
            term += 1
            first = max(len(model) - back, 0) + 1
            log.append(entries_of([term] * count, first))
            model = model[: first - 1] + [term] * count
        elif call == "take":
            writes.append((term, log.unstable.take_entries(), log.last_index, log.last_term))
        elif writes:
            at_term, entries, last_index, last_term = writes.pop(0)
            if entries:
                log.stored.append(entries)
                durable = durable[: entries[0].index - 1] + [entry.term for entry in entries]
            if at_term == term:
                log.stable_to(last_index, last_term)
        assert terms_of(log) == model
        assert durable[: log.stable_index] == model[: log.stable_index], "what counts as stable is durable"
        slices = log.slice(1, len(model) + 1, 1 << 30)
        assert [entry.term for entry in slices] == model
