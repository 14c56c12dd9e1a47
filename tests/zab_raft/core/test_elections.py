"""Terms, votes, pre-votes, leases, and a leader that lost its quorum."""

from __future__ import annotations

import pytest

from tests.zab_raft.core.cell import Cell, everything
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
    InstallSnapshot,
    Message,
    ReadRequest,
    ReadResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from znoded.zab_raft.core.node import Role
from znoded.zab_raft.core.options import Options


def vote_request(
    sender: int, to: int, term: int, pre_vote: bool = False, last: tuple[int, int] = (0, 0), transfer: bool = False
) -> VoteRequest:
    return VoteRequest(sender, to, term, pre_vote, transfer, *last, 0, 0)


def vote(sender: int, to: int, term: int, granted: bool = True, pre_vote: bool = False) -> VoteResponse:
    return VoteResponse(sender, to, term, pre_vote, granted, 0, 0)


def command(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.COMMAND, b"")


def roles(cell: Cell) -> dict[int, Role]:
    return {member.id: member.node.role for member in cell.members.values()}


def candidate(cell: Cell, member: int = 1) -> None:
    """Bring a member to ask for votes; nobody has answered."""
    cell.do(member, lambda node: node.campaign())
    cell.settle(lambda message: isinstance(message, VoteRequest | VoteResponse) and message.pre_vote)
    assert cell[member].role is Role.CANDIDATE


def from_term(cell: Cell, member: int, term: int, last_term: int | None = None) -> None:
    """A member as if it had been in `term`, with one entry of `last_term` if that is given."""
    entries = [] if last_term is None else [command(1, last_term)]
    cell.add(member, Configuration.of(cell.members), entries, HardState(term, NOBODY, 0))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_s1_one_member_is_elected(size: int) -> None:
    cell = Cell(range(1, size + 1))
    cell.elect(1)
    assert [member for member, role in roles(cell).items() if role is Role.LEADER] == [1]
    assert {member.node.leader for member in cell.members.values()} == {1}
    assert {member.node.term for member in cell.members.values()} == {1}


def test_s1_a_candidate_without_a_majority_is_not_elected() -> None:
    cell = Cell([1, 2, 3, 4, 5])
    candidate(cell)
    cell.deliver(lambda message: message.to == 2)
    cell.deliver()
    assert cell[1].role is Role.CANDIDATE


def test_s13_one_vote_in_a_term() -> None:
    cell = Cell()
    cell.step(vote_request(2, 1, 5))
    cell.step(vote_request(3, 1, 5))
    assert cell.take() == [vote(1, 2, 5), vote(1, 3, 5, granted=False)]
    cell.step(vote_request(2, 1, 5))
    assert cell.take() == [vote(1, 2, 5)], "the same answer to the same candidate"


def test_s13_b6_a_vote_survives_a_restart() -> None:
    cell = Cell()
    cell.step(vote_request(2, 1, 5))
    cell.members[1].restart()
    cell.take()
    cell.step(vote_request(3, 1, 5))
    assert cell.take() == [vote(1, 3, 5, granted=False)]


def test_d1_b24_a_vote_leaves_only_when_it_is_durable() -> None:
    cell = Cell()
    cell.members[1].syncs = False
    cell.step(vote_request(2, 1, 5))
    assert cell.take() == []
    cell.members[1].sync()
    assert cell.take() == [vote(1, 2, 5)]


def test_d1_a_rejection_waits_for_the_state_it_depends_on() -> None:
    cell = Cell()
    cell.members[1].syncs = False
    cell.step(vote_request(2, 1, 5))
    cell.step(vote_request(3, 1, 5))
    cell.members[1].sync(1)
    assert cell.take() == [vote(1, 2, 5)]
    cell.members[1].sync(1)
    assert cell.take() == [vote(1, 3, 5, granted=False)]


def test_d1_votes_are_asked_for_only_when_the_own_one_is_durable() -> None:
    cell = Cell()
    cell.members[1].syncs = False
    candidate(cell)
    assert cell.take() == []
    cell.members[1].sync()
    assert [type(message) for message in cell.take()] == [VoteRequest, VoteRequest]


def test_d1_the_own_vote_counts_only_when_it_is_durable() -> None:
    cell = Cell([1])
    cell.members[1].syncs = False
    cell.do(1, lambda node: node.campaign())
    assert cell[1].role is Role.CANDIDATE
    cell.members[1].sync()
    assert cell[1].role is Role.LEADER


def test_l1_who_cannot_store_its_vote_stays_in_its_term_and_follows_who_leads_there() -> None:
    cell = Cell()
    cell.members[1].syncs = False
    candidate(cell)
    cell.tick(1, 10 * Options().election_ticks)
    assert (cell[1].role, cell[1].term) == (Role.CANDIDATE, 1)
    cell.step(Heartbeat(2, 1, 1, 0, 0))
    assert (cell[1].role, cell[1].leader) == (Role.FOLLOWER, 2)


def test_l1_a_candidate_waits_an_election_from_when_it_asked() -> None:
    cell = Cell()
    cell.members[1].syncs = False
    candidate(cell)
    cell.tick(1, 10 * Options().election_ticks)
    cell.members[1].sync()
    cell.tick(1)
    assert (cell[1].role, cell[1].term) == (Role.CANDIDATE, 1)
    cell.settle()
    assert cell[1].role is Role.LEADER


def test_s10_b11_a_second_answer_of_a_voter_does_not_count() -> None:
    cell = Cell([1, 2, 3, 4, 5])
    candidate(cell)
    cell.take()
    cell.step(vote(2, 1, 1))
    cell.step(vote(2, 1, 1))
    assert cell[1].role is Role.CANDIDATE
    cell.step(vote(3, 1, 1))
    assert cell[1].role is Role.LEADER


def test_s10_the_first_answer_of_a_voter_counts() -> None:
    cell = Cell()
    candidate(cell)
    cell.step(vote(2, 1, 1, granted=False))
    cell.step(vote(2, 1, 1))
    assert cell[1].role is Role.CANDIDATE


def test_s10_a_stranger_does_not_count() -> None:
    cell = Cell()
    candidate(cell)
    cell.step(vote(8, 1, 1))
    assert cell[1].role is Role.CANDIDATE


def test_s9_b10_a_vote_of_an_older_term_does_not_count() -> None:
    cell = Cell()
    candidate(cell)
    cell.do(1, lambda node: node.campaign())
    cell.settle(lambda message: getattr(message, "pre_vote", False))
    assert cell[1].term == 2
    cell.take()
    cell.step(vote(2, 1, 1))
    assert cell[1].role is Role.CANDIDATE
    cell.step(vote(2, 1, 1, granted=False))
    cell.step(vote(3, 1, 1, granted=False))
    assert cell[1].role is Role.CANDIDATE, "nor does a refusal"


def test_s9_a_pre_vote_is_no_vote() -> None:
    cell = Cell()
    candidate(cell)
    cell.take()
    cell.step(vote(2, 1, 1, pre_vote=True))
    assert cell[1].role is Role.CANDIDATE
    for voter in (2, 3):
        cell.step(vote(voter, 1, 1, granted=False, pre_vote=True))
    assert cell[1].role is Role.CANDIDATE


@pytest.mark.parametrize("term", [1, 3])
def test_s9_a_pre_vote_for_another_term_does_not_count(term: int) -> None:
    cell = Cell()
    from_term(cell, 1, 1)
    cell.do(1, lambda node: node.campaign())
    cell.step(vote(2, 1, term, pre_vote=True))
    assert cell[1].role is Role.PRE_CANDIDATE
    cell.step(vote(2, 1, 2, pre_vote=True))
    assert cell[1].role is Role.CANDIDATE


def test_s9_the_own_vote_of_a_lost_election_does_not_count() -> None:
    cell = Cell([1])
    cell.members[1].syncs = False
    cell.do(1, lambda node: node.campaign())
    cell.step(vote_request(2, 1, 7))
    cell.members[1].sync()
    assert (cell[1].role, cell[1].term) == (Role.FOLLOWER, 7)


def test_s4_no_vote_for_a_shorter_log() -> None:
    cell = Cell()
    from_term(cell, 1, 4, last_term=4)
    for last in ((1, 3), (0, 0), (9, 3)):
        cell.step(vote_request(2, 1, 5, last=last))
        assert [message.granted for message in cell.take() if isinstance(message, VoteResponse)] == [False]
    cell.step(vote_request(3, 1, 5, last=(1, 4)))
    assert cell.take() == [vote(1, 3, 5)]


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_s7_a_higher_term_makes_a_follower(role: Role) -> None:
    cell = Cell()
    if role is Role.PRE_CANDIDATE:
        cell.do(1, lambda node: node.campaign())
    elif role is Role.CANDIDATE:
        candidate(cell)
    assert cell[1].role is role
    cell.step(Heartbeat(2, 1, 9, 0, 0))
    assert (cell[1].role, cell[1].term, cell[1].leader) == (Role.FOLLOWER, 9, 2)


@pytest.mark.parametrize(
    "message",
    [
        AppendRequest(2, 1, 9, 0, 0, (), 0),
        AppendResponse(2, 1, 9, 0),
        AppendResponse(2, 1, 9, 0, rejected=True),
        Heartbeat(2, 1, 9, 0, 0),
        HeartbeatResponse(2, 1, 9, 0),
        vote(2, 1, 9, granted=False),
        vote(2, 1, 9, granted=False, pre_vote=True),
        InstallSnapshot(2, 1, 9, Snapshot(0, 0, Configuration())),
        TimeoutNow(2, 1, 9),
        ReadRequest(2, 1, 9, 1),
        ReadResponse(2, 1, 9, 1, 0, refused=True),
        vote_request(2, 1, 9, transfer=True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_b30_every_message_of_a_higher_term_ends_a_leadership(message: Message) -> None:
    cell = Cell()
    cell.elect(1)
    cell.step(message)
    assert (cell[1].role, cell[1].term) == (Role.FOLLOWER, 9)


@pytest.mark.parametrize("message", [vote_request(2, 1, 9, pre_vote=True), vote(2, 1, 9, pre_vote=True)])
def test_l2_a_pre_vote_ends_no_leadership(message: Message) -> None:
    cell = Cell()
    cell.elect(1)
    cell.step(message)
    assert (cell[1].role, cell[1].term) == (Role.LEADER, 1)


def test_a_candidate_that_most_refuse_follows() -> None:
    cell = Cell()
    candidate(cell)
    cell.step(vote(2, 1, 1, granted=False))
    assert cell[1].role is Role.CANDIDATE
    cell.step(vote(3, 1, 1, granted=False))
    assert cell[1].role is Role.FOLLOWER


def test_a_candidate_follows_the_leader_of_its_term() -> None:
    cell = Cell()
    candidate(cell)
    cell.step(AppendRequest(2, 1, 1, 0, 0, (), 0))
    assert (cell[1].role, cell[1].leader) == (Role.FOLLOWER, 2)


def test_s1_two_leaders_of_one_term_are_noticed() -> None:
    cell = Cell()
    cell.elect(1)
    with pytest.raises(InvariantBroken, match="1 and 2 both lead term 1"):
        cell.step(Heartbeat(2, 1, 1, 0, 0))
    with pytest.raises(InvariantBroken, match="1 and 2 both lead term 1"):
        cell.step(Heartbeat(2, 3, 1, 0, 0))


def test_l1_members_campaign_at_random_times() -> None:
    for number in (0, 4, 9):
        cell = Cell()
        cell.members[1].random_number = number
        cell.members[1].restart()
        cell.tick(1, 9 + number)
        assert cell[1].role is Role.FOLLOWER
        cell.tick(1)
        assert cell[1].role is Role.PRE_CANDIDATE


def test_l1_a_split_vote_is_resolved() -> None:
    cell = Cell([1, 2])
    cell.do(1, lambda node: node.campaign())
    cell.do(2, lambda node: node.campaign())
    cell.settle(lambda message: getattr(message, "pre_vote", False))
    assert set(roles(cell).values()) == {Role.CANDIDATE}
    cell.settle()
    assert set(roles(cell).values()) == {Role.FOLLOWER}
    cell.tick(1, 10)
    cell.settle()
    assert cell[1].role is Role.LEADER


def test_l1_an_election_comes_after_the_last_one_failed() -> None:
    cell = Cell()
    candidate(cell)
    cell.take()
    cell.tick(1, 10)
    assert cell[1].role is Role.PRE_CANDIDATE


def test_l2_a_member_that_was_away_does_not_disturb_the_leader() -> None:
    cell = Cell()
    cell.elect(1)
    for _ in range(5):
        cell.tick(3, 20)
        cell.take(lambda message: 3 in (message.sender, message.to))
    assert cell[3].term == 1, "it did not stand, as nobody answered"
    cell.tick(3, 20)
    cell.settle()
    assert (cell[1].role, cell[1].term) == (Role.LEADER, 1)
    cell.tick(1)
    cell.settle()
    assert cell[3].leader == 1


def test_l2_a_leader_that_is_heard_is_defended() -> None:
    cell = Cell()
    cell.elect(1)
    cell.step(vote_request(3, 2, 9, last=(9, 9)))
    assert cell[2].term == 1
    assert cell.take() == []
    cell.tick(2, 9)
    cell.step(vote_request(3, 2, 9, last=(9, 9)))
    assert cell.take() == []
    cell.tick(2)
    cell.take()
    cell.step(vote_request(3, 2, 9, last=(9, 9)))
    assert cell.take() == [VoteResponse(2, 3, 9, False, True, 1, 1)]


def test_l2_a_leader_that_is_forgotten_is_not_defended() -> None:
    cell = Cell()
    cell.elect(1)
    cell.do(2, lambda node: node.forget_leader())
    cell.step(vote_request(3, 2, 2, pre_vote=True, last=(1, 1)))
    assert [message.granted for message in cell.take() if isinstance(message, VoteResponse)] == [True]


def test_l2_a_pre_vote_changes_nothing_at_the_one_asked() -> None:
    cell = Cell()
    cell.step(vote_request(3, 1, 9, pre_vote=True))
    assert (cell[1].term, cell[1].leader) == (0, NOBODY)
    assert cell.members[1].hard_state == HardState()
    assert cell.take() == [vote(1, 3, 9, pre_vote=True)]


def test_l3_a_leader_without_a_quorum_steps_down() -> None:
    cell = Cell()
    cell.elect(1)
    cell.tick(1, 10)  # the first one looks back at the election
    cell.take()
    cell.tick(1, 9)
    assert cell[1].role is Role.LEADER
    cell.tick(1)
    assert (cell[1].role, cell[1].leader, cell[1].term) == (Role.FOLLOWER, NOBODY, 1)


def test_l3_a_leader_with_a_quorum_goes_on() -> None:
    cell = Cell()
    cell.elect(1)
    for _ in range(50):
        cell.tick(1)
        cell.settle(lambda message: 3 not in (message.sender, message.to))
    assert cell[1].role is Role.LEADER


@pytest.mark.parametrize("message", [Heartbeat(1, 3, 1, 0, 0), AppendRequest(1, 3, 1, 0, 0, (), 0)])
def test_l4_b22_a_member_stuck_in_a_higher_term_is_freed(message: Message) -> None:
    """Its requests are refused as the leader is heard; so it tells the leader of its term."""
    cell = Cell()
    cell.elect(1)
    from_term(cell, 3, 7)
    cell.step(message)
    answers = cell.take()
    assert answers == [AppendResponse(3, 1, 7, 0)]
    cell.step(answers[0])
    assert (cell[1].role, cell[1].term) == (Role.FOLLOWER, 7)
    cell.tick(1, 10)
    cell.settle()
    assert (cell[1].role, cell[1].term) == (Role.LEADER, 8)
    assert cell[3].leader == 1


def test_l4_a_stale_pre_vote_is_refused_aloud() -> None:
    """Or its asker, which the quorum may need, would never hear of the newer term."""
    cell = Cell()
    from_term(cell, 1, 7)
    cell.step(vote_request(2, 1, 3, pre_vote=True))
    assert cell.take() == [vote(1, 2, 7, granted=False, pre_vote=True)]
    cell.do(2, lambda node: node.campaign())
    cell.settle(lambda message: 3 not in (message.sender, message.to))
    assert cell[2].term == 7


def test_l4_other_stale_messages_are_not_answered() -> None:
    cell = Cell()
    from_term(cell, 1, 7)
    cell.step(vote_request(2, 1, 3))
    cell.step(HeartbeatResponse(2, 1, 3, 0))
    assert cell.take() == []


def test_l4_b22_a_member_of_higher_term_and_shorter_log_does_not_block() -> None:
    cell = Cell()
    from_term(cell, 1, 5, last_term=5)
    from_term(cell, 2, 5, last_term=5)
    from_term(cell, 3, 9)
    for _ in range(4):
        for member in (1, 2, 3):
            cell.tick(member, 10)
            cell.settle(lambda message: 2 not in (message.sender, message.to))
    assert cell[1].role is Role.LEADER


@pytest.mark.parametrize("centre", [1, 2])
def test_l5_a_star_has_a_stable_leader(centre: int) -> None:
    """Links between the other members are down: the shape of Cloudflare's outage of 2020."""
    cell = Cell([1, 2, 3])
    for member in cell.members.values():
        member.random_number = member.id
        member.restart()
    terms = set()
    for round_ in range(80):
        for member in cell.members:
            cell.tick(member)
        cell.settle(lambda message: centre in (message.sender, message.to))
        cell.take()
        if round_ > 50:
            terms.add(max(member.node.term for member in cell.members.values()))
    assert cell.leader is not None
    assert len(terms) == 1


def test_m13_l17_a_learner_never_campaigns_but_votes() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.do(3, lambda node: node.campaign())
    cell.tick(3, 50)
    assert cell[3].role is Role.FOLLOWER
    assert cell.take() == []
    cell.step(vote_request(1, 3, 2))
    assert cell.take() == [vote(3, 1, 2)]


def test_l17_a_learner_does_not_defend_a_leader_that_is_silent() -> None:
    cell = Cell([1, 2], learners=[3])
    cell.elect(1)
    cell.tick(3, 33)
    cell.step(vote_request(2, 3, 2, last=(1, 1)))
    assert [message.granted for message in cell.take() if isinstance(message, VoteResponse)] == [True]


def test_a_message_for_another_member_is_nothing() -> None:
    cell = Cell()
    cell[1].step(Heartbeat(2, 3, 9, 0, 0))
    assert cell[1].term == 0


def test_b34_heartbeats_have_to_be_faster_than_elections() -> None:
    with pytest.raises(ValueError, match="heartbeats every 6 ticks"):
        Options(election_ticks=10, heartbeat_ticks=6)
    with pytest.raises(ValueError, match="reads is 0"):
        Options(reads=0)


def test_a_stored_log_ahead_of_the_stored_term_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="the log ends in term 4, the member is in term 3"):
        from_term(Cell(), 1, 3, last_term=4)


def test_who_leads_does_not_campaign_and_does_not_forget() -> None:
    cell = Cell()
    cell.elect(1)
    cell.do(1, lambda node: node.forget_leader())
    cell.do(1, lambda node: node.campaign())
    assert (cell[1].role, cell[1].term) == (Role.LEADER, 1)
    cell.take(everything)
