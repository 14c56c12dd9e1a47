"""A replica of a journal, started by hand, for tests."""

from __future__ import annotations

from pathlib import Path

from tests.zab_raft.journal import Journal
from tests.zab_raft.pump import PumpReactor
from znoded.zab_raft.files import Files
from znoded.zab_raft.replica import Replica
from znoded.zab_raft.storage_options import StorageOptions

NEVER_MS = 10**9


class JournalMember:
    """A replica with small segments whose checkpoints come only when the test asks. `start` first."""

    def __init__(
        self,
        data_dir: Path,
        files: Files | None = None,
        segment_bytes: int = 1 << 16,
        checkpoint_bytes: int = 1 << 40,
        checkpoint_interval_ms: int = NEVER_MS,
        member: int = 1,
    ) -> None:
        self.reactor = PumpReactor()
        self.journal = Journal()
        self.errors: list[BaseException] = []
        options = StorageOptions(str(data_dir), member, segment_bytes, checkpoint_interval_ms, checkpoint_bytes)
        self.replica = Replica(self.reactor, options, self.journal, self.errors.append, files)

    def start(self) -> JournalMember:
        self.replica.start()
        return self

    def write(self, *commands: bytes) -> None:
        """Propose the commands as one batch and return when it is applied."""
        assert self.replica.propose(list(commands))
        last = len(self.journal.commands) + len(commands)
        self.reactor.run_until(lambda: len(self.journal.commands) >= last)

    def checkpoint(self) -> None:
        """Have the checkpoint's interval pass and return when the checkpoint was stored, or has failed."""
        self.reactor.advance(NEVER_MS / 1000)
        self.reactor.result_of(self.replica._checkpointer.idle)

    def stop(self) -> None:
        self.reactor.result_of(self.replica.stop())


def commands_in(data_dir: Path) -> list[bytes]:
    """Start a member on the directory and return what it has; then stop it again."""
    member = JournalMember(data_dir).start()
    commands = list(member.journal.commands)
    member.stop()
    return commands
