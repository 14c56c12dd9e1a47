"""The checkpoint in LMDB: increments, whole or not at all, and copies of it."""

from __future__ import annotations

import os
import threading
import tracemalloc
from pathlib import Path

import lmdb
import pytest

from znoded.zab_raft import checkpoint as checkpoint_module
from znoded.zab_raft import increment as increment_module
from znoded.zab_raft.checkpoint import Checkpoint
from znoded.zab_raft.errors import CheckpointDamaged, CheckpointFailed
from znoded.zab_raft.files import Files
from znoded.zab_raft.increment import Changes, IncrementReader, Portion, portions, write_increment
from znoded.zab_raft.table_digests import DIGESTS_TABLE


def table(store: Checkpoint, name: bytes) -> dict[bytes, bytes]:
    with store.reading() as read:
        return dict(read(name))


@pytest.fixture
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a few changes be many transactions."""
    monkeypatch.setattr(increment_module, "PORTION_ITEMS", 2)
    monkeypatch.setattr(checkpoint_module, "TRANSACTION_ITEMS", 4)


def test_new_checkpoint_is_empty(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path))
    assert (store.index, store.term) == (0, 0)
    assert table(store, b"nodes") == {}


def test_changes_and_position_come_back_after_a_restart(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": {b"/b": b"2", b"/a": b"1", b"/c": b""}, b"meta": {b"zxid": b"7"}}, 7, 2)
    store.close()
    store = Checkpoint(str(tmp_path))
    assert (store.index, store.term) == (7, 2)
    assert table(store, b"nodes") == {b"/a": b"1", b"/b": b"2", b"/c": b""}
    assert table(store, b"meta") == {b"zxid": b"7"}


def test_later_increment_replaces_and_deletes(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": {b"/a": b"1", b"/b": b"2"}}, 2, 1)
    store.write({b"nodes": {b"/a": None, b"/b": b"3", b"/never": None}}, 5, 1)
    assert table(store, b"nodes") == {b"/b": b"3"}
    assert (store.index, store.term) == (5, 1)


@pytest.mark.parametrize("key_bytes", [499, 500, 501, 511, 512, 5000])
def test_keys_longer_than_lmdb_takes_are_kept(tmp_path: Path, key_bytes: int) -> None:
    store = Checkpoint(str(tmp_path))
    key = b"/" + b"k" * (key_bytes - 1)
    store.write({b"nodes": {key: b"1", key + b"x": b"2", b"/short": b"3"}}, 1, 1)
    store.write({b"nodes": {key: b"4", key + b"x": None}}, 2, 1)
    store.close()
    assert table(Checkpoint(str(tmp_path)), b"nodes") == {key: b"4", b"/short": b"3"}


def test_a_value_can_be_had_at_any_time(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path))
    assert store.get(b"nodes", b"/a") is None
    store.write({b"nodes": {b"/a": b"1"}}, 1, 1)
    assert store.get(b"nodes", b"/a") == b"1"
    assert store.get(b"nodes", b"/b") is None
    store.close()
    assert store.get(b"nodes", b"/a") is None
    store = Checkpoint(str(tmp_path))
    assert store.get(b"nodes", b"/a") == b"1"


def test_values_are_had_while_the_map_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "FIRST_MAP_BYTES", 1 << 16)
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": {b"/a": b"1"}}, 1, 1)
    found: list[bytes | None] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            found.append(store.get(b"nodes", b"/a"))

    reader = threading.Thread(target=look)
    reader.start()
    for index in range(2, 22):
        store.write({b"nodes": {b"%d/%d" % (index, number): bytes(1000) for number in range(100)}}, index, 1)
    is_over.set()
    reader.join()
    assert set(found) == {b"1"}


def test_map_grows_when_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "FIRST_MAP_BYTES", 1 << 16)
    store = Checkpoint(str(tmp_path))
    for index in range(1, 11):
        store.write({b"nodes": {b"%d/%d" % (index, number): bytes(1000) for number in range(100)}}, index, 1)
    store.close()
    assert len(table(Checkpoint(str(tmp_path)), b"nodes")) == 1000


@pytest.mark.usefixtures("small_transactions")
def test_increment_of_many_transactions_counts_as_one(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path))
    changes: Changes = {
        b"nodes": {b"/%d" % number: b"1" for number in range(50)},
        b"kinds": {b"/1": b"2", b"/2": None},
    }
    store.write(changes, 9, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "lock.mdb"]
    store.close()
    store = Checkpoint(str(tmp_path))
    assert (store.index, len(table(store, b"nodes")), table(store, b"kinds")) == (9, 50, {b"/1": b"2"})


@pytest.mark.usefixtures("small_transactions")
@pytest.mark.parametrize("commits", range(14))
def test_increment_that_was_cut_short_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": {b"/%02d" % number: b"1" for number in range(0, 50, 2)}}, 9, 1)
    commit = store._commit
    left = commits

    def failing_commit(group: list[Portion], index: int, term: int) -> None:
        nonlocal left
        if left == 0:
            raise lmdb.Error("mdb_txn_commit: Input/output error")
        left -= 1
        commit(group, index, term)

    monkeypatch.setattr(store, "_commit", failing_commit)
    changes = {b"nodes": {b"/%02d" % number: b"2" if number % 3 else None for number in range(50)}}
    with pytest.raises(CheckpointFailed, match="Input/output error"):
        store.write(changes, 30, 4)
    assert (store.index, store.term) == (9, 1)
    store = Checkpoint(str(tmp_path))
    assert (store.index, store.term) == (30, 4)
    assert table(store, b"nodes") == {b"/%02d" % number: b"2" for number in range(50) if number % 3}


@pytest.mark.usefixtures("small_transactions")
def test_increment_after_a_failed_one_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoint(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(store, "_apply_increment", lambda *_: store._environment.begin(write=True).put(b"", b""))
        with pytest.raises(CheckpointFailed):
            store.write({b"nodes": {b"/%d" % number: b"1" for number in range(50)}}, 5, 1)
    with pytest.raises(CheckpointFailed, match="waits for room to be completed"):
        store.backup(str(tmp_path / "backup"))
    # Smaller than one transaction, but the half-applied one is beneath it.
    store.write({b"nodes": {b"/1": b"2"}}, 6, 1)
    assert not (tmp_path / "increment").exists()
    assert (store.index, table(store, b"nodes")) == (6, {b"/1": b"2"})


@pytest.mark.usefixtures("small_transactions")
def test_damaged_increment_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_increment(Files(), str(tmp_path / "increment"), portions({b"nodes": {b"/a": b"1"}}), 1, 1)
    content = bytearray((tmp_path / "increment").read_bytes())
    content[-1] ^= 1
    (tmp_path / "increment").write_bytes(content)
    with pytest.raises(CheckpointDamaged, match="increment is not valid"):
        Checkpoint(str(tmp_path))


def test_increment_file_comes_back_as_it_was(tmp_path: Path) -> None:
    parts = [Portion(b"nodes", [(b"/a", b"1"), (b"/b", None), (b"/c", b"")], 5), Portion(b"kinds", [(b"/a", b"x")], 3)]
    write_increment(Files(), str(tmp_path / "increment"), parts, 12, 3)
    reader = IncrementReader(str(tmp_path / "increment"))
    assert (reader.index, reader.term) == (12, 3)
    assert [(portion.table, portion.items) for portion in reader.portions()] == [
        (part.table, part.items) for part in parts
    ]


def test_portions_are_sorted_and_small() -> None:
    items = [(b"%06d" % (number * 7919 % 5000), bytes(100)) for number in range(5000)]
    parts = list(portions({b"nodes": dict(items)}))
    assert [item for part in parts for item in part.items] == sorted(items)
    assert max(len(part.items) for part in parts) == increment_module.PORTION_ITEMS
    big = list(portions({b"nodes": {b"%d" % number: bytes(1 << 20) for number in range(5)}}))
    assert [len(part.items) for part in big] == [1] * 5


def test_an_increment_takes_little_memory_beside_what_changed(tmp_path: Path) -> None:
    changes: Changes = {b"nodes": {b"/%d" % number: b"" for number in range(50_000)}}
    store = Checkpoint(str(tmp_path))
    tracemalloc.start()
    try:
        store.write(changes, 1, 1)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes / 50_000 < 40, "an item alone takes 56 bytes"


# ---- loose tables


LOOSE = b"blocks"


def loose(path: Path) -> Checkpoint:
    return Checkpoint(str(path), loose_tables=[LOOSE])


def blocks(*numbers: int) -> dict[bytes, bytes | None]:
    return {b"%03d" % number: b"block %d" % number for number in numbers}


def test_loose_items_are_stored_and_deleted_with_the_others(tmp_path: Path) -> None:
    store = loose(tmp_path)
    store.write({LOOSE: blocks(1, 2, 3), b"nodes": {b"/a": b"1"}}, 5, 1)
    store.write({LOOSE: {**blocks(4), b"001": None, b"009": None}}, 6, 1)
    store.close()
    store = loose(tmp_path)
    assert table(store, b"nodes") == {b"/a": b"1"}
    assert [store.get(LOOSE, b"%03d" % number) for number in range(1, 5)] == [None, b"block 2", b"block 3", b"block 4"]
    assert store.source().read(checkpoint_module._AHEAD) == []


def test_loose_items_are_written_once_however_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = loose(tmp_path)
    monkeypatch.setattr(checkpoint_module, "TRANSACTION_BYTES", 4096)
    monkeypatch.setattr(checkpoint_module, "write_increment", None)  # nobody calls it
    store.write({LOOSE: {b"%03d" % number: bytes(1000) for number in range(50)}, b"nodes": {b"/a": b"1"}}, 5, 1)
    assert store.get(LOOSE, b"049") == bytes(1000)


@pytest.mark.usefixtures("small_transactions")
@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("commits", range(12))
def test_loose_items_of_an_increment_that_was_cut_short_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, is_reopened: bool
) -> None:
    store = loose(tmp_path)
    store.write({LOOSE: blocks(0, 1), b"nodes": {b"/a": b"1"}}, 5, 1)
    commit = store._commit
    left = commits

    def failing_commit(group: list[Portion], index: int, term: int) -> None:
        nonlocal left
        if left == 0:
            raise lmdb.Error("mdb_txn_commit: Input/output error")
        left -= 1
        commit(group, index, term)

    changes: Changes = {
        LOOSE: {**blocks(*range(2, 20)), b"000": None},
        b"nodes": {b"/%02d" % number: b"2" for number in range(10)},
    }
    with monkeypatch.context() as patch:
        patch.setattr(store, "_commit", failing_commit)
        with pytest.raises(CheckpointFailed, match="Input/output error"):
            store.write(changes, 30, 4)
    # The history is cut into other blocks when it is made anew from the log.
    again: Changes = {LOOSE: {b"002": b"another", b"0025": b"one more", b"000": None}, b"nodes": {b"/a": b"3"}}
    kept: dict[bytes, bytes | None] = {}
    if is_reopened:
        store.close()
        store = loose(tmp_path)
        if store.index == 30:
            kept = blocks(*range(3, 20))
    else:  # the next call has to hold these changes too; some of them are taken back by now
        dropped = dict.fromkeys(blocks(*range(3, 20)))
        again = {LOOSE: {**dropped, **again[LOOSE]}, b"nodes": {**changes[b"nodes"], **again[b"nodes"]}}
    store.write(again, 31, 4)
    found = dict(store.source().read(LOOSE))
    assert found == blocks(1) | kept | {b"002": b"another", b"0025": b"one more"}
    assert store.source().read(checkpoint_module._AHEAD) == []
    assert table(store, b"nodes")[b"/a"] == b"3"
    store.close()


def test_failure_of_lmdb_leaves_the_last_increment_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoint(str(tmp_path))
    store.write({b"nodes": {b"/a": b"1"}}, 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "_put", lambda transaction, table, items: transaction.put(b"", b""))
        with pytest.raises(CheckpointFailed, match=str(tmp_path)):
            store.write({b"nodes": {b"/a": b"2"}}, 2, 1)
    assert store.index == 1
    store.write({b"nodes": {b"/a": b"2"}}, 2, 1)
    assert table(store, b"nodes") == {b"/a": b"2"}


def test_foreign_file_in_place_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no lmdb" * 1000)
    with pytest.raises(CheckpointFailed, match="cannot be opened"):
        Checkpoint(str(tmp_path))


def test_backup_is_a_checkpoint(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path / "state"))
    store.write({b"nodes": {b"/a": b"1"}}, 4, 2)
    store.backup(str(tmp_path / "backup"))
    store.write({b"nodes": {b"/a": b"2"}}, 5, 2)
    copy = Checkpoint(str(tmp_path / "backup"))
    assert (copy.index, table(copy, b"nodes")) == (4, {b"/a": b"1"})


def test_backup_of_one_that_cannot_be_opened_fails_like_a_write(tmp_path: Path) -> None:
    store = Checkpoint(str(tmp_path / "state"))
    store._close()  # as after a write that failed
    (tmp_path / "state" / "data.mdb").unlink()
    (tmp_path / "state" / "data.mdb").mkdir()
    with pytest.raises(CheckpointFailed):
        store.backup(str(tmp_path / "backup"))


def test_backup_is_durable_and_for_nobody_else_to_read(tmp_path: Path) -> None:
    synced: list[str] = []

    class NotingFiles(Files):
        def sync(self, descriptor: int) -> None:
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
            super().sync(descriptor)

        def sync_directory(self, path: str) -> None:
            synced.append(os.path.basename(path))
            super().sync_directory(path)

    store = Checkpoint(str(tmp_path / "state"), NotingFiles())
    store.write({b"nodes": {b"/a": b"1"}}, 4, 2)
    synced.clear()
    store.backup(str(tmp_path / "backup"))
    assert synced == ["data.mdb", "backup"]
    assert (tmp_path / "backup" / "data.mdb").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("size_bytes", [0, 5, 31])
def test_increment_that_is_too_short_is_damage(tmp_path: Path, size_bytes: int) -> None:
    Checkpoint(str(tmp_path)).close()
    (tmp_path / "increment").write_bytes(b"z" * size_bytes)
    with pytest.raises(CheckpointDamaged, match="increment is not valid"):
        Checkpoint(str(tmp_path))


def test_increment_that_a_crash_left_unfinished_is_removed(tmp_path: Path) -> None:
    (tmp_path / "increment.new").write_bytes(b"much")
    Checkpoint(str(tmp_path)).close()
    assert not (tmp_path / "increment.new").exists()


def filled(path: Path, index: int = 7) -> Checkpoint:
    path.mkdir(exist_ok=True)
    checkpoint = Checkpoint(str(path))
    checkpoint.write({b"nodes": {b"%03d" % number: b"%d" % index for number in range(10)}}, index, 3)
    return checkpoint


def test_source_shows_one_moment_in_portions(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path / "state")
    source = checkpoint.source()
    checkpoint.write({b"nodes": {b"000": b"new", b"001": None}, b"other": {b"a": b"b"}}, 8, 3)
    assert (source.index, source.term) == (7, 3)
    assert source.tables() == [DIGESTS_TABLE, b"nodes", b"position"]
    first = source.items(b"nodes", b"", 4)
    rest = source.items(b"nodes", first[-1][0], 100)
    assert first + rest == source.read(b"nodes") == [(b"%03d" % number, b"7") for number in range(10)]
    assert source.items(b"nodes", b"009", 1) == source.items(b"no such table", b"", 1) == []
    assert source.items(b"nodes", b"0035", 1) == [(b"004", b"7")]
    source.close()
    checkpoint.close()


def test_source_ends_when_the_map_has_to_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "FIRST_MAP_BYTES", 1 << 18)
    checkpoint = filled(tmp_path / "state")
    source = checkpoint.source()
    first = source.items(b"nodes", b"", 4)
    checkpoint.write({b"other": {b"%05d" % number: bytes(500) for number in range(3_000)}}, 8, 3)
    assert len(first) == 4
    with pytest.raises(CheckpointFailed, match="or grew, while it was read"):
        source.items(b"nodes", first[-1][0], 100)
    assert checkpoint.source().items(b"nodes", first[-1][0], 100)[0][0] == b"004"
    checkpoint.close()


def test_source_ends_with_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path / "state")
    source = checkpoint.source()
    checkpoint.close()
    with pytest.raises(CheckpointFailed, match="was closed, or grew"):
        source.items(b"nodes", b"", 1)
    source.close()


def test_installed_checkpoint_takes_the_place_of_this_one(tmp_path: Path) -> None:
    other = filled(tmp_path / "other", index=9)
    other.close()
    checkpoint = filled(tmp_path / "state")
    source = checkpoint.source()
    checkpoint.install(str(tmp_path / "other"))
    with pytest.raises(CheckpointFailed):
        source.tables()
    checkpoint.write({b"nodes": {b"000": b"new"}}, 10, 4)
    checkpoint.close()
    checkpoint = Checkpoint(str(tmp_path / "state"))
    assert (checkpoint.index, checkpoint.term) == (10, 4)
    with checkpoint.reading() as read:
        assert dict(read(b"nodes")) == {b"%03d" % number: b"9" for number in range(1, 10)} | {b"000": b"new"}
    checkpoint.close()


def test_install_of_what_is_not_there_fails(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path / "state")
    with pytest.raises(CheckpointFailed, match="cannot be put in place"):
        checkpoint.install(str(tmp_path / "nowhere"))
    checkpoint.close()


def test_increment_that_an_installed_checkpoint_overtook_is_dropped(tmp_path: Path) -> None:
    filled(tmp_path / "state", index=9).close()
    path = tmp_path / "state" / "increment"
    write_increment(Files(), str(path), [Portion(b"nodes", [(b"000", b"old")], 6)], 8, 3)
    checkpoint = Checkpoint(str(tmp_path / "state"))
    assert not path.exists()
    assert checkpoint.index == 9
    with checkpoint.reading() as read:
        assert dict(read(b"nodes"))[b"000"] == b"9"
    checkpoint.close()


def test_source_is_refused_while_an_increment_is_half_there(tmp_path: Path) -> None:
    checkpoint = filled(tmp_path / "state")
    (tmp_path / "state" / "increment").write_bytes(b"")
    with pytest.raises(CheckpointFailed, match="waits for room"):
        checkpoint.source()
    checkpoint.close()
