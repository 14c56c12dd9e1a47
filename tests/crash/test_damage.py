"""Bits that flip on the disk: what was durable is refused with file and offset, never silently dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.zab_raft.members import JournalMember, commands_in
from znoded.zab_raft.errors import CheckpointDamaged, LogDamaged
from znoded.zab_raft.recovery import Recovery
from znoded.zab_raft.segment import SegmentReader

COMMANDS = [b"%02d" % number * (number % 7 + 1) for number in range(14)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a member that was killed: several segments, nothing in the checkpoint."""
    root = tmp_path_factory.mktemp("damage")
    member = JournalMember(root / "data", segment_bytes=512).start()
    for command in COMMANDS:
        member.write(command)
    shutil.copytree(root / "data", root / "killed")
    member.stop()
    return root / "killed"


@pytest.fixture
def data_dir(killed: Path, quick_path: Path) -> Path:
    shutil.copytree(killed, quick_path / "data")
    return quick_path / "data"


def segments(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "log").glob("*.log"))


def read(data_dir: Path) -> list[bytes]:
    return [command for _first, commands in Recovery(str(data_dir / "log"), 0, 0).records() for command in commands]


def test_member_starts_on_the_undamaged_directory(data_dir: Path) -> None:
    assert len(segments(data_dir)) > 2
    assert commands_in(data_dir) == COMMANDS


def test_any_flipped_bit_before_the_last_record_is_refused_with_file_and_offset(data_dir: Path) -> None:
    *full, last = segments(data_dir)
    for path in [*full, last]:
        records = list(SegmentReader(str(path)).records())
        durable_end = records[-1].end if path in full else records[-2].end
        whole = path.read_bytes()
        for offset in range(durable_end):
            path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1 << offset % 8]) + whole[offset + 1 :])
            padding = read_or_refusal(data_dir, path)
            # Only what carries nothing may flip unseen, and then nothing is lost.
            assert padding is None or padding == COMMANDS
        path.write_bytes(whole)


def read_or_refusal(data_dir: Path, path: Path) -> list[bytes] | None:
    try:
        return read(data_dir)
    except LogDamaged as refusal:
        message = str(refusal)
    assert str(path) in message
    assert "offset" in message or "what lies between is lost" in message
    return None


def test_refused_member_changes_nothing_and_frees_the_directory(data_dir: Path) -> None:
    path = segments(data_dir)[1]
    content = bytearray(path.read_bytes())
    content[100] ^= 16
    path.write_bytes(content)
    before = {each: each.read_bytes() for each in segments(data_dir)}
    for _ in range(2):
        with pytest.raises(LogDamaged, match=rf"{path} is damaged at offset 72"):
            JournalMember(data_dir, segment_bytes=512).start()
    assert {each: each.read_bytes() for each in segments(data_dir)} == before


def test_damaged_last_record_is_taken_for_a_torn_one(data_dir: Path) -> None:
    # It cannot be told from a write that a power cut interrupted, which was never acknowledged.
    path = segments(data_dir)[-1]
    last = list(SegmentReader(str(path)).records())[-1]
    content = bytearray(path.read_bytes())
    content[last.offset + 60] ^= 1
    path.write_bytes(content)
    assert commands_in(data_dir) == COMMANDS[:-1]


def test_what_a_restart_repeated_is_refused_when_damaged_even_at_its_end(data_dir: Path) -> None:
    JournalMember(data_dir).start()  # never stopped, as after a kill
    copy = data_dir.with_name("copy")
    shutil.copytree(data_dir, copy)
    (path,) = segments(copy)
    content = bytearray(path.read_bytes())
    last = list(SegmentReader(str(path)).records())[-1]
    content[last.offset + 60] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDamaged, match=rf"{path} is damaged at offset {last.offset}"):
        JournalMember(copy).start()


def test_command_that_flipped_in_the_checkpoint_is_refused_and_named(data_dir: Path) -> None:
    assert commands_in(data_dir) == COMMANDS  # and stops with a checkpoint
    path = data_dir / "state" / "data.mdb"
    content = bytearray(path.read_bytes())
    content[content.rindex(COMMANDS[-1])] ^= 4
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(CheckpointDamaged, match=rf"{path} is damaged, table .* restore the data directory"):
            JournalMember(data_dir).start()
