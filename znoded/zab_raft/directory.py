"""The data directory: whose it is, its format, and the lock that keeps a second process out.

    DATA/meta     who owns the directory, and the numbers that hold for its whole life
    DATA/lock     held (flock) by the process that runs on the directory
    DATA/log/     the log's segments
    DATA/state/   the checkpoint

Every name is made durable before anything rests on it.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace

from znoded.zab_raft.checksummed import with_checksum, without_checksum
from znoded.zab_raft.errors import DirectoryError
from znoded.zab_raft.files import FILE_MODE, Files
from znoded.zab_raft.peers.identity import CELL_ID_BYTES

FORMAT = 1
PID_DIGITS_MOST = 20


@dataclass(frozen=True, slots=True)
class Meta:
    """What `DATA/meta` says.

    `cell` is the id of the cell, 32 hexadecimal digits. `initialised` turns true when the log's first segment is
    durable: from then on, a directory without a log lost it.

    A member of a cell has an `incarnation`, which is drawn with the directory (32 hexadecimal digits), and a `raft_id`;
    before it has entered its cell, `cell` is empty and `raft_id` 0.
    """

    cell: str
    member: int
    initialised: bool
    raft_id: int = 0
    incarnation: str = ""

    def encode(self) -> bytes:
        """The content of the file, its checksum last."""
        text = (
            f"znoded data directory\nformat {FORMAT}\ncell {self.cell}\nmember {self.member}\n"
            f"initialised {int(self.initialised)}\n"
        ).encode()
        if self.incarnation:
            text += f"raft_id {self.raft_id}\nincarnation {self.incarnation}\n".encode()
        return with_checksum(text)

    @classmethod
    def decode(cls, content: bytes, path: str) -> Meta:
        """Raise `DirectoryError` unless `content` is whole and of a format that this version knows."""
        lines = content.split(b"\n")
        if lines[0] != b"znoded data directory" or len(lines) < 2:
            raise DirectoryError(f"{path} is not a znoded meta file; name another data directory or restore the file")
        if lines[1] != b"format %d" % FORMAT:
            raise DirectoryError(
                f"{path} says {lines[1].decode(errors='replace')!r}, this version reads format {FORMAT}; "
                "start the version that wrote the directory"
            )
        _, _, *fields = without_checksum(content, path).decode().splitlines()
        value = dict(field.split(" ", 1) for field in fields)
        return cls(
            value["cell"],
            int(value["member"]),
            value["initialised"] == "1",
            int(value.get("raft_id", "0")),
            value.get("incarnation", ""),
        )


class DataDirectory:
    """An open data directory. It belongs to this process until `close`."""

    def __init__(self, path: str, member: int, files: Files | None = None) -> None:
        """Open the directory for this member, making it when there is none.

        Raises `DirectoryError` when it belongs to another member or process, or is damaged.
        """
        self.path = os.path.abspath(path)
        self.log_path = os.path.join(self.path, "log")
        self.state_path = os.path.join(self.path, "state")
        self.files = files or Files()
        for each in (self.path, self.log_path, self.state_path):
            try:
                self.files.make_directory(each)
            except (FileExistsError, NotADirectoryError) as error:
                raise DirectoryError(f"{each} is no directory, or in none; name another data directory") from error
        self._lock = self._take_lock()
        try:
            self.meta = self._read_meta(member)
        except BaseException:
            self.close()
            raise

    @property
    def meta_path(self) -> str:
        """The file that says whose directory this is."""
        return os.path.join(self.path, "meta")

    def set_initialised(self) -> None:
        """Remember that the log is there; call it once its first segment is durable."""
        if not self.meta.initialised:
            self._write_meta(replace(self.meta, initialised=True))

    def found_copy(self, path: str) -> None:
        """Make `path` a data directory of the same member, for a checkpoint and an empty log."""
        self.files.make_directory(path)
        self.files.replace(os.path.join(path, "meta"), self._copied_meta().encode())

    def close(self) -> None:
        """Let another process have the directory."""
        os.close(self._lock)

    def _take_lock(self) -> int:
        path = os.path.join(self.path, "lock")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, PID_DIGITS_MOST).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise DirectoryError(
                f"{path} is held by another process (pid {holder}); stop it or name another data directory"
            ) from error
        holder_line = b"%d\n" % os.getpid()
        os.pwrite(lock, holder_line, 0)  # first: a full disk may have no block for it once this one was given back
        os.ftruncate(lock, len(holder_line))
        return lock

    def _read_meta(self, member: int) -> Meta:
        try:
            with open(self.meta_path, "rb") as file:
                meta = Meta.decode(file.read(), self.meta_path)
        except FileNotFoundError:
            return self._found(member)
        if meta.member != member:
            raise DirectoryError(
                f"{self.path} belongs to member {meta.member}, not to member {member}; "
                f"set member = {meta.member} or name the data directory of member {member}"
            )
        self._check_kind(meta)
        return meta

    def _found(self, member: int) -> Meta:
        for path in (self.log_path, self.state_path):
            if os.listdir(path):
                raise DirectoryError(
                    f"{self.meta_path} is missing, but {path} has content; "
                    "restore the file from a backup or name an empty data directory"
                )
        # The names just made have to outlive a power cut before anything inside them counts.
        self.files.sync_directory(os.path.dirname(self.path))
        return self._write_meta(self._first_meta(member))

    def _copied_meta(self) -> Meta:
        return replace(self.meta, initialised=False)

    def _check_kind(self, meta: Meta) -> None:
        """Raise `DirectoryError` if a member of this kind must not run on the directory."""
        if meta.incarnation:
            raise DirectoryError(
                f"{self.path} belongs to a member of a cell; start it with the [cell.members] of that cell in its "
                "configuration, or name another data directory"
            )

    def _first_meta(self, member: int) -> Meta:
        return Meta(os.urandom(CELL_ID_BYTES).hex(), member, initialised=False)

    def _write_meta(self, meta: Meta) -> Meta:
        self.files.replace(self.meta_path, meta.encode())
        self.meta = meta
        return meta
