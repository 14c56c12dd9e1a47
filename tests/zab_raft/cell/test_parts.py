"""The small parts of a cell's replica."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.zab_raft.cell.journal import member, original
from tests.zab_raft.pump import PumpReactor
from znoded.zab_raft.cell.candidacy import FIRST_DELAY_S, RANK_DELAY_S, Candidacy
from znoded.zab_raft.cell.own_proposals import GIVEN_BYTES_LIMIT, ChangeRequest, OwnProposals, Proposal
from znoded.zab_raft.cell.retention import CATCHING_UP_FACTOR, Retention
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.state import CellState, decode_configuration, encode_configuration
from znoded.zab_raft.core.configuration import Configuration

IDS = st.frozensets(st.integers(1, 300), max_size=7)


def test_own_proposals_are_given_once_to_a_leader_and_again_to_the_next() -> None:
    own = OwnProposals(original)
    own.add([b"a", b"b"])
    assert own.take() == [b"a", b"b"]
    own.add([b"c"])
    assert own.take() == [b"c"]
    assert own.take() == []
    own.applied([b"a"])
    own.give_again()
    assert own.take() == [b"b", b"c"]


def test_own_proposals_are_given_as_far_as_the_leader_has_room() -> None:
    own = OwnProposals(original)
    half = [bytes([number]) * (GIVEN_BYTES_LIMIT // 2) for number in range(4)]
    own.add(half)
    assert own.take() == half[:2]
    assert own.take() == []
    own.applied(half[:1])
    assert own.take() == half[2:3]
    own.give_again()
    assert own.take() == half[1:3]
    own.applied(half[1:])
    own.add([b"next"])
    assert own.take() == [b"next"]


def test_own_proposals_are_done_in_order_and_others_do_not_count() -> None:
    own = OwnProposals(original)
    own.add([b"a", b"b", b"c"])
    own.applied([b"x", b"b", b"a", b"y"])
    assert len(own) == 2
    own.applied([b"b", b"c", b"c"])
    assert len(own) == 0
    own.applied([b"a"])
    assert own.take() == []


def test_change_is_done_when_what_a_leader_made_of_it_is_applied() -> None:
    own = OwnProposals(original)
    own.add([ChangeRequest(b"1 1 members 1"), b"next"])
    own.applied([b"refused PENDING 1 2 members 1"])
    assert len(own) == 2
    own.applied([b"refused PENDING 1 1 members 1", b"next"])
    assert len(own) == 0


@given(st.lists(st.tuples(st.sampled_from("agxr"), st.integers(0, 3)), max_size=30))
def test_own_proposals_give_each_that_is_not_applied_in_order(steps: list[tuple[str, int]]) -> None:
    own = OwnProposals(original)
    waiting: list[bytes] = []
    given_to_leader: list[Proposal] = []
    count = 0
    for step, number in steps:
        if step == "a":
            new = [b"%d" % (count + each) for each in range(number)]
            count += number
            own.add(new)
            waiting += new
        elif step == "g":
            given_to_leader += own.take()
            assert given_to_leader[-len(waiting) :] == waiting or not waiting
        elif step == "x":
            own.applied(waiting[:number])
            waiting = waiting[number:]
        else:
            own.give_again()
            given_to_leader = []
    assert len(own) == len(waiting)


def test_retention_keeps_what_fits_and_all_behind_the_checkpoint() -> None:
    retention = Retention(100)
    for index in range(10, 101, 10):
        retention.written(index, 30)
    assert retention.keep_from(5, 101) == 0
    assert retention.keep_from(45, 101) == 41  # too much is left, but it is behind the checkpoint
    assert retention.keep_from(100, 101) == 71
    assert retention.keep_from(100, 101) == 71


def test_retention_keeps_more_for_a_member_that_catches_up_but_not_without_a_limit() -> None:
    retention = Retention(100)
    for index in range(10, 101, 10):
        retention.written(index, 30)
    assert retention.keep_from(100, 35) == 31  # the write of 31 to 40 is needed
    for index in range(110, 201, 10):
        retention.written(index, 30 * CATCHING_UP_FACTOR)
    assert retention.keep_from(200, 35) == 171
    assert retention.keep_from(200, 201) == 191 + 10


def test_members_stand_one_after_the_other_until_there_is_a_leader() -> None:
    clock = PumpReactor()
    stood: list[float] = []
    candidacy = Candidacy(clock, lambda: stood.append(round(clock.seconds(), 3)))
    candidacy.announce(rank=1, ranks=2)
    clock.pump([0.001] * 120)
    assert stood == [FIRST_DELAY_S + RANK_DELAY_S]
    candidacy.withdraw()
    clock.pump([0.001] * 1000)
    assert len(stood) == 1
    assert not clock.getDelayedCalls()


@given(IDS, IDS, IDS, IDS, st.booleans(), st.integers(0, 1 << 60))
def test_configuration_comes_back(
    voters: frozenset[int],
    outgoing: frozenset[int],
    learners: frozenset[int],
    learners_next: frozenset[int],
    auto_leave: bool,
    highest_id: int,
) -> None:
    configuration = Configuration(voters, outgoing, learners, learners_next, auto_leave, highest_id)
    assert decode_configuration(encode_configuration(configuration)) == configuration


def test_state_of_the_cell_comes_back() -> None:
    roster = Roster.founding([member(1), member(2)])
    for cell in (CellState.founding(roster), CellState.joining({3: (1, "host:2888")})):
        tables = {
            table: [(key, value or b"") for key, value in values.items()] for table, values in cell.changes().items()
        }
        assert CellState.read(tables.__getitem__) == cell
    assert CellState.read(lambda table: []) is None
