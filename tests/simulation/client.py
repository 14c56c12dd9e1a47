"""One simulated client: it speaks the wire protocol, keeps its session over connections, and checks what it is told.

It sends requests one behind the other, several at once now and then, and pings when it has nothing to send. When its
connection is lost it goes to another member, sets its watches again, and does not know what became of what it asked.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tests.jute.factory import frame, i4, i8, request, string
from tests.simulation import calls
from tests.simulation.calls import READS, Call, WatchKind
from tests.simulation.line import Line
from tests.simulation.watch_book import WatchBook
from tests.zab_raft.core.history import require
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import NOTIFICATION_XID, PING_XID, CreateFlags, Op
from znoded.jute.primitives import Reader

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

HANDSHAKE_PATIENCE_S = 1.0
REGISTERS = (b"/r0", b"/r1")
SUPER = b"super:test"


class Client:
    """`goal` is how many requests it wants answered; None: it goes on for ever."""

    def __init__(self, simulation: Simulation, number: int, is_serializable: bool, is_admin: bool) -> None:
        self.simulation = simulation
        self.world = simulation.world
        self.number = number
        self.is_serializable = is_serializable
        self.is_admin = is_admin
        self.timeout_ms = self.world.chance.choice((900, 1500, 3000))
        self.session_id = 0
        self.line: Line | None = None
        self.answered = 0
        self.sessions = 0
        #: How many writes its present session has sent.
        self.writes_sent = 0
        self.wants_to_close = False
        self._password = bytes(16)
        self._last_zxid = 0
        self._line_zxid = 0
        self._is_open = False
        self._pending: deque[Call] = deque()
        self._book = WatchBook(simulation.reference, f"client {number}")
        self._xid = 0
        self._calls = 0
        self._sent_s = 0.0
        self._heard_s = 0.0
        self._versions: dict[bytes, int] = {}
        self._next_reconfig: Call | None = None

    def start(self) -> None:
        self._connect()
        self._act_later()
        self._keep_alive()

    @property
    def is_connected(self) -> bool:
        return self._is_open

    @property
    def is_idle(self) -> bool:
        return self._is_open and not self._pending

    # ---- connections

    def _connect(self) -> None:
        if self.line is not None:
            return
        machines = [machine for machine in self.simulation.machines.values() if machine.runs and machine.is_listening]
        if not machines:
            self.world.at(0.1, "no member", self._connect)
            return
        machine = self.world.chance.choice(machines)
        assert machine.process is not None
        line = self.simulation.line(machine, self._frame, self._lost)
        self.line = line
        self._is_open = False
        password = string(self._password)
        line.send(frame(i4(0), i8(self._last_zxid), i4(self.timeout_ms), i8(self.session_id), password, b"\0"))
        self.world.at(HANDSHAKE_PATIENCE_S, "handshake", partial(self._look_at_handshake, line))

    def _look_at_handshake(self, line: Line) -> None:
        if self.line is line and not self._is_open:
            self.leave()

    def leave(self) -> None:
        """Give the connection up, and look for another member."""
        if self.line is not None:
            self.line.give_up()
            self._lost()

    def _lost(self) -> None:
        self.line = None
        self._is_open = False
        self._pending.clear()
        self.world.at(self.world.chance.uniform(0.005, 0.1), "reconnects", self._connect)

    def _keep_alive(self) -> None:
        timeout_s = self.timeout_ms / 1000
        if self._is_open:
            if self.world.now_s - self._heard_s > timeout_s * 2 / 3:
                self.world.note(f"client {self.number} hears nothing")
                self.leave()
            elif self.world.now_s - self._sent_s > timeout_s / 4:
                self._ask(calls.ping())
        self.world.at(timeout_s / 8, "keep alive", self._keep_alive)

    def _respond(self, payload: bytes) -> None:
        """The server's first frame."""
        reader = Reader(payload)
        reader.int()
        timeout_ms, session_id, password = reader.int(), reader.long(), reader.buffer() or b""
        line = self.line
        assert line is not None
        if not timeout_ms:
            self.simulation.told_expired(self)
            self._end_session()
            return
        if not self.session_id:
            self.sessions += 1
            self.writes_sent = 0
        require(self.session_id in (0, session_id), "X6", f"client {self.number} is given another session")
        self.session_id, self._password = session_id, password
        self._is_open = True
        self._line_zxid = 0
        self._heard_s = self.world.now_s
        self.simulation.attached(self, line)
        if self.is_serializable:
            self._ask(calls.auth(b"reads", b"serializable"))
        if self.is_admin:
            self._ask(calls.auth(b"digest", SUPER))
        again = self._book.connected(self._last_zxid)
        if again is not None:
            self._ask(again)

    def _end_session(self) -> None:
        self.session_id, self._password, self.wants_to_close = 0, bytes(16), False
        self._book.forget()
        if self.line is not None:
            self.leave()

    # ---- what it asks

    def _act_later(self) -> None:
        self.world.at(self.world.chance.expovariate(1 / self.simulation.trouble.think_s), "acts", self._act)

    def _act(self) -> None:
        if self._is_open and len(self._pending) < 4 and not self.simulation.is_quiet:
            for _ in range(self.world.chance.choice((1, 1, 1, 2, 4))):
                if self._is_open:
                    self._ask(self._drawn())
        self._act_later()

    def ask_reconfig(self, joining: bytes | None, leaving: bytes | None) -> bool:
        """Have the members changed; False if it is not connected."""
        if self._is_open:
            self._ask(calls.reconfig(joining, leaving))
        return self._is_open

    def ask_to_settle(self) -> None:
        """A write and a read that see what is left in the end."""
        self._ask(calls.set_data(REGISTERS[0], self._value()))
        self._ask(calls.read(Op.GET_DATA, REGISTERS[0], False))

    def _value(self) -> bytes:
        return b"%d.%d" % (self.number, self._calls)

    def _drawn(self) -> Call:
        chance = self.world.chance
        register = chance.choice(REGISTERS)
        own = b"/e%d" % self.number
        # One that is content with what its member knows hardly writes: it stays where nobody else could.
        kind = chance.choices(_KINDS, _LOOKING if self.is_serializable else _WEIGHTS)[0]
        is_watched = chance.random() < 0.4
        if kind == "set":
            version = -1 if chance.random() < 0.5 else self._versions.get(register, 0)
            return calls.set_data(register, self._value(), version)
        if kind == "get":
            return calls.read(Op.GET_DATA, register, is_watched)
        if kind == "exists":
            return calls.read(Op.EXISTS, chance.choice((register, own, b"/e%d" % chance.randrange(4))), is_watched)
        if kind == "children":
            return calls.read(Op.GET_CHILDREN2, b"/", is_watched)
        if kind == "create":
            return calls.create(register, self._value())
        if kind == "delete":
            return calls.delete(register, -1 if chance.random() < 0.5 else self._versions.get(register, 0))
        if kind == "sequential":
            flags = chance.choice((CreateFlags.PERSISTENT_SEQUENTIAL, CreateFlags.EPHEMERAL_SEQUENTIAL))
            return calls.create(b"/n-", self._value(), flags)
        if kind == "ephemeral":
            return calls.create(own, self._value(), CreateFlags.EPHEMERAL)
        if kind == "drop":
            return calls.delete(own)
        if kind == "multi":
            return calls.all_or_none(*[calls.set_data(each, self._value()) for each in REGISTERS])
        if kind == "watch":
            where = chance.choice((b"/", register))
            return calls.add_watch(where, chance.choice((WatchKind.PERSISTENT, WatchKind.RECURSIVE)))
        if kind == "close":
            return calls.close_session()
        return calls.sync()

    def _ask(self, call: Call) -> None:
        assert self.line is not None
        if not call.xid:
            self._xid += 1
            call.xid = self._xid
        self._calls += 1
        call.client, call.number = self.number, self._calls
        call.floor = self.simulation.visible
        call.began = self.simulation.next_place()
        self.wants_to_close |= call.op == Op.CLOSE_SESSION
        if call.is_write:
            self.writes_sent += 1
            self.simulation.sent(self, call)
        if call.is_write or (call.op in READS and not self.is_serializable):
            self.simulation.calls.append(call)
        self._pending.append(call)
        self._sent_s = self.world.now_s
        self.line.send(request(call.xid, call.op, call.record))

    # ---- what it is told

    def _frame(self, payload: bytes) -> None:
        self._heard_s = self.world.now_s
        if not self._is_open:
            self._respond(payload)
            return
        reader = Reader(payload)
        xid, zxid, error = reader.int(), reader.long(), reader.int()
        if xid == NOTIFICATION_XID:
            event_type, _, path = reader.int(), reader.int(), reader.ustring() or b""
            self._book.notified(zxid, event_type, path, self._line_zxid)
            return
        require(bool(self._pending), "X1", f"client {self.number} asked for nothing and is answered {xid}")
        call = self._pending.popleft()
        require(call.xid == xid, "X1", f"{call}: its answer is {xid}, it was asked as {call.xid}")
        call.zxid, call.error, call.body = zxid, error, payload[reader.position :]
        call.ended = self.simulation.next_place()
        if call.op == Op.AUTH:
            require(not error, "auth", error)
            return
        require(zxid >= self._last_zxid, "X5", f"{call}, and zxid {self._last_zxid} was seen before")
        self._book.replied(zxid)
        self._last_zxid = self._line_zxid = zxid
        self.answered += xid != PING_XID
        self._answered(call)

    def _answered(self, call: Call) -> None:
        if call.op == Op.SET_WATCHES2:
            require(not call.error, "X7", f"{call}")
            self._book.set_again(call.zxid, self.line.connection.member.tree.history.oldest)
        elif call.is_write:
            self.simulation.write_answered(self, call)
        elif call.op in READS:
            self.simulation.read_answered(self, call)
            self._remember(call)
        elif call.op == Op.SYNC:
            require(call.zxid >= call.floor, "R1", f"{call}, and {call.floor} had been seen before")
        elif call.op == Op.ADD_WATCH and call.watch is not None:
            self._book.arm(call.watch, call.path, call.zxid)
        if call.op == Op.CLOSE_SESSION and not call.error:
            self._end_session()

    def _remember(self, call: Call) -> None:
        """Set the watch, and know the version."""
        if not call.error and call.op in (Op.GET_DATA, Op.EXISTS):
            self._versions[call.path] = int.from_bytes(call.body[-36:-32], signed=True)
        if call.watch is None:
            return
        if call.error == ErrorCode.NO_NODE and call.op == Op.EXISTS:
            self._book.arm(WatchKind.EXIST, call.path, call.zxid)
        elif not call.error:
            self._book.arm(call.watch, call.path, call.zxid)


_MIX = {
    "set": 16, "get": 16, "exists": 6, "children": 6, "create": 8, "delete": 4, "sequential": 8, "ephemeral": 4,
    "drop": 2, "multi": 4, "watch": 2, "close": 1, "sync": 4,
}  # fmt: skip
_KINDS = tuple(_MIX)
_WEIGHTS = tuple(_MIX.values())
_LOOKING = tuple(_MIX[kind] if kind in ("get", "exists", "children", "watch") else _MIX[kind] / 20 for kind in _MIX)
