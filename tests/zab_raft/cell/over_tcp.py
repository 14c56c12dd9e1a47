"""Three replicas with real connections, threads and clock in one process: a program for `test_over_tcp`.

    python -m tests.zab_raft.cell.over_tcp DIRECTORY FIRST_PORT

Prints what it has seen, one line each, and ends in failure when something takes too long.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks
from twisted.internet.task import deferLater

from tests.zab_raft.cell.journal import CellJournal, command
from znoded.zab_raft.cell.options import CellOptions
from znoded.zab_raft.cell.replica import CellReplica
from znoded.zab_raft.cell.roster import Roster
from znoded.zab_raft.cell.server_lines import Member
from znoded.zab_raft.peers.founding import Table
from znoded.zab_raft.peers.identity import Identity
from znoded.zab_raft.peers.peers import PeerHandler, Peers
from znoded.zab_raft.storage_options import StorageOptions

MEMBERS = (1, 2, 3)
PATIENCE_S = 30.0
LOOK_AGAIN_S = 0.005
SECRET = b"of this cell"

reactor: Any = installed_reactor


class RunningMember:
    """One member, which can be started again."""

    def __init__(self, directory: str, first_port: int, number: int) -> None:
        members = [Member(each, f"127.0.0.1:{first_port + each}", "") for each in MEMBERS]
        self.number = number
        self._address = members[number - 1].peer
        self._port = first_port + number
        roster = Roster.founding(members)
        self._options = CellOptions(
            StorageOptions(f"{directory}/{number}", number, segment_bytes=1 << 18),
            roster,
            Table(bytes(32), frozenset(MEMBERS), {each.number: each.peer for each in members}),
            heartbeat_ms=20,
            election_ms=200,
            log_tail_bytes=1 << 16,
        )
        self._sequence = 0
        self._client = number

    def start(self) -> Deferred[None]:
        self.journal = CellJournal(lambda: self.replica.configuration)
        self.replica = CellReplica(reactor, self._options, self.journal, fatal, self._make_peers)
        return self.replica.start()

    def _make_peers(self, identity: Identity, path: str, handler: PeerHandler) -> Peers:
        listen = f"tcp:{self._port}:interface=127.0.0.1"
        return Peers(reactor, listen, self._address, identity, path, handler, SECRET, random.random)

    def propose(self, count: int, size_bytes: int = 0) -> list[bytes]:
        commands = []
        for _ in range(count):
            self._sequence += 1
            commands.append(command(self._client, self._sequence, size_bytes))
        assert self.replica.propose(commands)
        return commands

    def has(self, commands: list[bytes]) -> bool:
        return set(commands) <= set(self.journal.effects)


def fatal(error: BaseException) -> None:
    print(f"fatal: {error!r}", flush=True)
    reactor.stop()


@inlineCallbacks
def until(condition: Callable[[], bool]) -> Generator[Deferred[Any], Any, None]:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError
        yield deferLater(reactor, LOOK_AGAIN_S, lambda: None)


@inlineCallbacks
def scenario(directory: str, first_port: int) -> Generator[Deferred[Any], Any, None]:
    cell = {number: RunningMember(directory, first_port, number) for number in MEMBERS}
    yield gatherResults([member.start() for member in cell.values()])
    yield until(lambda: all(member.replica.has_leader for member in cell.values()))
    yield until(lambda: any(member.replica.leads for member in cell.values()))
    print("founded", flush=True)

    written = [each for member in cell.values() for each in member.propose(200)]
    yield until(lambda: all(member.has(written) for member in cell.values()))
    answers: list[bool] = []
    for member in cell.values():
        member.replica.confirm_reads(answers.append)
    yield until(lambda: len(answers) == len(MEMBERS))
    assert all(answers)
    print("written and read at every member", flush=True)

    leader = next(member for member in cell.values() if member.replica.leads)
    others = [member for member in cell.values() if member is not leader]
    yield leader.replica.stop()
    yield until(lambda: any(member.replica.leads for member in others))
    for _ in range(40):
        written += others[0].propose(1, size_bytes=10_000)
    yield until(lambda: all(member.has(written) for member in others))
    for member in others:
        for _ in range(2):
            yield member.replica._checkpointer.begin()
    print("handed over", flush=True)

    yield leader.start()
    yield until(lambda: leader.has(written))
    assert leader.journal.loads == 2, "it came back by the log"
    print("back by a snapshot", flush=True)

    yield gatherResults([member.replica.stop() for member in cell.values()])
    yield gatherResults([member.start() for member in cell.values()])
    yield until(lambda: all(member.has(written) for member in cell.values()))
    assert len({tuple(member.journal.effects[: len(written)]) for member in cell.values()}) == 1
    yield gatherResults([member.replica.stop() for member in cell.values()])
    print("started again", flush=True)


def main() -> None:
    reactor.seconds = time.monotonic
    outcome: list[Any] = []
    directory, first_port = sys.argv[1:]
    reactor.callWhenRunning(
        lambda: scenario(directory, int(first_port)).addBoth(outcome.append).addBoth(lambda _none: reactor.stop())
    )
    reactor.run()
    if outcome != [None]:
        sys.exit(str(outcome))


if __name__ == "__main__":
    main()
