"""What clients ask for, and what the answers have to be, as the state says that the answer was made from."""

from __future__ import annotations

from enum import Enum

from tests.jute.factory import i4, multi, string, strings
from tests.server.harness import OPEN_ACL
from tests.simulation.reference import State
from tests.zab_raft.core.history import require
from znoded.jute.errors import ErrorCode
from znoded.jute.ops import AUTH_XID, PING_XID, SET_WATCHES_XID, Op
from znoded.jute.primitives import Reader
from znoded.jute.stat import STAT

STAT_BYTES = STAT.size
WRITES = frozenset(map(int, (Op.CREATE, Op.DELETE, Op.SET_DATA, Op.MULTI, Op.RECONFIG, Op.CLOSE_SESSION)))
READS = frozenset(map(int, (Op.GET_DATA, Op.EXISTS, Op.GET_CHILDREN2)))
#: Errors of a member that did nothing with the request.
UNDONE = (int(ErrorCode.SYSTEM_ERROR), int(ErrorCode.NOT_READ_ONLY))


class WatchKind(Enum):
    """As a client sets them, and sets them again."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


class Call:
    """One request, and what became of it. `began` and `ended` are places in the order of all that clients saw."""

    __slots__ = (
        "began", "body", "client", "data", "ended", "error", "flags", "floor", "number", "op", "parts", "path",
        "record", "version", "watch", "xid", "zxid",
    )  # fmt: skip

    def __init__(self, op: int, record: bytes, path: bytes = b"") -> None:
        self.op = op
        self.record = record
        self.path = path
        self.xid = {Op.PING: PING_XID, Op.AUTH: AUTH_XID, Op.SET_WATCHES2: SET_WATCHES_XID}.get(Op(op), 0)
        self.client = 0
        self.number = 0
        self.data = b""
        self.version = -1
        self.flags = 0
        self.watch: WatchKind | None = None
        self.parts: tuple[Call, ...] = ()
        self.floor = 0
        self.began = 0
        self.ended: int | None = None
        self.error = 0
        self.zxid = 0
        self.body = b""

    @property
    def is_write(self) -> bool:
        return self.op in WRITES

    @property
    def is_done(self) -> bool:
        """It was answered, by a member that did not refuse to try."""
        return self.ended is not None and not (self.is_write and self.error in UNDONE)

    def __str__(self) -> str:
        what = f"{Op(self.op).name.lower()} {self.path.decode()}"
        return f"client {self.client} {what} {self.data.decode()} -> {self.error} at zxid {self.zxid}"


def create(path: bytes, data: bytes, flags: int = 0) -> Call:
    call = Call(Op.CREATE, string(path) + string(data) + OPEN_ACL + i4(flags), path)
    call.data, call.flags = data, flags
    return call


def set_data(path: bytes, data: bytes, version: int = -1) -> Call:
    call = Call(Op.SET_DATA, string(path) + string(data) + i4(version), path)
    call.data, call.version = data, version
    return call


def delete(path: bytes, version: int = -1) -> Call:
    call = Call(Op.DELETE, string(path) + i4(version), path)
    call.version = version
    return call


def all_or_none(*parts: Call) -> Call:
    call = Call(Op.MULTI, multi(*[(part.op, part.record) for part in parts]))
    call.parts = parts
    return call


def read(op: Op, path: bytes, is_watched: bool) -> Call:
    call = Call(op, string(path) + bytes([is_watched]), path)
    if is_watched:
        call.watch = WatchKind.CHILD if op == Op.GET_CHILDREN2 else WatchKind.DATA
    return call


def sync() -> Call:
    return Call(Op.SYNC, string(b"/"), b"/")


def ping() -> Call:
    return Call(Op.PING, b"")


def close_session() -> Call:
    return Call(Op.CLOSE_SESSION, b"")


def auth(scheme: bytes, text: bytes) -> Call:
    return Call(Op.AUTH, i4(0) + string(scheme) + string(text))


def add_watch(path: bytes, kind: WatchKind) -> Call:
    call = Call(Op.ADD_WATCH, string(path) + i4(int(kind is WatchKind.RECURSIVE)), path)
    call.watch = kind
    return call


def set_watches(zxid: int, paths: dict[WatchKind, list[bytes]]) -> Call:
    lists = [strings(*paths[kind]) for kind in WatchKind]
    return Call(Op.SET_WATCHES2, zxid.to_bytes(8) + b"".join(lists))


def reconfig(joining: bytes | None, leaving: bytes | None) -> Call:
    return Call(Op.RECONFIG, string(joining) + string(leaving) + string(None) + (-1).to_bytes(8, signed=True))


def check_read(call: Call, state: State) -> None:
    """The answer to a read is what the state has."""
    node = state.nodes.get(call.path)
    if node is None:
        require(call.error == ErrorCode.NO_NODE, "R1", f"{call}, and there was no such node")
        return
    require(not call.error, "R1", f"{call}, and the node was there")
    if call.op == Op.GET_DATA:
        require(call.body == node, "R1", f"{call} is {call.body!r}, and the node was {node!r}")
    elif call.op == Op.EXISTS:
        require(call.body == node[-STAT_BYTES:], "R1", f"{call} has another Stat")
    else:
        names = Reader(call.body).strings() or []
        require(call.body.endswith(node[-STAT_BYTES:]), "R1", f"{call} has another Stat")
        prefix = call.path.rstrip(b"/") + b"/"
        children = {path[len(prefix) :] for path in state.nodes if path.startswith(prefix) and path != call.path}
        there = {name for name in children if b"/" not in name}
        require(sorted(names) == sorted(there), "R1", f"{call} is {names}, there were {there}")
