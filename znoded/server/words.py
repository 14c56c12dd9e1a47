"""Four-letter words: what operators and their tools ask on the client port (protocol facts 1.7).

The texts are those of ZooKeeper 3.9.5, line by line, since tools take them apart with regular expressions.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import resource
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache

import znoded
from znoded.config_values import EVERY_WORD
from znoded.jute.ops import Op
from znoded.server.server_view import READ_ONLY, ConnectionView, ServerView
from znoded.server.wall_clock import wall_ms

#: The release of ZooKeeper whose protocol and texts these are: clients decide by it what they may ask.
ZOOKEEPER_RELEASE = "3.9.5"

TRACE_MASK_BYTES = 8
#: What telnet sends on its way out.
TELNET_CLOSE = b"\xff\xf4\xff\xfd"
#: ZooKeeper's own default. Nothing is traced by it here; it is kept for tools that set it and read it back.
DEFAULT_TRACE_MASK = 306
NOT_SERVING = "This ZooKeeper instance is not currently serving requests\n"
MIB = 1 << 20

#: Op to the name that `cons` gives it.
OP_NAMES: Mapping[int, str] = {
    Op.PING: "PING",
    Op.CREATE_SESSION: "SESS",
    Op.MULTI: "MULT",
    Op.MULTI_READ: "MLTR",
    Op.CREATE: "CREA",
    Op.CREATE2: "CREA",
    Op.CREATE_CONTAINER: "CREA",
    Op.CREATE_TTL: "CREA",
    Op.DELETE: "DELE",
    Op.SET_DATA: "SETD",
    Op.RECONFIG: "RECO",
    Op.SET_ACL: "SETA",
    Op.CLOSE_SESSION: "CLOS",
    Op.SYNC: "SYNC",
    Op.EXISTS: "EXIS",
    Op.GET_DATA: "GETD",
    Op.SET_WATCHES: "SETW",
    Op.SET_WATCHES2: "STW2",
    Op.ADD_WATCH: "ADDW",
    Op.GET_ACL: "GETA",
    Op.GET_CHILDREN: "GETC",
    Op.GET_CHILDREN2: "GETC",
    Op.GET_ALL_CHILDREN_NUMBER: "GETACN",
    Op.CHECK_WATCHES: "CHKW",
    Op.REMOVE_WATCHES: "REMW",
    Op.WHO_AM_I: "HOMI",
    Op.GET_EPHEMERALS: "GETE",
}


@cache
def version_text() -> str:
    """The version as ZooKeeper's tools expect it: `3.9.5-<40 hex digits>, built on <minute> UTC`.

    The digits stand for the release of znoded; the time is that of its files.
    """
    build = hashlib.sha1(f"znoded {znoded.__version__}".encode(), usedforsecurity=False).hexdigest()
    built = datetime.fromtimestamp(os.path.getmtime(__file__), UTC)
    return f"{ZOOKEEPER_RELEASE}-{build}, built on {built:%Y-%m-%d %H:%M} UTC"


class Words:
    """Answers four-letter words for one server. `allow` holds the words that are answered, or `*` for all."""

    def __init__(self, server: ServerView, allow: Collection[str]) -> None:
        self._server = server
        self._trace_mask = DEFAULT_TRACE_MASK
        self._allowed = frozenset(word.encode() for word in allow)
        self._always: dict[bytes, Callable[[], str]] = {
            b"ruok": lambda: "imok",
            b"isro": self._isro,
            b"envi": self._envi,
            b"gtmk": self._gtmk,
            TELNET_CLOSE: lambda: "",
        }
        self._serving: dict[bytes, Callable[[], str]] = {
            b"conf": self._conf,
            b"cons": self._cons,
            b"crst": self._crst,
            b"dirs": self._dirs,
            b"dump": self._dump,
            b"hash": lambda: "",  # no digests of the tree are kept
            b"mntr": self._mntr,
            b"srst": self._srst,
            b"srvr": self._srvr,
            b"stat": self._stat,
            b"wchc": self._wchc,
            b"wchp": self._wchp,
            b"wchs": self._wchs,
        }
        self._known = {*self._always, *self._serving, b"stmk"}

    def is_word(self, first_bytes: bytes) -> bool:
        """Whether the first four bytes of a connection are a word, and not the length of a frame."""
        return first_bytes in self._known

    def answer(self, word: bytes, argument: bytes) -> bytes:
        """What to send before the connection is closed, for a word that `is_word` knows.

        `argument` is what came with it, as far as it was there.
        """
        if word != TELNET_CLOSE and not self._is_allowed(word):
            return word + b" is not executed because it is not in the whitelist.\n"
        return self.render(word, argument)

    def _is_allowed(self, word: bytes) -> bool:
        return word in self._allowed or EVERY_WORD.encode() in self._allowed

    def render(self, word: bytes, argument: bytes = b"") -> bytes:
        """The answer to a word that `is_word` knows, whether it is allowed to clients or not."""
        if word in self._always:
            text = self._always[word]()
        elif word == b"stmk":
            text = self._stmk(argument)
        else:
            text = self._serving[word]() if self._server.serving else NOT_SERVING
        return text.encode(errors="surrogateescape")

    # ---- the server

    def _isro(self) -> str:
        if not self._server.serving:
            return "null"
        return "ro" if self._server.mode == READ_ONLY else "rw"

    def _srvr(self) -> str:
        return f"Zookeeper version: {version_text()}\n{self._counts()}"

    def _stat(self) -> str:
        clients = "".join(f"{_connection_line(connection)})\n" for connection in self._server.connections())
        return f"Zookeeper version: {version_text()}\nClients:\n{clients}\n{self._counts()}"

    def _counts(self) -> str:
        server = self._server
        stats = server.stats
        min_ms, max_ms = int(stats.latency_min_ms), int(stats.latency_max_ms)
        counters = dict(server.counters())
        sizes = [counters.get(f"{which}_proposal_size") for which in ("last", "min", "max")]  # a leader's only
        return (
            f"Latency min/avg/max: {min_ms}/{_decimal(stats.latency_avg_ms)}/{max_ms}\n"
            f"Received: {stats.packets_received}\n"
            f"Sent: {stats.packets_sent}\n"
            f"Connections: {len(server.connections())}\n"
            f"Outstanding: {server.outstanding}\n"
            f"Zxid: {_hex(server.zxid)}\n"
            f"Mode: {server.mode}\n"
            f"Node count: {server.node_count}\n"
            + ("" if None in sizes else "Proposal sizes last/min/max: {}/{}/{}\n".format(*sizes))
        )

    def _mntr(self) -> str:
        server = self._server
        stats = server.stats
        values: dict[str, object] = {
            "version": version_text(),
            "server_state": server.mode,
            "avg_latency": _decimal(stats.latency_avg_ms),
            "max_latency": int(stats.latency_max_ms),
            "min_latency": int(stats.latency_min_ms),
            "packets_received": stats.packets_received,
            "packets_sent": stats.packets_sent,
            "num_alive_connections": len(server.connections()),
            "outstanding_requests": server.outstanding,
            "uptime": server.uptime_ms,
            "znode_count": server.node_count,
            "watch_count": server.watches.data_count,
            "ephemerals_count": server.ephemeral_count,
            "approximate_data_size": server.data_bytes,
            "global_sessions": len(server.sessions),
            "local_sessions": 0,
            "open_file_descriptor_count": len(os.listdir("/proc/self/fd")),
            "max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "connection_drop_probability": "0.0",
            **dict(server.counters()),
        }
        return "".join(f"zk_{key}\t{value}\n" for key, value in values.items())

    def _conf(self) -> str:
        server = self._server
        config = server.config
        state_bytes, log_bytes = server.directory_bytes()
        return (
            _lines(
                clientPort=server.client_port,
                secureClientPort=server.secure_client_port,
                dataDir=os.path.join(config.data_dir, "state"),
                dataDirSize=state_bytes,
                dataLogDir=os.path.join(config.data_dir, "log"),
                dataLogSize=log_bytes,
                tickTime=config.tick_ms,
                maxClientCnxns=config.limits.connections_per_address,
                minSessionTimeout=config.session_timeout_min_ms,
                maxSessionTimeout=config.session_timeout_max_ms,
                clientPortListenBacklog=-1,
                serverId=config.member,
            )
            + server.cell_lines()
        )

    def _envi(self) -> str:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        with open("/proc/self/statm", encoding="ascii") as file:
            resident_bytes = int(file.read().split()[1]) * page_bytes
        values = {
            "zookeeper.version": version_text(),
            "host.name": socket.gethostname(),
            "znoded.version": znoded.__version__,
            "python.version": platform.python_version(),
            "os.name": platform.system(),
            "os.arch": platform.machine(),
            "os.version": platform.release(),
            "user.name": _user_name(),
            "user.home": os.path.expanduser("~"),
            "user.dir": os.getcwd(),
            "os.memory.free": f"{os.sysconf('SC_AVPHYS_PAGES') * page_bytes // MIB}MB",
            "os.memory.max": f"{os.sysconf('SC_PHYS_PAGES') * page_bytes // MIB}MB",
            "os.memory.total": f"{resident_bytes // MIB}MB",
        }
        return "Environment:\n" + _lines(**values)

    def _dirs(self) -> str:
        state_bytes, log_bytes = self._server.directory_bytes()
        return f"datadir_size: {state_bytes}\nlogdir_size: {log_bytes}\n"

    def _srst(self) -> str:
        self._server.stats.reset()
        return "Server stats reset.\n"

    def _gtmk(self) -> str:
        return str(self._trace_mask)

    def _stmk(self, argument: bytes) -> str:
        if len(argument) < TRACE_MASK_BYTES:
            return ""  # as ZooKeeper, which does not wait for it
        self._trace_mask = int.from_bytes(argument[:TRACE_MASK_BYTES], "big", signed=True)
        return self._gtmk()

    # ---- connections and sessions

    def _cons(self) -> str:
        boot_ms = wall_ms() - self._server.monotonic_ms()
        connections = self._server.connections()
        return "".join(f"{_connection_line(each)}{_session_part(each, boot_ms)})\n" for each in connections) + "\n"

    def _crst(self) -> str:
        self._server.reset_connection_stats()
        return "Connection stats reset.\n"

    def _dump(self) -> str:
        server = self._server
        boot_ms = wall_ms() - server.monotonic_ms()
        sessions = server.sessions.expiry_buckets()
        deadline_of = {session_id: deadline_ms for deadline_ms, ids in sessions.items() for session_id in ids}
        connections: dict[int, list[str]] = {}
        for connection in server.connections():
            without_session_ms = connection.accepted_ms + server.config.limits.handshake_timeout_ms
            deadline_ms = deadline_of.get(connection.session_id, without_session_ms)
            line = f"ip: {_address(connection)} sessionId: {_hex(connection.session_id)}"
            connections.setdefault(deadline_ms, []).append(line)
        ephemerals = [(_hex(session_id), paths) for session_id, paths in server.ephemerals()]
        return "".join(
            (
                "SessionTracker dump:\n",
                *_expiry_sets("Session", {ms: [_hex(each) for each in ids] for ms, ids in sessions.items()}, boot_ms),
                "ephemeral nodes dump:\n",
                f"Sessions with Ephemerals ({len(ephemerals)}):\n",
                *(f"{session}:\n{_indented(paths)}" for session, paths in ephemerals),
                "Connections dump:\n",
                *_expiry_sets("Connections", connections, boot_ms),
            )
        )

    # ---- watches

    def _wchs(self) -> str:
        watches = self._server.watches
        watchers = sum(1 for _ in watches.data_paths_by_watcher())
        paths = watches.data_path_count
        return f"{watchers} connections watching {paths} paths\nTotal watches:{watches.data_count}\n"

    def _wchc(self) -> str:
        by_watcher = self._server.watches.data_paths_by_watcher()
        return "".join(f"{_hex(watcher.session_id)}\n{_indented(paths)}" for watcher, paths in by_watcher) + "\n"

    def _wchp(self) -> str:
        by_path = self._server.watches.data_watchers_by_path()
        lines = (
            f"{_text(path)}\n" + "".join(f"\t{_hex(watcher.session_id)}\n" for watcher in watchers)
            for path, watchers in by_path
        )
        return "".join(lines) + "\n"


# ---- forms


def _lines(**values: object) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _hex(number: int) -> str:
    """A long as Java writes it in hex: negative ones by their 64 bits."""
    return f"0x{number & 0xFFFF_FFFF_FFFF_FFFF:x}"


def _decimal(number: float) -> str:
    """A mean as ZooKeeper writes it: at most four places, at least one."""
    return str(round(number, 4))


def _text(path: bytes) -> str:
    return path.decode(errors="surrogateescape")


def _indented(paths: Iterable[bytes]) -> str:
    return "".join(f"\t{_text(path)}\n" for path in paths)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container may run as a number without a name


def _address(connection: ConnectionView) -> str:
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    return f"/{host}:{connection.port}"


def _connection_line(connection: ConnectionView) -> str:
    """The part that `stat` and `cons` share, open at its end. In brackets: 1 to read from, 4 with output queued."""
    interest = 1 * connection.is_reading + 4 * connection.is_blocked
    queued = len(connection.pending or ())
    received, sent = connection.stats.packets_received, connection.stats.packets_sent
    return f" {_address(connection)}[{interest}](queued={queued},recved={received},sent={sent}"


def _session_part(connection: ConnectionView, boot_ms: int) -> str:
    """What `cons` adds for a connection with a session. `boot_ms` is when the monotonic clock began, since 1970."""
    live = connection.live
    if live is None:
        return ""
    parts = {
        "sid": _hex(connection.session_id),
        "lop": OP_NAMES.get(connection.last_op, "NA"),
        "est": boot_ms + connection.accepted_ms,
        "to": live.timeout_ms,
        **({"lcxid": _hex(connection.last_xid)} if connection.last_xid >= 0 else {}),
        "lzxid": _hex(connection.last_zxid),
        "lresp": live.heard_ms,
        "llat": int(connection.stats.latency_last_ms),
        "minlat": int(connection.stats.latency_min_ms),
        "avglat": int(connection.stats.latency_avg_ms),
        "maxlat": int(connection.stats.latency_max_ms),
    }
    return "".join(f",{key}={value}" for key, value in parts.items())


def _expiry_sets(title: str, sets: Mapping[int, list[str]], boot_ms: int) -> Iterator[str]:
    """What ends when. The keys are ms on the monotonic clock, which began at `boot_ms` since 1970."""
    yield f"{title} Sets ({len(sets)})/({sum(map(len, sets.values()))}):\n"
    for deadline_ms in sorted(sets):
        members = sets[deadline_ms]
        ends = datetime.fromtimestamp((boot_ms + deadline_ms) / 1000, UTC)
        yield f"{len(members)} expire at {ends:%a %b %d %H:%M:%S UTC %Y}:\n"
        yield from (f"\t{member}\n" for member in members)
