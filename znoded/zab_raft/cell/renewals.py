"""`DATA/renewals`: how a cell was begun anew out of this directory, after most members were lost. A record each time.

One JSON object a line, oldest first, and a checksum behind them. A record is durable before anything else is changed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from twisted.logger import Logger

from znoded.zab_raft.checksummed import with_checksum, without_checksum
from znoded.zab_raft.directory import DataDirectory
from znoded.zab_raft.errors import DirectoryError
from znoded.zab_raft.files import Files

FORMAT = 1
_HEAD = f"znoded renewals\nformat {FORMAT}\n"

_log = Logger()


@dataclass(frozen=True, slots=True)
class Renewal:
    """Who made a cell of one out of what this member had of its old cell, when, and out of what.

    `begun` and `finished` are times (ISO 8601, UTC); `finished` is empty until all is done. `old_members` are lines of
    ZooKeeper's configuration. `last_index`, `last_term` and `commit_index` tell what was in the log: everything behind
    `commit_index` was not known to be committed. The new cell begins with the index and term `first_index` and `term`.
    """

    begun: str
    finished: str
    host: str
    user: str
    version: str
    member: int
    raft_id: int
    old_cell: str
    new_cell: str
    old_members: list[str]
    last_index: int
    last_term: int
    commit_index: int
    first_index: int
    term: int


class Renewals:
    """The records of a data directory."""

    def __init__(self, directory: str, files: Files | None = None) -> None:
        """Read the file, if there is one. Raises DirectoryError if it is damaged."""
        self._path = os.path.join(directory, "renewals")
        self._files = files or Files()
        self._records: list[Renewal] = []
        try:
            with open(self._path, "rb") as file:
                self._records = _decode(file.read(), self._path)
        except FileNotFoundError:
            pass

    def of(self, cell: str) -> Renewal | None:
        """The record of how this cell began; None if it was founded by its members together."""
        return next((record for record in self._records if record.new_cell == cell), None)

    def put(self, record: Renewal) -> None:
        """Add the record durably, or put it in the place of the one of the same new cell. Raises OSError."""
        records = [each for each in self._records if each.new_cell != record.new_cell]
        records.append(record)
        self._files.replace(self._path, _encode(records))
        self._records = records


def look_for_renewal(directory: DataDirectory) -> None:
    """Say in the log how the cell of this directory was begun anew. Raises DirectoryError if that is not finished."""
    record = Renewals(directory.path).of(directory.meta.cell)
    if record is None:
        return
    if not record.finished:
        raise DirectoryError(
            f"{directory.path} is half made into a new cell: `znoded recover` was cut short on {record.begun}; "
            "run it again as before"
        )
    _log.warn(
        "This cell, {record.new_cell}, was begun anew on {record.begun} by {record.user} on {record.host}, with znoded "
        "{record.version}, out of what member {record.member} had of cell {record.old_cell}: index {record.last_index} "
        "of term {record.last_term}, of which {record.commit_index} was known to be committed. The members were: "
        "{members}",
        record=record,
        members=", ".join(record.old_members),
    )


def _encode(records: list[Renewal]) -> bytes:
    lines = [json.dumps(asdict(record)) + "\n" for record in records]
    return with_checksum((_HEAD + "".join(lines)).encode())


def _decode(content: bytes, path: str) -> list[Renewal]:
    text = without_checksum(content, path)
    if not text.startswith(_HEAD.encode()):
        raise DirectoryError(f"{path} has a format that this version does not know; start the version that wrote it")
    return [Renewal(**json.loads(line)) for line in text[len(_HEAD) :].splitlines()]
