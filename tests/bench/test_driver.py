"""The load driver counts what a server was asked, and says so when something is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import driver
from bench.driver import BackgroundLoad, DriverError, NullServer, load
from tests.bench.fake_server import AUTH, CLOSE_SESSION, CREATE, DELETE, GET_DATA, SET_DATA, FakeServer

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build into a directory of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "CACHE", tmp_path_factory.mktemp("programs"))
        yield


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def filled(server: FakeServer) -> FakeServer:
    load(server.port, "fill", keys=5, connections=1)
    server.requests.clear()
    return server


def test_fill_creates_every_key_once(server: FakeServer) -> None:
    result = load(server.port, "fill", keys=1500, connections=4, depth=8, size=7)
    directories = {b"/bench", b"/bench/d0000", b"/bench/d0001"}
    keys = {b"/bench/d%04d/k%07d" % (number // 1000, number) for number in range(1500)}
    assert server.paths.keys() == {b"/"} | directories | keys
    assert server.paths[b"/bench/d0001/k0001499"] == b"x" * 7
    assert server.requests[CREATE] == 1503
    assert result["requests"] == 1500


def test_fill_lets_existing_keys_stand(filled: FakeServer) -> None:
    assert load(filled.port, "fill", keys=5, connections=2)["failed"] == 0


def test_threads_share_the_keys_and_the_connections(server: FakeServer) -> None:
    result = load(server.port, "fill", keys=30, connections=5, threads=3)
    assert (result["requests"], server.sessions) == (30, 5)
    assert len(server.paths) == 1 + 2 + 30


@pytest.mark.parametrize("threads", [1, 2])
def test_connections_are_spread_over_all_servers(server: FakeServer, threads: int) -> None:
    with FakeServer() as second, FakeServer() as third:
        servers = (server, second, third)
        ports = [each.port for each in servers]
        result = load(ports, "sessions", connections=99, depth=10, threads=threads)
        assert [each.sessions for each in servers] == [33, 33, 33]
        assert result["requests"] == 99


def test_every_session_asks_for_serializable_reads_before_it_reads(filled: FakeServer) -> None:
    result = load(filled.port, "get", keys=5, connections=7, seconds=0.1, warm_up=0, serializable=1)
    assert filled.requests[AUTH] == 7
    assert result["requests"] > 0


def test_a_server_without_serializable_reads_fails_the_run(filled: FakeServer) -> None:
    filled.knows_reads = False
    with pytest.raises(DriverError, match="knows no serializable reads"):
        load(filled.port, "get", keys=5, connections=1, seconds=0.1, warm_up=0, serializable=1)


@pytest.mark.parametrize(("mode", "op"), [("get", GET_DATA), ("set", SET_DATA)])
def test_without_a_warm_up_the_count_is_the_servers(filled: FakeServer, mode: str, op: int) -> None:
    result = load(filled.port, mode, keys=5, connections=3, depth=4, seconds=0.2, warm_up=0)
    asked = filled.requests[op]
    assert asked - 3 * 4 <= result["requests"] <= asked  # those on their way at the end do not count
    assert result["requests"] > 0
    assert result["requests_per_s"] == pytest.approx(result["requests"] / 0.2, rel=0.01)


def test_the_warm_up_does_not_count(filled: FakeServer) -> None:
    result = load(filled.port, "get", keys=5, connections=1, seconds=0.1, warm_up=0.3)
    assert 0 < result["requests"] < filled.requests[GET_DATA]


def test_a_mixed_load_reads_and_writes_in_the_given_share(filled: FakeServer) -> None:
    load(filled.port, "mixed", keys=5, connections=2, depth=8, seconds=0.3, warm_up=0, reads=0.75)
    requests = filled.requests[GET_DATA] + filled.requests[SET_DATA]
    spread = 5 * (0.75 * 0.25 / requests) ** 0.5  # five standard deviations
    assert filled.requests[GET_DATA] / requests == pytest.approx(0.75, abs=spread)


def test_create_makes_new_znodes_and_takes_them_away_again(filled: FakeServer) -> None:
    before = set(filled.paths)
    result = load(filled.port, "create", connections=2, depth=3, seconds=0.1, warm_up=0)
    assert set(filled.paths) == before
    created = filled.requests[CREATE] - 3  # the prefix, and a parent for each connection
    assert filled.requests[DELETE] == created + 2
    assert created - 6 <= result["requests"] <= created


def test_fanout_counts_the_events_of_every_watcher(filled: FakeServer) -> None:
    result = load(filled.port, "fanout", connections=8, seconds=0.2, warm_up=0)
    assert result["requests"] == 7 * filled.requests[SET_DATA]
    assert filled.requests[GET_DATA] == result["requests"]
    assert result["all_notified_p50_ms"] >= result["p50_ms"] > 0


def test_sessions_opens_as_many_as_asked_and_closes_them(server: FakeServer) -> None:
    result = load(server.port, "sessions", connections=50, depth=7)
    assert (result["requests"], server.sessions, server.requests[CLOSE_SESSION]) == (50, 50, 50)
    assert result["p99_ms"] > 0


def test_hold_keeps_sessions_alive_until_its_input_ends(server: FakeServer) -> None:
    holding = BackgroundLoad(server.port, "hold", connections=3, session_timeout_ms=1)
    assert holding.first_line() == {"mode": "hold", "connections": 3}
    assert server.pinged.wait(timeout=10)
    assert holding.running
    holding.end()
    assert (server.sessions, server.requests[CLOSE_SESSION]) == (3, 3)


def test_failed_requests_fail_the_run(server: FakeServer) -> None:
    with pytest.raises(DriverError, match="requests failed, the first with error -101"):
        load(server.port, "get", connections=1, seconds=0.1, warm_up=0)


def test_a_reply_out_of_order_fails_the_run(filled: FakeServer) -> None:
    filled.xid_shift = 1
    with pytest.raises(DriverError, match="out of order"):
        load(filled.port, "get", keys=5, connections=1, seconds=0.1, warm_up=0)


def test_nobody_listening_fails_the_run() -> None:
    with FakeServer() as gone:
        port = gone.port
    with pytest.raises(DriverError, match="Connection refused"):
        load(port, "get", connections=1, seconds=0.1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["get"],
        ["127.0.0.1", "get"],
        ["127.0.0.1:1,", "get"],
        ["127.0.0.1:1;127.0.0.1:2", "get"],
        [",".join(["127.0.0.1:1"] * 17), "get"],
        ["127.0.0.1:1", "take"],
        ["127.0.0.1:1", "get", "--depth", "0"],
    ],
    ids=["no address", "no port", "no second address", "no comma", "too many", "no such mode", "no requests"],
)
def test_a_wrong_command_line_explains_itself(arguments: list[str]) -> None:
    run = subprocess.run([driver.build("load"), *arguments], capture_output=True, text=True)
    assert run.returncode == 2
    assert "usage: load HOST:PORT" in run.stderr


def test_the_null_server_answers_everything(free_port: int) -> None:
    with NullServer(free_port, size_bytes=20):
        for mode in ("get", "set", "mixed", "create"):
            assert load(free_port, mode, connections=5, depth=4, seconds=0.1, warm_up=0)["requests"] > 0
        assert load(free_port, "fanout", connections=5, seconds=0.1, warm_up=0)["requests"] > 0


@pytest.fixture
def free_port() -> int:
    with FakeServer() as closed:
        return closed.port


def test_the_histogram_is_right_within_one_percent(tmp_path: Path) -> None:
    program = tmp_path / "quantiles"
    source = tmp_path / "quantiles.c"
    source.write_text(
        '#include "histogram.h"\n#include <stdio.h>\n#include <stdlib.h>\n'
        "int main(int argc, char **argv) {\n"
        "    static struct histogram h;\n"
        "    for (int i = 1; i < argc; i++) histogram_add(&h, strtoull(argv[i], 0, 10));\n"
        '    printf("[%llu, %llu, %llu]", (unsigned long long)histogram_quantile_ns(&h, 0.5),\n'
        "           (unsigned long long)histogram_quantile_ns(&h, 0.99), (unsigned long long)h.max_ns);\n}\n"
    )
    subprocess.run(["cc", "-I", driver.SOURCES, "-o", program, source], check=True)
    values = [str(number**3) for number in range(1000)]
    median, p99, most = json.loads(subprocess.run([program, *values], capture_output=True, check=True).stdout)
    assert median == pytest.approx(500**3, rel=0.01)
    assert p99 == pytest.approx(990**3, rel=0.01)
    assert most == 999**3
