"""The roster: whose raft id is whose, over all changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zab_raft.cell.test_server_lines import members
from znoded.jute.primitives import JuteError
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import BadServers, Member, Role
from znoded.zab_raft.core.configuration import Configuration


def member(number: int, role: Role = Role.VOTER, host: str = "") -> Member:
    host = host or f"host{number}"
    return Member(number, f"{host}:2888", f"{host}:2181", role)


THREE = Roster.founding([member(3), member(1), member(2)])


def raft_ids(roster: Roster) -> dict[int, int]:
    """Number -> raft id."""
    return {member.number: raft_id for raft_id, member in roster.members.items()}


def test_founding_members_have_their_numbers_as_raft_ids() -> None:
    roster = Roster.founding([member(5), member(2, Role.LEARNER)])
    assert raft_ids(roster) == {5: 5, 2: 2}
    assert roster.configuration == Configuration.of([5], [2])
    assert roster.voters == {5}


def test_every_later_member_has_an_id_above_all_that_were() -> None:
    roster = THREE.joined_by([member(5), member(4)], [], highest_id=7)
    assert raft_ids(roster) == {1: 1, 2: 2, 3: 3, 4: 8, 5: 9}


def test_a_number_that_comes_back_has_a_new_id() -> None:
    without = THREE.joined_by([], [2], highest_id=3)
    assert raft_ids(without) == {1: 1, 3: 3}
    assert raft_ids(without.joined_by([member(2)], [], highest_id=3)) == {1: 1, 3: 3, 2: 4}


def test_a_member_replaced_in_one_request_has_a_new_id() -> None:
    assert raft_ids(THREE.joined_by([member(2)], [2], highest_id=3)) == {1: 1, 3: 3, 2: 4}


def test_a_member_with_another_role_or_address_keeps_its_id() -> None:
    roster = THREE.joined_by([member(2, Role.LEARNER, host="elsewhere")], [], highest_id=3)
    assert raft_ids(roster) == {1: 1, 2: 2, 3: 3}
    assert roster.members[2] == member(2, Role.LEARNER, host="elsewhere")
    assert roster.voters == {1, 3}


def test_the_last_of_a_number_that_joins_twice_counts() -> None:
    roster = THREE.joined_by([member(4, host="a"), member(4, host="b")], [], highest_id=3)
    assert roster.members[4].peer == "b:2888"


def test_who_is_not_there_leaves_without_a_trace() -> None:
    assert THREE.joined_by([], [9], highest_id=3) == THREE


def test_a_whole_list_takes_the_place_of_all() -> None:
    roster = THREE.after([member(1), member(7)], highest_id=3)
    assert raft_ids(roster) == {1: 1, 7: 4}
    assert roster.former == {2: member(2), 3: member(3)}


def test_the_former_ones_are_known_until_the_next_change() -> None:
    roster = THREE.joined_by([], [2], highest_id=3)
    assert roster.addresses == {1: (1, "host1:2888"), 3: (3, "host3:2888"), 2: (2, "host2:2888")}
    assert roster.joined_by([], [], highest_id=3).addresses.keys() == {1, 3}


def test_members_are_found_by_number_and_by_id() -> None:
    roster = THREE.joined_by([member(2)], [2], highest_id=3)
    assert (roster.raft_id(2), roster.raft_id(9)) == (4, None)
    assert (roster.number(4), roster.number(2), roster.number(0)) == (2, 0, 0)


def test_the_text_is_sorted_by_number() -> None:
    roster = Roster.founding([member(10), member(9, Role.LEARNER)])
    assert roster.text == (
        "server.9=host9:2888:3888:observer;host9:2181\nserver.10=host10:2888:3888:participant;host10:2181\n"
    )


@pytest.mark.parametrize(
    "other",
    [
        Member(2, "HOST1:2888", "b:1"),
        Member(2, "b:1", "host1:2181"),
        Member(2, "host1:2181", "b:1"),
        Member(2, "host1:1", "0.0.0.0:2888"),
        Member(2, "b:1", "b:1"),
        Member(2, "[::1]:1", "[::]:1"),
        Member(1, "b:1", "b:2"),
    ],
)
def test_no_two_listeners_have_one_address_and_no_two_members_one_number(other: Member) -> None:
    with pytest.raises(BadServers):
        Roster.founding([member(1), other])


def test_two_members_on_two_hosts_may_take_clients_on_every_interface() -> None:
    Roster.founding([Member(1, "a:2888", "0.0.0.0:2181"), Member(2, "b:2888", "0.0.0.0:2181"), Member(3, "c:2888", "")])


rosters = st.builds(
    Roster,
    st.dictionaries(st.integers(1, 2**40), members, max_size=5),
    st.dictionaries(st.integers(1, 2**40), members, max_size=2),
)


@given(rosters)
def test_a_roster_comes_back_from_its_bytes(roster: Roster) -> None:
    assert Roster.decode(roster.encode()) == roster


@given(rosters, st.data())
def test_other_bytes_are_refused(roster: Roster, data: st.DataObject) -> None:
    encoded = roster.encode()
    with pytest.raises(JuteError):
        Roster.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(JuteError):
        Roster.decode(encoded + b"\0")


def test_an_unknown_role_or_a_text_that_is_none_is_refused() -> None:
    encoded = Roster.founding([Member(1, "a:1", "")]).encode()
    role_at = len(encoded) - 4 - 8
    for damaged in (encoded[:role_at] + b"\0\0\0\7" + encoded[role_at + 4 :], encoded.replace(b"a:1", b"\xff:1")):
        with pytest.raises(JuteError):
            Roster.decode(damaged)


@given(st.lists(st.tuples(st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6))), max_size=8))
def test_no_id_is_used_twice(changes: list[tuple[set[int], set[int]]]) -> None:
    roster, highest_id, owners = THREE, 3, {1: 1, 2: 2, 3: 3}
    for joining, leaving in changes:
        roster = roster.joined_by([member(number) for number in joining], leaving, highest_id)
        for raft_id, each in roster.members.items():
            assert owners.setdefault(raft_id, each.number) == each.number
        gone = owners.keys() - roster.members.keys()
        owners |= dict.fromkeys(gone, 0)  # whoever had it does not come back
        highest_id = max(highest_id, *roster.members, 0)
