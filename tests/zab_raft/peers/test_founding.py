"""Who founds a cell, and who joins one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from znoded.jute.primitives import JuteError
from znoded.zab_raft.peers.founding import (
    Answer,
    Blank,
    Denied,
    Found,
    Join,
    Table,
    Wait,
    Welcome,
    decide,
    decode_answer,
    encode_answer,
)

SAME = Blank(b"digest")
TABLE = Table(b"digest", frozenset({1, 2, 3}), {number: f"host{number}:2888" for number in (1, 2, 3, 4)})
WELCOME = Welcome(bytes(range(16)), 3, True, b"roster", {1: (1, "a:1"), 3: (3, "b:2")}, 3)
LATER = WELCOME._replace(raft_id=4, founding=False)


@pytest.mark.parametrize(
    ("number", "answers", "decision"),
    [
        (1, {2: SAME, 3: SAME}, Found()),
        (1, {2: SAME, 3: SAME, 4: SAME}, Found()),
        (1, {}, Wait("member 2, member 3 did not answer: all voters have to be there once, to found the cell")),
        (1, {2: SAME, 4: SAME}, Wait("member 3 did not answer: all voters have to be there once, to found the cell")),
        (2, {1: SAME, 3: SAME}, Wait("member 1 has not founded the cell yet")),
        (2, {3: SAME}, Wait("member 1 has not founded the cell yet")),
        (
            1,
            {2: SAME, 3: Blank(b"another")},
            Wait("the table of members in the configuration of member 3 differs from this member's"),
        ),
        (3, {1: WELCOME}, Join(WELCOME)),
        (1, {2: SAME, 3: WELCOME}, Join(WELCOME)),
        (3, {1: WELCOME, 2: Denied(3, "you were wiped")}, Wait("member 2 says: you were wiped")),
        (3, {1: LATER, 2: Denied(3, "you were wiped")}, Join(LATER)),
        (3, {1: LATER, 2: WELCOME}, Join(LATER)),
        (3, {1: LATER, 2: Denied(0, "you are not in the roster here yet")}, Join(LATER)),
        (3, {1: WELCOME, 2: Denied(0, "you were removed")}, Wait("member 2 says: you were removed")),
        (3, {1: SAME, 2: Denied(0, "you are not in the roster")}, Wait("member 2 says: you are not in the roster")),
    ],
)
def test_what_the_answers_mean(number: int, answers: dict[int, Answer], decision: object) -> None:
    assert decide(number, TABLE, answers) == decision


def test_a_cell_of_one_founds_itself() -> None:
    assert decide(5, Table(b"", frozenset({5}), {5: "a:1"}), {}) == Found()


def test_two_cells_are_not_joined() -> None:
    decision = decide(3, TABLE, {1: WELCOME, 2: WELCOME._replace(cell=bytes(16))})
    assert isinstance(decision, Wait)
    assert "the members are not of one cell: member 1 is of 0001" in decision.why


@given(st.data())
def test_no_two_members_found_a_cell(data: st.DataObject) -> None:
    """All ask at the same time, and each hears some of the others."""
    founders = []
    for number in TABLE.voters:
        heard = data.draw(st.sets(st.sampled_from(sorted(TABLE.addresses.keys() - {number}))))
        if decide(number, TABLE, dict.fromkeys(heard, SAME)) == Found():
            founders.append(number)
    assert founders in ([], [1])


ADDRESSES = st.text(max_size=20)
ANSWERS = st.one_of(
    st.builds(Blank, st.binary(max_size=32)),
    st.builds(Denied, st.integers(0, 2**40), st.text(max_size=40)),
    st.builds(
        Welcome,
        st.binary(min_size=16, max_size=16),
        st.integers(0, 2**40),
        st.booleans(),
        st.binary(max_size=40),
        st.dictionaries(st.integers(0, 2**40), st.tuples(st.integers(0, 254), ADDRESSES), max_size=5),
        st.integers(0, 2**40),
    ),
)


@given(ANSWERS)
def test_an_answer_comes_back_as_it_was(answer: Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer


@given(ANSWERS, st.data())
def test_damaged_answers_raise_nothing_but_jute_errors(answer: Answer, data: st.DataObject) -> None:
    payload = bytearray(encode_answer(answer))
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_answer(bytes(payload[: data.draw(st.integers(0, len(payload)))]))
    except JuteError:
        pass


def test_an_address_without_end_is_refused() -> None:
    with pytest.raises(JuteError, match="an address of 301 bytes"):
        decode_answer(encode_answer(WELCOME._replace(members={1: (1, "x" * 301)})))


def test_a_count_that_cannot_be_is_refused_before_anything_is_allocated() -> None:
    payload = bytearray(encode_answer(WELCOME._replace(members={})))
    payload[-10:-6] = b"\xff\xff\xff\xff"
    with pytest.raises(JuteError, match="4294967295 members in 6 bytes"):
        decode_answer(bytes(payload))
