"""The checkpoint's tables are what was stored in them, or they are refused."""

from __future__ import annotations

import os
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from znoded.zab_raft.checkpoint import DATA_FILE, Checkpoint
from znoded.zab_raft.errors import CheckpointDamaged
from znoded.zab_raft.position import POSITION_TABLE
from znoded.zab_raft.table_digests import DIGESTS_TABLE, DigestDiffers, checked, digest_of

keys = st.sampled_from([b"/a", b"/b", b"/c", b"/long" + b"k" * 600])
increments = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=8)), max_size=6)


def read(store: Checkpoint, table: bytes) -> dict[bytes, bytes]:
    with store.reading() as read_table:
        return dict(read_table(table))


@settings(max_examples=30, deadline=None)
@given(increments)
def test_digests_follow_every_increment(
    tmp_path_factory: pytest.TempPathFactory, made: list[dict[bytes, bytes | None]]
) -> None:
    path = str(tmp_path_factory.mktemp("state"))
    store = Checkpoint(path)
    expected: dict[bytes, bytes] = {}
    for index, changes in enumerate(made, 1):
        store.write({b"nodes": changes}, index, 1)
        expected.update({key: value for key, value in changes.items() if value is not None})
        expected = {key: value for key, value in expected.items() if changes.get(key, b"") is not None}
    store.close()
    store = Checkpoint(path)
    assert read(store, b"nodes") == expected
    store.close()


def test_every_flipped_bit_of_a_stored_value_is_refused_with_file_and_table(tmp_path: Path) -> None:
    values = {b"/%d" % number: os.urandom(40) for number in range(50)}
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": dict(values), b"meta": {b"zxid": b"7"}}, 1, 1)
    store.close()
    path = tmp_path / DATA_FILE
    whole = path.read_bytes()
    for value in values.values():
        damaged = bytearray(whole)
        damaged[whole.index(value) + 20] ^= 0x10
        path.write_bytes(damaged)
        store = Checkpoint(str(tmp_path))
        assert read(store, b"meta") == {b"zxid": b"7"}
        with pytest.raises(CheckpointDamaged, match=rf"{path} is damaged, table 'nodes'"):
            read(store, b"nodes")
        store.close()


def test_table_that_lost_all_its_items_is_refused() -> None:
    items = [(b"/a", b"1")]
    assert [item for chunk in checked(items, digest_of(items)) for item in chunk] == items
    with pytest.raises(DigestDiffers):
        list(checked([], digest_of(items)))


def test_few_items_are_not_shown_before_they_are_checked() -> None:
    seen: list[object] = []
    with pytest.raises(DigestDiffers):
        seen.extend(
            item for chunk in checked([(b"/a", b"1"), (b"/b", b"2")], digest_of([(b"/a", b"1")])) for item in chunk
        )
    assert seen == []


def test_many_items_are_checked_to_the_last() -> None:
    items = [(b"%d" % number, b"x") for number in range(5000)]
    assert [item for chunk in checked(items, digest_of(items)) for item in chunk] == items
    with pytest.raises(DigestDiffers):
        list(checked([*items[:-1], (b"4999", b"y")], digest_of(items)))


@pytest.mark.parametrize("table", [DIGESTS_TABLE, b"nodes", POSITION_TABLE])
def test_missing_table_is_refused(tmp_path: Path, table: bytes) -> None:
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": {b"/a": b"1"}}, 3, 1)
    store.close()
    with lmdb.open(str(tmp_path), max_dbs=8) as environment, environment.begin(write=True) as transaction:
        transaction.drop(environment.open_db(table, txn=transaction))
    with pytest.raises(CheckpointDamaged, match="is damaged, table"):
        read(Checkpoint(str(tmp_path)), b"nodes")
