"""A cell of replicas: what is taken is applied everywhere, once and in order, whoever leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zab_raft.cell.cell import Cell, TestMember
from tests.zab_raft.cell.hand_over import hand_over
from tests.zab_raft.cell.journal import CellJournal, command
from znoded.zab_raft.cell import options as options_module
from znoded.zab_raft.cell.driver import TURN_S
from znoded.zab_raft.cell.replica import CellReplica
from znoded.zab_raft.core.messages import Heartbeat, InstallSnapshot
from znoded.zab_raft.peers.wire import Forward, FrameKind

#: How long a machine takes to apply a command, if the test says so.
APPLYING_S = 0.0002


def reads_at(member: TestMember, count: int = 1) -> list[bool]:
    """Answers to so many reads, as they come."""
    answers: list[bool] = []
    for _ in range(count):
        member.replica.confirm_reads(answers.append)
    return answers


def test_a_new_cell_is_founded_and_writes_reach_all(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    assert {each.replica.mode for each in cell.running} == {"leader", "follower"}
    written = cell.write(1, 5)
    cell.check()
    assert cell[2].journal.effects == [b"term1 1 begins", *written]
    assert len({each.replica.directory.meta.cell for each in cell.running}) == 1


def test_a_cell_of_one_leads_by_itself_and_comes_back(quick_path: Path) -> None:
    cell = Cell(quick_path, members=1)
    cell[1].start()
    cell.run_until(lambda: cell[1].started.called and cell[1].replica.leads)
    written = cell.write(1, 3)
    cell[1].cut_power()
    cell[1].start()
    cell.run_until(lambda: cell[1].replica.leads)
    cell.run_until(lambda: b"term2 1 begins" in cell[1].journal.effects)
    assert cell[1].journal.effects == [b"term1 1 begins", *written, b"term2 1 begins"]


def test_commands_of_one_turn_are_one_record_and_one_append(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    before = cell[1].replica.last_index
    cell[1].log_thread.held = True
    cell.propose(1, 10)
    cell.reactor.advance(0)
    assert cell[1].replica.last_index == before + 10
    assert len(cell[1].log_thread.waiting) == 1


def test_x1_writes_at_a_follower_are_forwarded_in_order(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    first, second = cell.propose(2, 20), cell.propose(3, 20)
    cell.run_until(lambda: set(first + second) <= set(cell[1].journal.effects))
    cell.check()
    assert [each for each in cell[1].journal.effects if each in set(first)] == first
    assert [each.replica.outstanding for each in cell.running] == [0, 0, 0]


def test_x5_places_without_a_command_take_an_index_and_reach_nobody(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(1)
    assert [index for index, _command in cell[1].journal.applied] == [2, 3]
    cell.elect(2)
    cell.write(2)
    cell.settle()
    assert [index for index, _command in cell[1].journal.applied] == [2, 3, 5, 6]


# ---- when the leader changes


def test_x2_what_a_follower_forwarded_to_a_leader_that_died_is_applied_once(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    early = cell.propose(2, 10)
    cell.run(0.0015)  # they are with the leader, perhaps in its log
    late = cell.propose(3, 10)
    cell[1].kill()
    later = cell.propose(2, 5)
    cell.run_until(lambda: set(early + late + later) <= set(cell[2].journal.effects))
    cell.check()
    assert [each for each in cell[2].journal.effects if each in set(early + later)] == early + later
    assert cell[2].replica.outstanding == cell[3].replica.outstanding == 0


def test_x2_what_the_old_leader_committed_unseen_is_forwarded_again_and_refused(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    written = cell.propose(2, 5)
    cell.run_until(lambda: set(written) <= set(cell[1].journal.effects))
    cell.network.cuts.add((1, 2))  # which never hears that it was committed
    cell.run(0.01)
    more = cell.propose(2, 5)
    cell.run(0.02)
    cell[1].kill()
    cell.run_until(lambda: set(written + more) <= set(cell[2].journal.effects))
    cell.check()


def test_x2_proposals_of_a_leader_that_was_cut_off_go_to_the_next_one(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.network.cut(1)
    lost = cell.propose(1, 10)
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads)
    cell.write(2, 5)
    cell.network.heal()
    cell.run_until(lambda: set(lost) <= set(cell[1].journal.effects))
    cell.check()
    assert cell[1].replica.mode == "follower"


def test_forwarded_commands_that_a_broken_connection_lost_are_forwarded_again(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.network.cuts.add((2, 1))
    written = cell.propose(2, 5)
    cell.run(0.05)
    assert not set(written) & set(cell[1].journal.effects)
    cell.network.heal()
    cell.run_until(lambda: set(written) <= set(cell[2].journal.effects))
    cell.check()


def test_forwarded_commands_that_were_on_the_way_are_forwarded_again(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.sent.clear()
    written = cell.propose(2, 5)
    cell.run(0.001)
    assert any(kind is FrameKind.FORWARD for *_, kind, _record in cell.network.sent)
    cell.network.cuts.add((2, 1))
    cell.run(0.05)
    cell.network.heal()
    cell.run_until(lambda: set(written) <= set(cell[2].journal.effects), seconds=0.5)
    cell.check()


def test_frames_for_an_earlier_leadership_are_left_out(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.elect(2)
    cell.elect(1)
    stale = [record for _, _, kind, record in cell.network.sent if kind is FrameKind.FORWARD]
    assert stale == []
    cell[1].replica.received(2, FrameKind.FORWARD, Forward(1, [b"9 1 "]))
    cell.run(0.1)
    assert b"9 1 " not in cell[1].journal.effects


def test_leaders_end_is_followed_by_an_election_at_once(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[1].kill()
    written = cell.propose(2)
    cell.run_until(lambda: set(written) <= set(cell[2].journal.effects), seconds=0.1)
    assert cell[2].journal.leaders[-2:] == [(0, 2), (2, 2)]


def test_member_that_lacks_entries_leaves_the_election_to_the_next_in_rank(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[2].log_thread.held = True
    cell.write(1, 3)
    cell[1].kill()
    cell[2].log_thread.release()
    cell[2].log_thread.held = False
    cell.run_until(lambda: any(each.replica.leads for each in cell.running), seconds=0.3)
    cell.check()


def test_l3_silent_loss_of_the_leader_is_found_by_its_silence(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.network.cut(1)
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads, seconds=3)
    cell.run_until(lambda: not cell[1].replica.has_leader, seconds=2)
    assert cell[1].replica.mode == "follower"


def test_lost_quorum_lets_proposals_wait(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].kill()
    cell[3].kill()
    written = cell.propose(1, 5)
    cell.run(3)
    assert not cell[1].replica.has_leader
    assert cell[1].replica.writable
    more = cell.propose(1, 5)
    assert not set(written + more) & set(cell[1].journal.effects)
    cell[3].start()
    cell.run_until(lambda: set(written + more) <= set(cell[1].journal.effects))
    cell.check()


def test_t1_missed_ticks_are_not_made_up_for(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.sent.clear()
    cell.reactor.advance(5)  # a pause
    cell.reactor.advance(0)
    assert cell[1].replica.leads
    heartbeats = [record for *_, record in cell.network.sent if isinstance(record, Heartbeat)]
    assert len(heartbeats) == 2
    cell.run(0.5)
    assert cell[1].replica.leads
    assert cell[1].replica.term == 1


def test_leadership_is_handed_over(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    hand_over(cell[1].replica, 3)
    cell.run_until(lambda: cell[3].replica.leads, seconds=0.2)


def test_commands_that_come_during_a_hand_over_wait_for_its_end(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[3].log_thread.held = True  # it cannot take over
    hand_over(cell[1].replica, 3)
    written = cell.propose(1, 3)
    cell.run(0.1)
    assert not set(written) & set(cell[1].journal.effects)
    cell.run_until(lambda: set(written) <= set(cell[1].journal.effects), seconds=3)
    cell[3].log_thread.release()
    cell.check()


def test_what_is_told_to_the_leader_arrives_with_the_number_of_who_told(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[1].replica.tell_leader(b"own")
    cell[2].replica.tell_leader(b"touched")
    cell.run(0.01)
    assert cell[1].journal.told_by == [(1, b"own"), (2, b"touched")]
    assert cell[2].journal.told_by == []


# ---- reads


@pytest.mark.parametrize("number", [1, 2])
def test_r1_read_is_confirmed_behind_all_that_was_committed_before(quick_path: Path, number: int) -> None:
    cell = Cell(quick_path).start()
    written = cell.write(3, 3)
    answers = reads_at(cell[number], 5)
    cell.run_until(lambda: bool(answers))
    assert answers == [True] * 5
    assert set(written) <= set(cell[number].journal.effects)


def test_r1_read_at_a_member_that_lags_waits_until_it_has_applied(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell[2].log_thread.held = True
    written = cell.write(1, 3)
    answers = reads_at(cell[2])
    cell.run(0.5)
    assert answers == []
    cell[2].log_thread.release()
    cell.run_until(lambda: answers == [True])
    assert set(written) <= set(cell[2].journal.effects)


@pytest.mark.parametrize("number", [1, 2])
def test_a_read_sees_what_was_proposed_ahead_of_it(quick_path: Path, number: int) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    ahead = [command(1, cell.next_sequence(1)) for _ in range(3)]
    assert cell[1].replica.propose_ahead_of_reads(ahead)
    seen: list[bool] = []
    cell[number].replica.confirm_reads(
        lambda _is_confirmed: seen.append(set(ahead) <= set(cell[number].journal.effects))
    )
    cell.run_until(lambda: bool(seen))
    assert seen == [True]
    assert cell[1].replica.outstanding == 0


def test_x2_what_was_proposed_ahead_of_reads_goes_to_the_next_leader_too(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.cut(1)
    lost = [command(1, cell.next_sequence(1))]
    assert cell[1].replica.propose_ahead_of_reads(lost)
    cell.run_until(lambda: cell[2].replica.leads or cell[3].replica.leads)
    cell.network.heal()
    cell.run_until(lambda: set(lost) <= set(cell[1].journal.effects))
    cell.check()
    assert cell[1].replica.outstanding == 0


def test_only_a_leader_proposes_ahead_of_reads(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    assert not cell[2].replica.propose_ahead_of_reads([command(2, 1)])
    assert cell[2].replica.outstanding == 0


def test_r5_read_at_a_leader_that_was_cut_off_is_not_confirmed(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.network.cut(1)
    answers = reads_at(cell[1])
    cell.run_until(lambda: bool(answers))
    assert answers == [False]


def test_read_without_a_leader_fails(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[1].kill()
    cell[2].kill()
    cell.run(1)
    answers = reads_at(cell[3])
    cell.run(0.01)
    assert answers == [False]


def test_read_that_its_leader_did_not_live_to_confirm_is_confirmed_by_the_next_one(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.network.cuts.add((1, 2))  # the answer does not come
    answers = reads_at(cell[2])
    cell.run(0.01)
    cell.network.cuts.clear()
    cell[1].kill()
    cell.run_until(lambda: bool(answers))
    assert answers == [True]


def test_reads_of_one_turn_are_one_request(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.settle()
    cell.network.sent.clear()
    answers = reads_at(cell[2], 100)
    cell.run_until(lambda: len(answers) == 100)
    assert len([record for *_, record in cell.network.sent if type(record).__name__ == "ReadRequest"]) == 1


def test_machine_is_told_that_what_it_told_the_leader_may_be_lost(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    reached = cell[2].journal.reached
    cell.network.cut(1)
    cell.network.heal()
    cell.run(0.01)
    assert cell[2].journal.reached > reached


# ---- stopping


def test_leader_that_stops_hands_its_leadership_over(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    written = cell.propose(1, 10)
    cell.run(0.01)
    for number in (2, 3):
        cell[number].journal.leaders.clear()
    begun = cell.reactor.seconds()
    cell[1].stop()
    assert set(written) <= set(cell[1].journal.effects)
    cell.run_until(lambda: any(each.replica.leads for each in cell.running), seconds=0.2)
    assert cell.reactor.seconds() - begun < 1
    assert (0, 1) not in cell[2].journal.leaders + cell[3].journal.leaders  # nobody lost it before there was another
    assert not cell[1].replica.propose([b"1 99 "])
    cell.check()


def test_member_that_stops_without_a_quorum_gives_up_after_a_while(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[2].kill()
    cell[3].kill()
    cell.propose(1)
    answers = reads_at(cell[1])
    cell[1].stop()
    assert answers == [False]


def test_follower_that_stops_leaves_no_log_to_replay(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell.write(2, 5)
    cell.settle()
    cell[2].stop()
    cell[2].start()
    cell.run_until(lambda: cell[2].started.called)
    assert cell[2].journal.loads == 1
    assert cell[2].journal.applied == []
    cell.check()


# ---- catching up


def test_member_that_lags_a_little_catches_up_from_the_log(quick_path: Path) -> None:
    cell = Cell(quick_path).start()
    cell[3].kill()
    cell.write(1, 10)
    cell.checkpoint(1)
    cell[3].start()
    cell.settle()
    assert cell[3].journal.loads == 0
    assert not any(isinstance(record, InstallSnapshot) for *_, record in cell.network.sent)
    cell.check()


def test_member_that_applies_a_long_log_leaves_others_their_turns(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn takes much longer than `TURN_S`, and everything is applied in its order."""
    cell = Cell(quick_path, segment_bytes=1 << 20).start()
    written = cell.write(1, 3_000, size_bytes=100)
    cell.settle()
    turns_s = []
    apply_batch, turn = CellJournal.apply_batch, CellReplica._turn

    def apply_slowly(journal: CellJournal, first_index: int, commands: list[bytes]) -> None:
        apply_batch(journal, first_index, commands)
        cell.reactor.rightNow += len(commands) * APPLYING_S

    def time_turn(replica: CellReplica) -> None:
        began_s = cell.reactor.seconds()
        turn(replica)
        turns_s.append(cell.reactor.seconds() - began_s)

    monkeypatch.setattr(CellJournal, "apply_batch", apply_slowly)
    monkeypatch.setattr(CellReplica, "_turn", time_turn)
    monkeypatch.setattr(options_module, "APPLYING_BYTES", 10_000)
    cell[2].cut_power()
    cell[2].start()
    cell.run_until(lambda: len(cell[2].journal.effects) > len(written))
    assert cell[2].journal.effects[-len(written) :] == written
    assert sum(turns_s) >= 3_000 * APPLYING_S
    assert max(turns_s) < TURN_S + 10_000 / 100 * APPLYING_S  # what the last Ready has may come on top
    cell.check()


def test_turns_that_are_taken_at_once_do_not_add_to_those_that_are_due(quick_path: Path) -> None:
    """Or each tick while a long log is applied would have one more turn follow another, in one of the reactor's."""
    cell = Cell(quick_path).start()
    cell.settle()
    replica = cell[1].replica
    for _ in range(3):
        replica._wake()
        replica._turn()
    due = [call for call in cell.reactor.getDelayedCalls() if call.func == replica._woken]
    assert len(due) == 1
