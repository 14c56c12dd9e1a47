"""Appending, acknowledging, committing, windows and limits."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell, Filter
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken, LostTail, Reason, Refused
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    Message,
)
from znoded.zab_raft.core.node import Role
from znoded.zab_raft.core.options import Options
from znoded.zab_raft.core.progress import Mode

BIG = b"x" * 100


def command(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.COMMAND, b"%d.%d" % (index, term))


def with_log(cell: Cell, member: int, terms: list[int], term: int | None = None, commit: int = 0) -> None:
    """A member that has a log with entries of these terms."""
    entries = [command(index, of) for index, of in enumerate(terms, 1)]
    state = HardState(max(terms, default=0) if term is None else term, NOBODY, commit)
    cell.add(member, Configuration.of(cell.members), entries, state)


def without(member: int) -> Filter:
    return lambda message: member not in (message.sender, message.to)


def appends(messages: list[Message]) -> list[AppendRequest]:
    return [message for message in messages if isinstance(message, AppendRequest)]


def test_a_command_is_applied_by_all() -> None:
    cell = Cell()
    cell.elect(2)
    cell.propose(2, b"a", b"b")
    cell.settle()
    assert [member.commands for member in cell.members.values()] == [[b"a", b"b"]] * 3


def test_a_leader_begins_its_term_with_an_entry() -> None:
    cell = Cell()
    cell.elect(1)
    assert [entry.kind for entry in cell.members[3].applied] == [EntryKind.TERM_START]


def test_a_member_that_does_not_lead_forwards_nothing() -> None:
    cell = Cell()
    cell.elect(1)
    with pytest.raises(Refused, match="the leader is 1") as refused:
        cell[2].propose([b"a"])
    assert refused.value.reason is Reason.NOT_LEADER
    assert cell[2].ready() is None
    with pytest.raises(ValueError, match="no commands"):
        cell[1].propose([])


def test_s3_l6_logs_of_any_shape_become_the_leaders() -> None:
    """The logs of figure 7 of the paper."""
    shapes = {
        1: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6],
        2: [1, 1, 1, 4, 4, 5, 5, 6, 6],
        3: [1, 1, 1, 4],
        4: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        5: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        6: [1, 1, 1, 4, 4, 4, 4],
        7: [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    }
    cell = Cell(range(1, 8))
    for member, terms in shapes.items():
        with_log(cell, member, terms, term=7)
    cell.elect(1)
    cell.tick(1)
    cell.settle()
    logs = [member.log() for member in cell.members.values()]
    assert logs == [logs[0]] * 7
    assert [term for _, term, _ in logs[0]] == [*shapes[1], 8]


def test_l6_one_probe_for_each_term_is_enough() -> None:
    cell = Cell([1, 2, 3])
    with_log(cell, 1, [1] * 3 + [5] * 40, term=6)
    with_log(cell, 2, [1] * 3 + [2] * 20 + [3] * 20, term=6)
    with_log(cell, 3, [1] * 3 + [5] * 40, term=6)
    cell.elect(1)
    probes = [note for note in cell.notes if note.startswith("1->2 AppendRequest")]
    rejections = [note for note in cell.notes if note.startswith("2->1 AppendResponse") and "rejected" in note]
    assert len(rejections) <= 3
    assert len(probes) <= 6
    assert cell.members[2].log() == cell.members[1].log()


def test_s8_b8_reordered_and_repeated_appends_take_nothing_away() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    first = appends(cell.take(lambda message: message.to == 2))
    cell.propose(1, b"b")
    second = appends(cell.take(lambda message: message.to == 2))
    for message in [*first, *second, *first, *second, *first]:
        cell.step(message)
    assert [data for _, _, data in cell.members[2].log()] == [b"", b"a", b"b"]


def test_d2_b24_entries_are_acknowledged_when_they_are_durable() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[2].syncs = False
    cell.propose(1, b"a")
    cell.deliver(lambda message: message.to == 2)
    assert cell.take(lambda message: message.sender == 2) == []
    cell.members[2].sync()
    assert cell.take(lambda message: message.sender == 2) == [AppendResponse(2, 1, 1, 2)]


def test_d2_a_repeated_append_is_acknowledged_when_the_first_one_is_durable() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[2].syncs = False
    cell.propose(1, b"a")
    request = appends(cell.take(lambda message: message.to == 2))[0]
    cell.step(request)
    cell.step(request)
    assert cell.take(lambda message: message.sender == 2) == []


def test_d2_b27_a_single_voter_commits_when_it_is_durable() -> None:
    cell = Cell([1])
    cell.elect(1)
    cell.members[1].syncs = False
    cell.propose(1, b"a")
    assert (cell[1].committed_index, cell.members[1].commands) == (1, [])
    cell.members[1].sync()
    cell.members[1].pump()
    assert cell.members[1].commands == [b"a"]


def test_l15_a_leader_with_a_slow_disk_does_not_hold_up_the_others() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[1].syncs = False
    cell.propose(1, b"a")
    cell.settle()
    assert [cell[member].committed_index for member in (1, 2, 3)] == [2, 2, 2]
    assert cell.members[2].commands == [b"a"]


def test_a_commit_that_the_leaders_own_disk_completes_is_told() -> None:
    cell = Cell([1, 2])
    cell.elect(1)
    cell.members[1].syncs = False
    cell.propose(1, b"a")
    cell.settle()
    assert cell[1].committed_index == 1
    cell.members[1].sync()
    cell.members[1].pump()
    cell.settle()
    assert cell[2].committed_index == 2


def test_d9_what_is_committed_is_applied_only_when_it_is_durable_here() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[1].syncs = False
    cell.propose(1, b"a")
    cell.settle()
    assert cell.members[1].commands == []
    cell.members[1].sync()
    cell.members[1].pump()
    assert cell.members[1].commands == [b"a"]


def test_l16_a_follower_with_a_slow_disk_answers_heartbeats() -> None:
    cell = Cell()
    cell.elect(1)
    cell.members[2].syncs = False
    cell.propose(1, b"a")
    cell.deliver()
    cell.tick(1)
    cell.deliver(lambda message: message.to == 2)
    assert HeartbeatResponse(2, 1, 1, 0) in cell.take()


def test_s6_b1_entries_of_older_terms_are_not_committed_by_counting() -> None:
    """Figure 8 of the paper."""
    cell = Cell()
    with_log(cell, 1, [1, 2], term=2)
    with_log(cell, 2, [1], term=2)
    with_log(cell, 3, [1], term=2)
    cell.do(1, lambda node: node.campaign())
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    assert (cell[1].role, cell[1].term) == (Role.LEADER, 3)
    cell.take()
    cell.step(AppendResponse(2, 1, 3, 2))
    assert cell[1].committed_index == 0
    cell.step(AppendResponse(2, 1, 3, 3))
    assert cell[1].committed_index == 3


def test_l9_entries_of_several_older_terms_are_committed_along() -> None:
    cell = Cell()
    for member in (1, 2, 3):
        with_log(cell, member, [1, 2, 2, 3, 5], term=5)
    cell.elect(2)
    assert [cell[member].committed_index for member in (1, 2, 3)] == [6, 6, 6]


def test_s9_b9_an_acknowledgement_of_an_older_term_does_not_count() -> None:
    """The one that made another implementation lose what it had acknowledged."""
    cell = Cell()
    with_log(cell, 1, [1, 1, 1], term=4)
    with_log(cell, 2, [1], term=4)
    with_log(cell, 3, [1], term=4)
    cell.do(1, lambda node: node.campaign())
    cell.settle(lambda message: not isinstance(message, AppendRequest))
    cell.propose(1, b"a")
    cell.take()
    cell.step(AppendResponse(2, 1, 4, 5))
    assert cell[1].committed_index == 0
    assert cell[1].progress[2].match_index == 0


def test_s9_a_response_of_a_stranger_is_nothing() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    cell.take()
    cell.step(AppendResponse(9, 1, 1, 2))
    cell.step(HeartbeatResponse(9, 1, 1, 0))
    assert cell[1].committed_index == 1


def test_an_acknowledgement_of_what_was_never_sent_is_noticed() -> None:
    cell = Cell()
    cell.elect(1)
    with pytest.raises(InvariantBroken, match="member 2 stores up to 99"):
        cell.step(AppendResponse(2, 1, 1, 99))


def test_s7_b12_a_late_acknowledgement_takes_nothing_back() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a", b"b")
    cell.settle()
    cell.step(AppendResponse(2, 1, 1, 1))
    cell.step(AppendResponse(2, 1, 1, 1, rejected=True))
    assert (cell[1].progress[2].match_index, cell[1].committed_index) == (3, 3)
    assert cell[1].progress[2].mode is Mode.REPLICATE


def test_s12_a_heartbeat_tells_no_more_than_the_member_has() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    cell.settle(without(3))
    cell.take()
    cell.tick(1)
    commits = {message.to: message.commit for message in cell.take() if isinstance(message, Heartbeat)}
    assert (cell[1].committed_index, commits) == (2, {2: 2, 3: 1})


def test_s12_a_lagging_member_is_told_of_the_commit_when_it_answers_a_heartbeat() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    cell.deliver()
    cell.deliver(lambda message: isinstance(message, AppendResponse))
    cell.take()
    cell[1].progress[3].sent_commit = 1
    cell.tick(1)
    cell.take(lambda message: message.to == 2)
    cell.deliver(lambda message: isinstance(message, Heartbeat))
    cell.deliver()
    assert any(isinstance(message, AppendRequest) and message.commit == 2 for message in cell.take())


def test_s12_a_follower_commits_no_further_than_what_it_was_shown() -> None:
    cell = Cell()
    with_log(cell, 2, [1, 1, 1], term=1)
    cell.step(AppendRequest(1, 2, 2, 1, 1, (), 3))
    assert cell[2].committed_index == 1


def test_b33_a_member_that_lost_what_it_acknowledged_stops_for_good() -> None:
    cell = Cell()
    with pytest.raises(LostTail, match="let it join under a new id"):
        cell.step(Heartbeat(1, 2, 1, 5, 0))
    with pytest.raises(LostTail):
        cell[2].tick()
    with pytest.raises(LostTail):
        cell[2].ready()


def test_l7_a_lost_window_is_found_by_the_next_heartbeat() -> None:
    cell = Cell(options=Options(window_messages=2))
    cell.elect(1)
    for name in (b"a", b"b", b"c"):
        cell.propose(1, name)
    cell.take(lambda message: message.to == 3)
    cell.settle()
    assert cell[1].progress[3].window.full
    for _ in range(3):
        cell.tick(1)
        cell.settle()
    assert cell.members[3].commands == [b"a", b"b", b"c"]


def test_l7_many_heartbeats_answered_at_once_bring_one_append() -> None:
    cell = Cell()
    cell.elect(1)
    cell.do(1, lambda node: node.unreachable(3))
    cell.propose(1, b"a")
    cell.tick(1)
    cell.take()
    for _ in range(10):
        cell.step(HeartbeatResponse(3, 1, 1, 0))
    assert len(appends(cell.take())) == 1
    cell.tick(1)
    cell.take()
    cell.step(HeartbeatResponse(3, 1, 1, 0))
    assert len(appends(cell.take())) == 1


def test_l7_a_full_window_stops_appends() -> None:
    cell = Cell(options=Options(window_messages=2))
    cell.elect(1)
    cell.take()
    for name in (b"a", b"b", b"c", b"d"):
        cell.propose(1, name)
    assert len([message for message in appends(cell.transit) if message.to == 3]) == 2
    cell.settle()
    assert cell.members[3].commands == [b"a", b"b", b"c", b"d"]


def test_l7_a_window_is_limited_by_bytes() -> None:
    cell = Cell(options=Options(window_bytes=250, message_bytes=150))
    cell.elect(1)
    cell.propose(1, *[BIG] * 5)
    sent = [message for message in appends(cell.take()) if message.to == 3]
    assert [len(message.entries) for message in sent] == [1, 1]


def test_l7_an_unreachable_member_is_probed() -> None:
    cell = Cell()
    cell.elect(1)
    cell.do(1, lambda node: node.unreachable(3))
    assert cell[1].progress[3].mode is Mode.PROBE
    cell.propose(1, b"a")
    cell.propose(1, b"b")
    assert len([message for message in appends(cell.transit) if message.to == 3]) == 1
    cell.settle()
    assert cell[1].progress[3].mode is Mode.REPLICATE
    assert cell.members[3].commands == [b"a", b"b"]
    cell.do(2, lambda node: node.unreachable(3))  # a follower has nobody to probe


def test_s2_a_leader_keeps_its_entries_whatever_comes() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"a")
    cell.take()
    cell.step(AppendResponse(2, 1, 1, 2, rejected=True, hint_index=0))
    assert [data for _, _, data in cell.members[1].log()] == [b"", b"a"]


def test_l13_too_much_that_is_not_committed_is_refused_until_it_is() -> None:
    cell = Cell(options=Options(tail_bytes=150))
    cell.elect(1)
    cell.propose(1, BIG)
    cell.propose(1, BIG)
    with pytest.raises(Refused) as refused:
        cell[1].propose([b"a"])
    assert refused.value.reason is Reason.TAIL_FULL
    cell.settle()
    cell.propose(1, b"a")


def test_l13_a_new_leaders_first_entry_is_never_refused() -> None:
    cell = Cell([1], options=Options(tail_bytes=1))
    cell.elect(1)
    cell.propose(1, BIG)
    assert cell[1].committed_index == 2


def test_l14_applying_slowly_pauses_what_is_handed_out() -> None:
    cell = Cell([1], options=Options(applying_bytes=200))
    cell.elect(1)
    member = cell.members[1]
    member.applies = False
    cell.propose(1, BIG, BIG, BIG, BIG)
    cell.propose(1, BIG)
    assert len(member.to_apply) == 2, "with them there is no room any more"
    for _ in range(5):
        member.apply()
        member.pump()
    assert len(member.commands) == 5


def test_s5_d20_a_restart_applies_again_from_the_checkpoint() -> None:
    cell = Cell([1])
    cell.elect(1)
    cell.propose(1, b"a", b"b")
    cell.members[1].compact()
    cell.propose(1, b"c", b"d")
    cell.propose(1, b"e")
    cell.members[1].restart()
    assert cell.members[1].commands == [b"c", b"d"], "as far as the stored commit reaches"
    cell.elect(1)
    assert cell.members[1].commands == [b"c", b"d", b"e"]


def test_s14_the_same_calls_give_the_same_messages() -> None:
    def run() -> list[str]:
        cell = Cell()
        cell.elect(1)
        cell.propose(1, b"a")
        cell.tick(3, 30)
        cell.settle()
        return cell.notes

    assert run() == run()
