"""Records every file operation of a member and can tell what a crash after any of them leaves on the disk."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.zab_raft.split_files import SplitFiles


class Operation(NamedTuple):
    """One change. `file` numbers the files in the order they were made; paths are below the data directory.

    `kind`: create, allocate, write, truncate, sync, rename, remove, sync_directory, or commit for one of LMDB, whose
    `data` is its whole file: LMDB's own atomicity is taken for granted.
    """

    kind: str
    file: int = 0
    path: str = ""
    target: str = ""
    offset: int = 0
    size_bytes: int = 0
    data: bytes = b""


class RecordingFiles(SplitFiles):
    """Does what `Files` does, and notes it. Descriptors and paths belong to the data directory `root`."""

    def __init__(self, root: Path) -> None:
        self.operations: list[Operation] = []
        self._root = root
        self._files: dict[int, int] = {}
        self._made = 0
        self._numbers: dict[str, int] = {}  # of the files, by the names they have now
        # The order noted has to be the order done: the log's and the checkpoint's threads take turns.
        self._turn = threading.Lock()

    def create(self, path: str) -> int:
        with self._turn:
            descriptor = super().create(path)
            self._made += 1
            self._files[descriptor] = self._numbers[self._below(path)] = self._made
            self._note("create", file=self._made, path=self._below(path))
            return descriptor

    def open(self, path: str) -> int:
        with self._turn:
            descriptor = super().open(path)
            self._files[descriptor] = self._numbers[self._below(path)]
            return descriptor

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        with self._turn:
            super().allocate(descriptor, size_bytes)
            self._note("allocate", file=self._files[descriptor], size_bytes=size_bytes)

    def write(self, descriptor: int, offset: int, pieces: Sequence[bytes]) -> None:
        with self._turn:
            super().write(descriptor, offset, pieces)
            self._note("write", file=self._files[descriptor], offset=offset, data=b"".join(pieces))

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        with self._turn:
            super().truncate(descriptor, size_bytes)
            self._note("truncate", file=self._files[descriptor], size_bytes=size_bytes)

    def sync(self, descriptor: int) -> None:
        with self._turn:
            super().sync(descriptor)
            self._note("sync", file=self._files[descriptor])

    def rename(self, source: str, target: str) -> None:
        with self._turn:
            super().rename(source, target)
            self._numbers[self._below(target)] = self._numbers.pop(self._below(source))
            self._note("rename", path=self._below(source), target=self._below(target))

    def remove(self, path: str) -> None:
        with self._turn:
            super().remove(path)
            self._note("remove", path=self._below(path))

    def sync_directory(self, path: str) -> None:
        with self._turn:
            super().sync_directory(path)
            if Path(path) != self._root.parent:
                self._note("sync_directory", path=self._below(path))

    def note_commit(self, path: str) -> None:
        """Note that LMDB committed."""
        with self._turn:
            self._note("commit", path=self._below(path), data=Path(path).read_bytes())

    def _note(self, kind: str, **values: object) -> None:
        self.operations.append(Operation(kind, **values))  # type: ignore[arg-type]

    def _below(self, path: str) -> str:
        return os.path.relpath(path, self._root)


@dataclass
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        _write(self.content, offset, data)
        self.unsynced.append((offset, data))

    def truncate(self, size_bytes: int) -> None:
        """Nothing reads what is cut, so that it does not matter if a power cut brings it back."""
        del self.content[size_bytes:]

    def sync(self) -> None:
        self.synced = bytearray(self.content)
        self.unsynced.clear()


class Disk:
    """A disk that remembers which part of what was done to it would survive a power cut."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        self._synced_names: dict[str, int] = {}
        self._unsynced: list[Operation] = []
        self._state: tuple[str, bytes] | None = None
        for operation in operations:
            getattr(self, f"_{operation.kind}")(operation)

    def after_kill(self, directory: Path) -> Path:
        """What a killed process leaves: everything it did."""
        return self._put(directory, self._names, {number: file.content for number, file in self._files.items()})

    def after_power_cut(self, directory: Path) -> Path:
        """What a power cut leaves that takes all that was not synced."""
        return self._put(directory, self._synced_names, {number: file.synced for number, file in self._files.items()})

    def after_power_cut_with_luck(self, directory: Path, seed: int) -> Path:
        """What a power cut leaves that takes some of what was not synced: names in order, sectors in any order."""
        chance = random.Random(seed)
        names = dict(self._synced_names)
        for operation in self._unsynced[: chance.randint(0, len(self._unsynced))]:
            _rename(names, operation)
        contents = {}
        for number, file in self._files.items():
            contents[number] = bytearray(file.synced)
            for offset, data in file.unsynced:
                for start in range(0, len(data), 512):
                    if chance.random() < 0.5:
                        _write(contents[number], offset + start, data[start : start + 512])
        return self._put(directory, names, contents)

    def _put(self, directory: Path, names: dict[str, int], contents: dict[int, bytearray]) -> Path:
        for folder in ("log", "state"):
            (directory / folder).mkdir(parents=True)
        for path, number in names.items():
            (directory / path).write_bytes(contents[number])
        if self._state is not None:
            (directory / self._state[0]).write_bytes(self._state[1])
        return directory

    def _create(self, operation: Operation) -> None:
        self._files[operation.file] = _File()
        self._change_names(operation)

    def _allocate(self, operation: Operation) -> None:
        file = self._files[operation.file]
        file.content.extend(bytes(max(0, operation.size_bytes - len(file.content))))

    def _write(self, operation: Operation) -> None:
        self._files[operation.file].write(operation.offset, operation.data)

    def _truncate(self, operation: Operation) -> None:
        self._files[operation.file].truncate(operation.size_bytes)

    def _sync(self, operation: Operation) -> None:
        self._files[operation.file].sync()

    def _rename(self, operation: Operation) -> None:
        self._change_names(operation)

    def _remove(self, operation: Operation) -> None:
        self._change_names(operation)

    def _change_names(self, operation: Operation) -> None:
        _rename(self._names, operation)
        self._unsynced.append(operation)

    def _sync_directory(self, operation: Operation) -> None:
        left = []
        for change in self._unsynced:
            if (os.path.dirname(change.path) or ".") == operation.path:
                _rename(self._synced_names, change)
            else:
                left.append(change)
        self._unsynced = left

    def _commit(self, operation: Operation) -> None:
        self._state = operation.path, operation.data


def _rename(names: dict[str, int], operation: Operation) -> None:
    if operation.kind == "create":
        names[operation.path] = operation.file
    elif operation.kind == "rename":
        if operation.path in names:
            names[operation.target] = names.pop(operation.path)
    else:
        names.pop(operation.path, None)


def _write(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data
