"""Bugs that are planted in the product, one at a time: the simulator has to find each.

python -m tests.simulation.planted                     all of them, until each is found
python -m tests.simulation.planted --seeds 100 [NAME ..]   in how many of so many seeds each is found
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from tests.simulation.simulation import run
from tests.zab_raft.core.history import Violation
from znoded.server import set_watches
from znoded.server.cell_member import CellMember
from znoded.server.delivery import Delivery
from znoded.server.handshake import Handshake
from znoded.server.housekeeping import Housekeeping
from znoded.server.member import Member
from znoded.server.pipeline import Pipeline
from znoded.server.read_gate import ReadGate
from znoded.server.sessions import SessionTracker
from znoded.server.wall_clock import wall_ms
from znoded.tree.commands import HEAD, HEAD_BYTES
from znoded.tree.tree import Tree
from znoded.watches.catch_up import catch_up
from znoded.zab_raft.cell.driver import CellDriver
from znoded.zab_raft.cell.own_proposals import OwnProposals
from znoded.zab_raft.cell.read_barrier import ReadBarrier
from znoded.zab_raft.cell.recovery import CellRecovery
from znoded.zab_raft.core.messages import HardState

SEEDS_MOST = 200

#: In a class or module, the attribute `name` becomes what the function makes of the original.
Plant = tuple[Any, str, Callable[[Any], Any]]


def _reads_without_the_gate() -> list[Plant]:
    return [(ReadGate, "keeps", lambda _: lambda gate, connection, op: False)]


def _reads_confirmed_by_nobody() -> list[Plant]:
    def ask(barrier: Any, node: Any) -> None:
        reads, barrier._collected = barrier._collected, []
        for then in reads:
            then(True)

    return [(ReadBarrier, "ask", lambda _: ask)]


def _proposals_are_forwarded_once() -> list[Plant]:
    return [(OwnProposals, "give_again", lambda _: lambda own: None)]


def _acknowledged_before_it_is_durable() -> list[Plant]:
    def change(take: Any) -> Any:
        def early(driver: Any, node: Any, ready: Any) -> None:
            for message in ready.messages_after_sync:
                driver._send(message)
            take(driver, node, ready)

        return early

    return [(CellDriver, "_take", change)]


def _the_last_entry_is_lost_at_a_restart() -> list[Plant]:
    def change(read: Any) -> Any:
        def lossy(recovery: Any) -> None:
            read(recovery)
            if recovery.entries and recovery.hard_state.commit < recovery.last_index:
                recovery.entries.pop()
                recovery.last_index -= 1
                if recovery.entries:
                    recovery.last_term = recovery.entries[-1].term

        return lossy

    return [(CellRecovery, "read", change)]


def _the_vote_is_forgotten_at_a_restart() -> list[Plant]:
    def change(read: Any) -> Any:
        def forgetful(recovery: Any) -> None:
            read(recovery)
            state = recovery.hard_state
            recovery.hard_state = HardState(state.term, 0, state.commit)

        return forgetful

    return [(CellRecovery, "read", change)]


def _admitting(keep: Callable[[Any, int, int], None]) -> list[Plant]:
    def change(apply: Any) -> Any:
        def lenient(tree: Any, zxid: int, command: bytes) -> Any:
            if len(command) >= HEAD_BYTES:
                _, session_id, attach, sequence, _, _ = HEAD.unpack_from(command)
                session = tree.sessions.get(session_id)
                if session is not None and sequence > 0:
                    keep(session, attach, sequence)
            return apply(tree, zxid, command)

        return lenient

    return [(Tree, "apply", change)]


def _commands_apply_twice() -> list[Plant]:
    def keep(session: Any, attach: int, sequence: int) -> None:
        if attach == session.attach:
            session.sequence = sequence - 1

    return _admitting(keep)


def _commands_of_an_old_attach_apply() -> list[Plant]:
    def keep(session: Any, attach: int, sequence: int) -> None:
        session.attach, session.sequence = attach, sequence - 1

    return _admitting(keep)


def _attaches_of_two_processes_are_alike() -> list[Plant]:
    def change(init: Any) -> Any:
        def unmarked(handshake: Any, member: Any) -> None:
            init(handshake, member)
            handshake._mark = 0

        return unmarked

    return [(Handshake, "__init__", change)]


def _no_grace_when_the_leader_changes() -> list[Plant]:
    return [(SessionTracker, "grant_all", lambda _: lambda tracker, now_ms: None)]


def _touches_are_not_heard_by_the_leader() -> list[Plant]:
    return [(CellMember, "told", lambda _: lambda member, number, payload: None)]


def _a_paused_leader_goes_on_to_expire() -> list[Plant]:
    def change(end: Any) -> Any:
        def blind(housekeeping: Any) -> None:
            housekeeping._last_look_ms = housekeeping._member.monotonic_ms()
            end(housekeeping)

        return blind

    return [(Housekeeping, "_end_silent_sessions", change)]


def _notified_behind_the_replies() -> list[Plant]:
    late: list[tuple[Any, int, list[Any]]] = []

    def notify(delivery: Any, zxid: int) -> None:
        late.append((delivery, zxid, list(delivery._member.tree.events)))

    def change(original: Any) -> Any:
        def flush(delivery: Any) -> None:
            tree = delivery._member.tree
            for each, zxid, events in list(late):
                if each is delivery:
                    before, tree.events = tree.events, events
                    original_notify(delivery, zxid)
                    tree.events = before
                    late.remove((each, zxid, events))
            original(delivery)

        return flush

    original_notify = Delivery._notify
    return [(Delivery, "_notify", lambda _: notify), (Delivery, "flush", change)]


def _nothing_is_caught_up() -> list[Plant]:
    def blind(watches: Any, watcher: Any, view: Any, zxid: int, **lists: Any) -> Any:
        return catch_up(watches, watcher, view, view._tree.zxid, **lists)

    return [(set_watches, "catch_up", lambda _: blind)]


def _reads_overtake_their_sessions_writes() -> list[Plant]:
    def in_turn(pipeline: Any, connection: Any, xid: int, send: Any, record: bytes) -> None:
        send(connection, xid, record)

    return [(Pipeline, "_in_turn", lambda _: in_turn)]


def _clients_stay_when_a_snapshot_comes() -> list[Plant]:
    def load(member: Any, read_table: Any) -> None:
        Member.load(member, read_table)
        member.track_sessions()

    return [(CellMember, "load", lambda _: load)]


def _each_member_has_its_own_time() -> list[Plant]:
    def change(apply: Any) -> Any:
        def timed(tree: Any, zxid: int, command: bytes) -> Any:
            return apply(tree, zxid, struct.pack(">q", wall_ms()) + command[8:])

        return timed

    return [(Tree, "apply", change)]


def _a_checkpoint_without_the_sequence_numbers() -> list[Plant]:
    def change(take: Any) -> Any:
        return lambda tree: {**take(tree), b"created": {}}

    return [(Tree, "take_changes", change)]


PLANTED: dict[str, Callable[[], list[Plant]]] = {
    plant.__name__.strip("_").replace("_", "-"): plant
    for plant in (
        _reads_without_the_gate,
        _reads_confirmed_by_nobody,
        _proposals_are_forwarded_once,
        _acknowledged_before_it_is_durable,
        _the_last_entry_is_lost_at_a_restart,
        _the_vote_is_forgotten_at_a_restart,
        _commands_apply_twice,
        _commands_of_an_old_attach_apply,
        _attaches_of_two_processes_are_alike,
        _no_grace_when_the_leader_changes,
        _touches_are_not_heard_by_the_leader,
        _a_paused_leader_goes_on_to_expire,
        _notified_behind_the_replies,
        _nothing_is_caught_up,
        _reads_overtake_their_sessions_writes,
        _clients_stay_when_a_snapshot_comes,
        _each_member_has_its_own_time,
        _a_checkpoint_without_the_sequence_numbers,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """For as long as this lasts, the product has this bug."""
    with ExitStack() as stack:
        for owner, attribute, change in PLANTED[name]():
            stack.enter_context(mock.patch.object(owner, attribute, change(getattr(owner, attribute))))
        yield


def finds(seed: int) -> str:
    """What a run of this seed finds; empty for nothing."""
    try:
        run(seed)
    except Violation as violation:
        lines = str(violation).splitlines()
        return next((line for line in reversed(lines) if "Violation" in line), lines[-2])
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Plant bugs, and see if the simulator finds them.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, metavar="COUNT", help="run so many for each, whatever is found")
    arguments = parser.parse_args()
    missed = 0
    for name in arguments.names or PLANTED:
        found: list[tuple[int, str]] = []
        with planted(name):
            for seed in range(arguments.seeds or SEEDS_MOST):
                if fault := finds(seed):
                    found.append((seed, fault))
                    if not arguments.seeds:
                        break
        missed += not found
        first, fault = found[0] if found else (0, "")
        print(f"{name}: found in {len(found)}, first by seed {first}: {fault[:110]}" if found else f"{name}: MISSED")
        sys.stdout.flush()
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
