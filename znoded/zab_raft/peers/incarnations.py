"""`DATA/peers`: the first incarnation that was seen of each raft id, so that a wiped member is found out."""

from __future__ import annotations

import os

from znoded.zab_raft.checksummed import with_checksum, without_checksum
from znoded.zab_raft.errors import DirectoryError
from znoded.zab_raft.files import Files

FORMAT = 1
_HEAD = f"znoded peers\nformat {FORMAT}\n"


class Incarnations:
    """Raft id -> incarnation. Only grows: an id is used once."""

    def __init__(self, directory: str, files: Files | None = None) -> None:
        """Read the file in this data directory, if there is one. Raises DirectoryError if it is damaged."""
        self._path = os.path.join(directory, "peers")
        self._files = files or Files()
        self._known: dict[int, bytes] = {}
        try:
            with open(self._path, "rb") as file:
                self._known = _decode(file.read(), self._path)
        except FileNotFoundError:
            pass

    def is_known(self, raft_id: int, incarnation: bytes) -> bool:
        """Whether this is the first incarnation that was seen of the id; if it is, that is durable. Raises OSError."""
        known = self._known.get(raft_id)
        if known is None:
            grown = {**self._known, raft_id: incarnation}
            self._files.replace(self._path, _encode(grown))
            self._known = grown
            return True
        return known == incarnation

    def has(self, raft_id: int, incarnation: bytes) -> bool:
        """Whether this incarnation of the id was seen before."""
        return self._known.get(raft_id) == incarnation


def _encode(known: dict[int, bytes]) -> bytes:
    lines = [f"{raft_id} {incarnation.hex()}\n" for raft_id, incarnation in sorted(known.items())]
    return with_checksum((_HEAD + "".join(lines)).encode())


def _decode(content: bytes, path: str) -> dict[int, bytes]:
    text = without_checksum(content, path)
    if not text.startswith(_HEAD.encode()):
        raise DirectoryError(f"{path} has a format that this version does not know; start the version that wrote it")
    lines = text[len(_HEAD) :].decode().splitlines()
    return {int(raft_id): bytes.fromhex(incarnation) for raft_id, incarnation in map(str.split, lines)}
