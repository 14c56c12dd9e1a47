"""Four-letter words. The expected texts were recorded from ZooKeeper 3.9.5."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

import znoded
from znoded.config import Config, Limits
from znoded.config_values import FOUR_LETTER_WORDS
from znoded.jute.ops import Op
from znoded.server.stats import RequestStats
from znoded.server.words import TELNET_CLOSE, Words, version_text
from znoded.watches.table import Watches

EVERY_WORD = [*(word.encode() for word in FOUR_LETTER_WORDS), TELNET_CLOSE]


@dataclass
class Live:
    timeout_ms: int = 10_000
    heard_ms: int = 7_000


def one_packet_received() -> RequestStats:
    stats = RequestStats()
    stats.packets_received = 1
    return stats


@dataclass(eq=False)
class Connection:
    host: str = "127.0.0.1"
    port: int = 41812
    session_id: int = 0
    live: Live | None = None
    is_reading: bool = True
    is_blocked: bool = False
    pending: deque[Any] | None = None
    accepted_ms: int = 5_000
    stats: RequestStats = field(default_factory=one_packet_received)
    last_op: int = 0
    last_xid: int = -1
    last_zxid: int = 0


class Sessions:
    def __init__(self) -> None:
        self.buckets: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.buckets.values()))

    def expiry_buckets(self) -> dict[int, list[int]]:
        return self.buckets


@dataclass
class Server:
    """A server that is what the tests say it is."""

    config: Config = field(
        default_factory=lambda: Config(data_dir="/data", tick_ms=2000, limits=Limits(connections_per_address=0))
    )
    serving: bool = True
    mode: str = "standalone"
    zxid: int = 5
    client_port: int = 2181
    secure_client_port: int = -1
    uptime_ms: int = 3_555
    stats: RequestStats = field(default_factory=RequestStats)
    outstanding: int = 0
    node_count: int = 8
    ephemeral_count: int = 3
    data_bytes: int = 53
    sessions: Sessions = field(default_factory=Sessions)
    watches: Watches[Any] = field(default_factory=Watches)
    connected: list[Connection] = field(default_factory=list)
    owned: list[tuple[int, list[bytes]]] = field(default_factory=list)
    connection_stats_resets: int = 0
    lines_of_cell: str = ""
    counted: list[tuple[str, int | float | str]] = field(default_factory=lambda: [("auth_failed_count", 2)])

    def monotonic_ms(self) -> int:
        return 8_000

    def connections(self) -> Collection[Connection]:
        return self.connected

    def ephemerals(self) -> Iterable[tuple[int, Collection[bytes]]]:
        return self.owned

    def directory_bytes(self) -> tuple[int, int]:
        return 4096, 67_109_358

    def counters(self) -> Iterable[tuple[str, int | float | str]]:
        return self.counted

    def cell_lines(self) -> str:
        return self.lines_of_cell

    def reset_connection_stats(self) -> None:
        self.connection_stats_resets += 1


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def words(server: Server) -> Words:
    return Words(server, ["*"])


@pytest.fixture
def _at_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock began a day after 1970 began, and is at 8 s."""
    monkeypatch.setattr("time.time", lambda: 86_408.0)


def ask(words: Words, word: bytes, argument: bytes = b"") -> str:
    assert words.is_word(word)
    return words.answer(word, argument).decode()


def busy_connection() -> Connection:
    stats = RequestStats()
    stats.answered(1, 0.2)
    stats.answered(1, 5.1)
    stats.packets_received = 4
    stats.packets_sent = 3
    stats.latency_last_ms = 1.9
    return Connection(
        session_id=0x10000194AAB0001,
        live=Live(),
        stats=stats,
        pending=deque([None]),
        last_op=Op.GET_DATA,
        last_xid=3,
        last_zxid=0x5F,
    )


# ---- which words there are


@pytest.mark.parametrize("word", EVERY_WORD)
def test_every_word_of_the_protocol_is_known(words: Words, word: bytes) -> None:
    assert words.is_word(word)
    words.answer(word, b"")


@pytest.mark.parametrize("first_bytes", [b"\0\0\0\x2d", b"GET ", b"kill", b"ruo", b"RUOK"])
def test_the_length_of_a_frame_is_no_word(words: Words, first_bytes: bytes) -> None:
    assert not words.is_word(first_bytes)


def test_a_word_that_is_not_allowed_is_refused_by_name(server: Server) -> None:
    words = Words(server, ["ruok"])
    assert ask(words, b"ruok") == "imok"
    assert ask(words, b"wchp") == "wchp is not executed because it is not in the whitelist.\n"
    assert ask(words, b"stmk") == "stmk is not executed because it is not in the whitelist.\n"


def test_a_word_can_be_rendered_though_clients_may_not_ask_it(server: Server) -> None:
    words = Words(server, [])
    assert words.render(b"ruok") == b"imok"
    assert words.render(b"dirs") == b"datadir_size: 4096\nlogdir_size: 67109358\n"


def test_the_end_of_a_telnet_is_answered_with_nothing(server: Server) -> None:
    assert ask(Words(server, []), b"\xff\xf4\xff\xfd") == ""


def test_a_server_that_does_not_serve_says_so(server: Server, words: Words) -> None:
    server.serving = False
    for word in (b"srvr", b"stat", b"mntr", b"cons", b"conf", b"dirs", b"dump", b"wchs", b"srst", b"crst"):
        assert ask(words, word) == "This ZooKeeper instance is not currently serving requests\n"
    assert ask(words, b"isro") == "null"
    assert ask(words, b"ruok") == "imok"
    assert ask(words, b"envi").startswith("Environment:\n")


# ---- the server


def test_isro_on_a_serving_server_is_rw(words: Words) -> None:
    assert ask(words, b"isro") == "rw"


def test_the_version_is_read_by_all_kinds_of_tools() -> None:
    assert re.fullmatch(r"3\.9\.5-[0-9a-f]{40}, built on \d{4}-\d\d-\d\d \d\d:\d\d UTC", version_text())


def test_srvr(server: Server, words: Words) -> None:
    server.stats.packets_received = 59
    server.stats.answered(9, 18.44444)
    server.stats.answered(1, 0.3)
    server.stats.packets_sent = 58
    server.connected = [Connection(), Connection()]
    assert ask(words, b"srvr") == (
        f"Zookeeper version: {version_text()}\n"
        "Latency min/avg/max: 0/16.63/18\nReceived: 59\nSent: 58\nConnections: 2\nOutstanding: 0\nZxid: 0x5\n"
        "Mode: standalone\nNode count: 8\n"
    )


def test_srvr_of_a_leader_ends_with_the_sizes_of_its_proposals(server: Server, words: Words) -> None:
    server.counted = [("last_proposal_size", 48), ("min_proposal_size", 36), ("max_proposal_size", 146)]
    assert ask(words, b"srvr").endswith("\nNode count: 8\nProposal sizes last/min/max: 48/36/146\n")
    assert ask(words, b"stat").endswith("\nNode count: 8\nProposal sizes last/min/max: 48/36/146\n")


def test_an_untouched_server_has_a_decimal_mean_latency(words: Words) -> None:
    assert "\nLatency min/avg/max: 0/0.0/0\n" in ask(words, b"srvr")


def test_stat_is_srvr_with_the_clients_in_it(server: Server, words: Words) -> None:
    server.connected = [busy_connection(), Connection(host="::1", port=5, is_blocked=True)]
    version, _, counts = ask(words, b"srvr").partition("\n")
    assert ask(words, b"stat") == (
        f"{version}\nClients:\n"
        " /127.0.0.1:41812[1](queued=1,recved=4,sent=3)\n"
        " /[::1]:5[5](queued=0,recved=1,sent=0)\n"
        f"\n{counts}"
    )


def test_mntr_has_the_keys_that_collectors_read(words: Words) -> None:
    lines = dict(line.split("\t") for line in ask(words, b"mntr").splitlines())
    assert all(key.startswith("zk_") for key in lines)
    assert lines.pop("zk_version") == version_text()
    assert lines.pop("zk_server_state") == "standalone"
    assert int(lines.pop("zk_open_file_descriptor_count")) > 2
    assert int(lines.pop("zk_max_file_descriptor_count")) > 2
    assert lines == {
        "zk_avg_latency": "0.0",
        "zk_max_latency": "0",
        "zk_min_latency": "0",
        "zk_packets_received": "0",
        "zk_packets_sent": "0",
        "zk_num_alive_connections": "0",
        "zk_outstanding_requests": "0",
        "zk_uptime": "3555",
        "zk_znode_count": "8",
        "zk_watch_count": "0",
        "zk_ephemerals_count": "3",
        "zk_approximate_data_size": "53",
        "zk_global_sessions": "0",
        "zk_local_sessions": "0",
        "zk_connection_drop_probability": "0.0",
        "zk_auth_failed_count": "2",
    }


def test_conf(words: Words) -> None:
    assert ask(words, b"conf") == (
        "clientPort=2181\nsecureClientPort=-1\ndataDir=/data/state\ndataDirSize=4096\ndataLogDir=/data/log\n"
        "dataLogSize=67109358\ntickTime=2000\nmaxClientCnxns=0\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n"
        "clientPortListenBacklog=-1\nserverId=1\n"
    )


def test_conf_of_a_cells_member_tells_of_the_cell(words: Words, server: Server) -> None:
    server.lines_of_cell = "electionAlg=3\n"
    assert ask(words, b"conf").endswith("serverId=1\nelectionAlg=3\n")


@pytest.mark.parametrize(("mode", "answer"), [("leader", "rw"), ("read-only", "ro")])
def test_isro_tells_who_may_write(words: Words, server: Server, mode: str, answer: str) -> None:
    server.mode = mode
    assert ask(words, b"isro") == answer


def test_dirs(words: Words) -> None:
    assert ask(words, b"dirs") == "datadir_size: 4096\nlogdir_size: 67109358\n"


def test_envi_names_the_version_first(words: Words) -> None:
    heading, *lines = ask(words, b"envi").splitlines()
    assert heading == "Environment:"
    values = dict(line.split("=", 1) for line in lines)
    assert list(values)[:2] == ["zookeeper.version", "host.name"]
    assert values["zookeeper.version"] == version_text()
    assert values["znoded.version"] == znoded.__version__
    assert all(values.values())
    assert all(re.fullmatch(r"\d+MB", values[f"os.memory.{part}"]) for part in ("free", "max", "total"))


def test_envi_fits_into_the_one_segment_that_kazoo_reads(words: Words) -> None:
    assert len(ask(words, b"envi")) < 1400


def test_envi_names_a_user_without_a_name_by_number(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name() -> str:
        raise KeyError("no such user")

    monkeypatch.setattr("getpass.getuser", no_name)
    assert f"\nuser.name={os.getuid()}\n" in ask(words, b"envi")


def test_srst_zeroes_the_counts_of_the_server(server: Server, words: Words) -> None:
    server.stats.packets_received = 59
    assert ask(words, b"srst") == "Server stats reset.\n"
    assert server.stats.packets_received == 0


def test_crst_zeroes_the_counts_of_the_connections(server: Server, words: Words) -> None:
    assert ask(words, b"crst") == "Connection stats reset.\n"
    assert server.connection_stats_resets == 1


def test_the_trace_mask_is_kept(words: Words) -> None:
    assert ask(words, b"gtmk") == "306"
    assert ask(words, b"stmk", (0o777).to_bytes(8, "big") + b"\n") == "511"
    assert ask(words, b"gtmk") == "511"


def test_a_trace_mask_that_is_not_whole_is_left_unanswered(words: Words) -> None:
    assert ask(words, b"stmk") == ""
    assert ask(words, b"stmk", bytes(7)) == ""
    assert ask(words, b"gtmk") == "306"


# ---- connections and sessions


@pytest.mark.usefixtures("_at_1970")
def test_cons_tells_of_the_session_of_a_connection(server: Server, words: Words) -> None:
    server.connected = [busy_connection()]
    assert ask(words, b"cons") == (
        " /127.0.0.1:41812[1](queued=1,recved=4,sent=3,sid=0x10000194aab0001,lop=GETD,est=86405000,to=10000,lcxid=0x3"
        ",lzxid=0x5f,lresp=7000,llat=1,minlat=0,avglat=2,maxlat=5)\n\n"
    )


def test_cons_of_a_connection_without_a_session_is_short(server: Server, words: Words) -> None:
    server.connected = [Connection()]
    assert ask(words, b"cons") == " /127.0.0.1:41812[1](queued=0,recved=1,sent=0)\n\n"


def test_a_connection_that_is_not_read_from_has_no_1_in_its_bracket(server: Server, words: Words) -> None:
    server.connected = [Connection(is_reading=False), Connection(is_reading=False, is_blocked=True)]
    assert re.findall(r"\[(\d)\]", ask(words, b"cons")) == ["0", "4"]


def test_cons_leaves_out_an_xid_that_never_was(server: Server, words: Words) -> None:
    server.connected = [Connection(session_id=-2, live=Live(), last_op=99)]
    text = ask(words, b"cons")
    assert ",sid=0xfffffffffffffffe,lop=NA," in text
    assert "lcxid" not in text


@pytest.mark.usefixtures("_at_1970")
def test_dump(server: Server, words: Words) -> None:
    server.connected = [
        Connection(session_id=0x11, live=Live()),
        Connection(session_id=0x12, live=Live(), port=41796),
        Connection(port=41886),
    ]
    server.sessions.buckets = {18_000: [0x11, 0x12], 12_000: [0x13]}
    server.owned = [(0x11, [b"/e"]), (0x12, [b"/f", b"/g"])]
    assert ask(words, b"dump") == (
        "SessionTracker dump:\n"
        "Session Sets (2)/(3):\n"
        "1 expire at Fri Jan 02 00:00:12 UTC 1970:\n\t0x13\n"
        "2 expire at Fri Jan 02 00:00:18 UTC 1970:\n\t0x11\n\t0x12\n"
        "ephemeral nodes dump:\n"
        "Sessions with Ephemerals (2):\n0x11:\n\t/e\n0x12:\n\t/f\n\t/g\n"
        "Connections dump:\n"
        "Connections Sets (2)/(3):\n"
        "1 expire at Fri Jan 02 00:00:15 UTC 1970:\n\tip: /127.0.0.1:41886 sessionId: 0x0\n"
        "2 expire at Fri Jan 02 00:00:18 UTC 1970:\n"
        "\tip: /127.0.0.1:41812 sessionId: 0x11\n\tip: /127.0.0.1:41796 sessionId: 0x12\n"
    )


# ---- watches


@pytest.fixture
def _watched(server: Server) -> None:
    first, second = Connection(session_id=0x11), Connection(session_id=0x12)
    server.watches.add_data(b"/e", first)
    server.watches.add_persistent("/né".encode(), first)
    server.watches.add_data(b"/e", second)
    server.watches.add_children(b"/other", second)


@pytest.mark.usefixtures("_watched")
def test_wchs_counts_the_data_table(words: Words) -> None:
    assert ask(words, b"wchs") == "2 connections watching 2 paths\nTotal watches:3\n"


@pytest.mark.usefixtures("_watched")
def test_wchc_lists_paths_by_session(words: Words) -> None:
    assert ask(words, b"wchc") == "0x11\n\t/e\n\t/né\n0x12\n\t/e\n\n"


@pytest.mark.usefixtures("_watched")
def test_wchp_lists_sessions_by_path(words: Words) -> None:
    assert ask(words, b"wchp") == "/e\n\t0x11\n\t0x12\n/né\n\t0x11\n\n"


def test_a_watched_path_that_is_not_utf8_comes_out_as_it_went_in(server: Server, words: Words) -> None:
    server.watches.add_data(b"/\xff", Connection(session_id=0x11))
    assert words.answer(b"wchp", b"") == b"/\xff\n\t0x11\n\n"
