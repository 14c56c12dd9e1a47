"""Whom a member accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from znoded.zab_raft.errors import DirectoryError
from znoded.zab_raft.files import Files
from znoded.zab_raft.peers.gate import Gate
from znoded.zab_raft.peers.handshake import Hello, Purpose
from znoded.zab_raft.peers.identity import NO_CELL, NO_RAFT_ID, Identity
from znoded.zab_raft.peers.incarnations import Incarnations

CELL = bytes(range(16))
OWN = Identity(CELL, 1, 1, b"1" * 16)
OTHER = Identity(CELL, 2, 2, b"2" * 16)
BLANK = Identity(NO_CELL, 2, NO_RAFT_ID, b"2" * 16)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    gate = Gate(OWN, "first:2888", b"", Incarnations(str(tmp_path)))
    gate.members = {1: (1, "first:2888"), 2: (2, "second:2888"), 5: (4, "fourth:2888")}
    gate.highest_id = 5
    return gate


def hello(identity: Identity, purpose: Purpose = Purpose.FRAMES, to: int = 1) -> Hello:
    return Hello(purpose, identity, to, "", bytes(32))


def test_a_member_is_accepted_on_either_side(gate: Gate) -> None:
    assert gate.why_not_dialler(hello(OTHER)) == ""
    assert gate.why_not_acceptor(OTHER, 2, 2) == ""


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(OTHER, cell=bytes(15) + b"1"), "is of cell"),
        (BLANK, "member 2 is not in a cell yet"),
        (replace(OTHER, raft_id=1), "has the raft id of member 1"),
        (replace(OTHER, raft_id=5), "raft id 5 belongs to member 4, not to member 2"),
        (replace(OTHER, number=3, raft_id=3), r"member 3 \(raft id 3\) was removed from the cell"),
    ],
)
def test_others_are_not(gate: Gate, other: Identity, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(gate.why_not_dialler(hello(other)))


def test_who_looks_for_another_member_is_told(gate: Gate) -> None:
    assert "it looks for member 3, this is member 1" in gate.why_not_dialler(hello(OTHER, to=3))


def test_who_is_not_whom_was_dialled_is_told(gate: Gate) -> None:
    assert "it is member 2, not member 3" in gate.why_not_acceptor(OTHER, 3, 3)
    assert "is not the one that was dialled, with raft id 9" in gate.why_not_acceptor(OTHER, 9, 2)


def test_an_id_that_is_not_known_yet_is_accepted(gate: Gate) -> None:
    assert gate.why_not_dialler(hello(replace(OTHER, number=7, raft_id=6))) == ""


def test_a_blank_member_may_ask(gate: Gate) -> None:
    assert gate.why_not_dialler(hello(BLANK, Purpose.ENTER)) == ""


def test_a_blank_member_accepts_no_frames(gate: Gate) -> None:
    gate.identity = Identity(NO_CELL, 1, NO_RAFT_ID, b"1" * 16)
    assert "member 1 is not in a cell yet" in gate.why_not_dialler(hello(OTHER))


def test_a_second_incarnation_of_an_id_is_refused(gate: Gate) -> None:
    assert gate.why_not_dialler(hello(OTHER)) == ""
    assert "it was lost or replaced; remove the member" in gate.why_not_dialler(
        hello(replace(OTHER, incarnation=b"x" * 16))
    )
    assert gate.why_not_dialler(hello(OTHER)) == ""


def test_what_was_refused_is_not_remembered(gate: Gate) -> None:
    gate.why_not_dialler(hello(replace(OTHER, cell=bytes(16), incarnation=b"x" * 16)))
    assert gate.why_not_dialler(hello(OTHER)) == ""


class FullDisk(Files):
    def replace(self, path: str, content: bytes) -> None:
        raise OSError("no space left")


def test_who_cannot_be_remembered_is_not_accepted(tmp_path: Path) -> None:
    gate = Gate(OWN, "", b"", Incarnations(str(tmp_path), FullDisk()))
    assert "cannot write down that it knows member 2" in gate.why_not_dialler(hello(OTHER))


def test_incarnations_outlive_the_process(tmp_path: Path) -> None:
    assert Incarnations(str(tmp_path)).is_known(2, b"2" * 16)
    again = Incarnations(str(tmp_path))
    assert again.is_known(2, b"2" * 16)
    assert not again.is_known(2, b"3" * 16)
    assert again.is_known(10, b"3" * 16)
    assert Incarnations(str(tmp_path)).is_known(10, b"3" * 16)


@pytest.mark.parametrize("place", [0, 20, 40, -3])
def test_a_damaged_file_is_refused(tmp_path: Path, place: int) -> None:
    Incarnations(str(tmp_path)).is_known(2, b"2" * 16)
    file = tmp_path / "peers"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(DirectoryError, match="is damaged"):
        Incarnations(str(tmp_path))
