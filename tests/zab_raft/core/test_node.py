"""The contract of the Ready: what is handed out when, and what the driver's reports mean."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell
from znoded.zab_raft.core.configuration import Configuration
from znoded.zab_raft.core.errors import InvariantBroken
from znoded.zab_raft.core.messages import (
    NOBODY,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatResponse,
    Snapshot,
    VoteRequest,
    VoteResponse,
)
from znoded.zab_raft.core.node import Node, Ready, Role
from znoded.zab_raft.core.stored import StoredLog

THREE = Configuration.of([1, 2, 3])


def command(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.COMMAND, b"%d.%d" % (index, term))


def new_node(entries: tuple[Entry, ...] = (), hard_state: HardState | None = None) -> Node:
    return Node(2, StoredLog(Snapshot(0, 0, THREE), entries), hard_state or HardState(), lambda _below: 0)


def append(sender: int, term: int, previous: tuple[int, int], *entries: Entry, commit: int = 0) -> AppendRequest:
    return AppendRequest(sender, 2, term, *previous, entries, commit)


def take(node: Node) -> Ready:
    ready = node.ready()
    assert ready is not None
    return ready


def test_nothing_to_do_is_no_ready() -> None:
    node = new_node()
    assert node.ready() is None
    node.tick()
    assert node.ready() is None


def test_d4_entries_and_hard_state_come_in_one_ready() -> None:
    node = new_node()
    node.step(append(1, 3, (0, 0), command(1, 3), command(2, 3), commit=1))
    ready = take(node)
    assert (ready.hard_state, ready.entries) == (HardState(3, NOBODY, 1), [command(1, 3), command(2, 3)])
    assert ready.must_store
    assert (ready.messages, ready.messages_after_sync) == ([], [AppendResponse(2, 1, 3, 2)])
    assert node.ready() is None, "each thing comes once"


def test_a_commit_alone_is_no_reason_to_store() -> None:
    node = new_node((command(1, 3),), HardState(3, NOBODY, 0))
    node.step(Heartbeat(1, 2, 3, 1, 0))
    ready = take(node)
    assert not ready.must_store
    assert ready.hard_state == HardState(3, NOBODY, 1)
    assert ready.messages == [HeartbeatResponse(2, 1, 3, 0)]
    assert ready.committed == [command(1, 3)]


def test_an_answer_leaves_at_once_if_all_it_depends_on_is_durable() -> None:
    node = new_node((command(1, 3),), HardState(3, NOBODY, 0))
    node.step(append(1, 3, (0, 0), command(1, 3)))
    ready = take(node)
    assert not ready.must_store
    assert ready.messages == [AppendResponse(2, 1, 3, 1)]


def test_an_answer_waits_for_the_writes_under_way() -> None:
    node = new_node()
    node.step(append(1, 3, (0, 0), command(1, 3)))
    first = take(node)
    node.step(append(1, 3, (0, 0), command(1, 3)))
    second = take(node)
    assert second.must_store
    assert (second.entries, second.messages) == ([], [])
    node.stored(first)
    node.stored(second)
    node.step(append(1, 3, (0, 0), command(1, 3)))
    assert take(node).messages == [AppendResponse(2, 1, 3, 1)]


def test_d1_whom_another_leads_by_now_asks_for_no_votes() -> None:
    """The write that takes the entries which its request promises can be durable when the request may leave."""
    node = new_node((command(1, 2), command(2, 2)), HardState(2, NOBODY, 1))
    node.campaign()
    node.step(VoteResponse(1, 2, 3, True, True, 1, 2))
    standing = take(node)
    asked = [message.to for message in standing.messages_after_sync]
    assert (node.role, node.term, asked) == (Role.CANDIDATE, 3, [1, 3])
    assert node.after_sync(standing) == standing.messages_after_sync
    node.step(append(1, 3, (1, 2), command(2, 3)))
    take(node)
    assert node.after_sync(standing) == []


def test_d7_b23_a_late_report_does_not_count_for_what_looks_the_same() -> None:
    """Entry 2 is of term 1, then of term 3, then of term 1 again, in the log of a leader of term 4."""
    node = new_node((command(1, 1),), HardState(1, NOBODY, 1))
    node.step(append(1, 2, (1, 1), command(2, 1)))
    first = take(node)
    node.step(append(3, 3, (1, 1), command(2, 3)))
    second = take(node)
    node.step(append(1, 4, (1, 1), command(2, 1), commit=2))
    third = take(node)
    assert [ready.entries for ready in (first, second, third)] == [[command(2, 1)], [command(2, 3)], [command(2, 1)]]
    node.stored(first)
    assert node.raft.log.stable_index == 1
    node.stored(second)
    assert node.ready() is None, "what is stored now is the entry of term 3"
    node.stored(third)
    assert take(node).committed == [command(2, 1)]


def test_d8_a_tail_is_known_to_be_stable_after_the_term_changed() -> None:
    """With no entries to write any more: the write of the new term says how the log ends."""
    node = new_node((command(1, 1),), HardState(1, NOBODY, 1))
    node.step(append(1, 1, (1, 1), command(2, 1)))
    first = take(node)
    node.step(VoteRequest(3, 2, 5, False, True, 9, 4, 0, 0))
    second = take(node)
    node.stored(first)
    assert node.raft.log.stable_index == 1
    node.stored(second)
    assert node.raft.log.stable_index == 2


def test_writes_are_reported_in_order() -> None:
    node = new_node()
    node.step(append(1, 3, (0, 0), command(1, 3)))
    first = take(node)
    node.step(append(1, 3, (1, 3), command(2, 3)))
    second = take(node)
    with pytest.raises(InvariantBroken, match="Ready 2 is stored behind Ready 0"):
        node.stored(second)
    with pytest.raises(InvariantBroken):
        node.stored(first)


def test_a_member_whose_invariant_broke_takes_no_call_any_more() -> None:
    node = new_node((command(1, 1),), HardState(1, NOBODY, 1))
    with pytest.raises(InvariantBroken) as broken:
        node.applied(1)
    for call in (node.tick, node.campaign, node.ready, node.forget_leader):
        with pytest.raises(InvariantBroken) as again:
            call()
        assert again.value is broken.value


def test_d6_an_overwrite_is_a_write_of_its_own() -> None:
    node = new_node((command(1, 1), command(2, 1)), HardState(1, NOBODY, 1))
    node.step(append(3, 2, (1, 1), command(2, 2), command(3, 2)))
    ready = take(node)
    assert ready.entries == [command(2, 2), command(3, 2)]
    assert ready.hard_state == HardState(2, NOBODY, 1)


def test_s5_what_is_applied_is_what_was_committed_after_an_overwrite() -> None:
    cell = Cell()
    cell.elect(1)
    cell.propose(1, b"lost")
    cell.take()
    cell.do(2, lambda node: node.forget_leader())
    cell.do(3, lambda node: node.forget_leader())
    cell.do(2, lambda node: node.campaign())
    cell.settle(lambda message: 1 not in (message.sender, message.to))
    cell.propose(2, b"kept")
    for _ in range(2):
        cell.settle()
        cell.tick(2)
    cell.settle()
    assert [member.commands for member in cell.members.values()] == [[b"kept"]] * 3


def test_a_node_says_what_it_is() -> None:
    cell = Cell()
    leader = cell.elect(1)
    assert (leader.id, leader.term, leader.leader, leader.role) == (1, 1, 1, Role.LEADER)
    assert (leader.committed_index, leader.applied_index, leader.last_index) == (1, 1, 1)
    assert set(leader.progress) == {1, 2, 3}
    assert cell[2].progress == {}
    assert not cell[2].checkpoint_wanted
