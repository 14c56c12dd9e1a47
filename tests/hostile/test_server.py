"""Hostile clients against the whole program: an honest one does not notice, and the log says what was done."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from tests.hostile.frames import hostile_frames, random_pieces
from tests.hostile.wire import Wire, anonymous_bytes, assert_log_is_clean, log_lines, make_node, unharmed
from tests.interop.certificates import make_certificates
from tests.jute.factory import acl, frame, i4, i8, multi, request, string, vector
from tests.server.harness import create, exists, get_children, get_data, set_data
from tests.server_process import ServerProcess, free_port
from znoded.jute.ops import Op

pytestmark = pytest.mark.slow

StartServer = Callable[..., ServerProcess]
MIB = 1 << 20
FUZZ_S = 8


@pytest.mark.parametrize("seed", range(2))
def test_any_bytes_over_several_connections(znoded_server: StartServer, seed: int) -> None:
    server = znoded_server("tick_ms = 500")
    random = Random(seed)
    with unharmed(server), ExitStack() as stack:
        wires: list[Wire] = []
        ends_s = time.monotonic() + FUZZ_S
        while time.monotonic() < ends_s:
            if len(wires) < 20 or random.random() < 0.01:
                wires.append(stack.enter_context(Wire(server)))
                if random.random() < 0.9:
                    wires[-1].shake(1000)
            wire = random.choice(wires)
            try:
                for piece in random_pieces(random, hostile_frames(random)):
                    wire.send(piece)
            except (OSError, TimeoutError):
                wire.close()
                wires.remove(wire)
                continue
            if random.random() < 0.3 and wire.is_closed:
                wire.close()
                wires.remove(wire)


@pytest.mark.parametrize(
    ("toml", "count", "held", "limit"),
    [
        ("limits = { handshake_timeout_ms = 600_000 }", 10_000, 60, "limits.connections_per_address"),
        (
            "limits = { handshake_timeout_ms = 600_000, connections_per_address = 0, connections = 500 }",
            3_000,
            500,
            "limits.connections",
        ),
    ],
)
def test_thousands_of_connections(znoded_server: StartServer, toml: str, count: int, held: int, limit: str) -> None:
    server = znoded_server(toml)
    with unharmed(server), ExitStack() as stack:
        open_wires: list[Wire] = []
        for _ in range(count):
            try:
                wire = stack.enter_context(Wire(server))
            except ConnectionResetError:
                continue  # it was closed as soon as it was accepted
            # The server judges connections in their order, so those behind the limit can be waited for.
            if len(open_wires) < held - 1:
                open_wires.append(wire)
            else:
                wire.wait_until_closed()
                wire.close()
        assert not any(wire.is_closed for wire in open_wires)
    assert 1 <= len(log_lines(server, f"({limit})")) <= 10
    assert len(log_lines(server, "is not logged before the minute is over")) == 1


def test_a_byte_now_and_then(znoded_server: StartServer) -> None:
    server = znoded_server("tick_ms = 100\nlimits = { handshake_timeout_ms = 500 }")
    connect_request = frame(i4(0), i8(0), i4(1000), i8(0), string(bytes(16)), b"\0")
    with unharmed(server):
        for has_session, data in ((False, connect_request), (True, create(1, b"/slow", b"x" * 1000))):
            with Wire(server) as wire:
                if has_session:
                    assert wire.shake(500)
                began_s = time.monotonic()
                assert trickle_until_closed(wire, data)
                assert time.monotonic() - began_s < 5
    assert log_lines(server, "(limits.handshake_timeout_ms)")


def trickle_until_closed(wire: Wire, data: bytes) -> bool:
    """Send a byte each time that the server has been mute for a while; whether it closed before the end."""
    wire.socket.settimeout(0.1)
    for byte in data:
        try:
            wire.send(bytes([byte]))
            if not wire.socket.recv(100):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_large_answers_that_nobody_takes(znoded_server: StartServer) -> None:
    server = znoded_server("tick_ms = 250")
    make_node(server, b"/big", b"x" * 1_000_000)
    with unharmed(server), ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(20)]
        for wire in wires:
            assert wire.shake(1000)
            send_what_is_taken(wire, get_data(1, b"/big") * 100_000)
        # None is heard any more, so their sessions end, and they with them.
        for wire in wires:
            wire.wait_until_cut_off()


def send_what_is_taken(wire: Wire, data: bytes) -> None:
    """Send until the server takes no more."""
    wire.socket.settimeout(0.2)
    with suppress(TimeoutError):
        wire.send(data)
    wire.socket.settimeout(10)


def test_a_watcher_that_does_not_read(znoded_server: StartServer) -> None:
    server = znoded_server()
    path = b"/" + b"busy" * 25_000
    make_node(server, path)
    with unharmed(server), ExitStack() as stack:
        watchers = [stack.enter_context(Wire(server)) for _ in range(5)]
        for watcher in watchers:
            assert watcher.shake()
            assert watcher.ask(request(1, Op.ADD_WATCH, string(path), i4(0))) == (1, 0)
        with Wire(server) as writer:
            assert writer.shake()
            for xid in range(200):
                assert writer.ask(set_data(xid, path)) == (xid, 0)
        for watcher in watchers:
            watcher.wait_until_closed()
    assert log_lines(server, "does not read")


def test_a_million_watches(znoded_server: StartServer) -> None:
    server = znoded_server()
    before_bytes = anonymous_bytes(server)
    with unharmed(server, grown_bytes=300 * MIB), Wire(server) as wire:
        assert wire.shake(40_000)
        refused = 0
        for start in range(0, 1_000_000, 10_000):
            numbers = range(start, start + 10_000)
            wire.send(b"".join([exists(xid, b"/watched/%07d" % xid, watch=True) for xid in numbers]))
            # All answers are errors of 20 bytes, that there is no such node or that there are too many watches.
            last_bytes = wire.receive_exactly(20 * len(numbers))[19::20]
            refused += last_bytes.count(i4(-125)[-1])
            assert set(last_bytes) <= {i4(-101)[-1], i4(-125)[-1]}
        assert refused == 500_000
        assert anonymous_bytes(server) - before_bytes < 200 * 500_000


def test_a_flood_of_sessions(znoded_server: StartServer) -> None:
    server = znoded_server("limits = { sessions = 200 }")
    with unharmed(server):
        outcomes = []
        for _ in range(400):
            with Wire(server) as wire:
                outcomes.append(bool(wire.shake(40_000)))
        assert outcomes == [True] * 199 + [False] * 201
    assert len(log_lines(server, "(limits.sessions)")) == 5


def test_large_writes_faster_than_the_disk(znoded_server: StartServer) -> None:
    server = znoded_server()
    with unharmed(server, grown_bytes=400 * MIB), ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(8)]
        threads = [threading.Thread(target=write_much, args=(wire, number)) for number, wire in enumerate(wires)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def write_much(wire: Wire, number: int) -> None:
    """Set one large node over and over without waiting for the answers."""
    assert wire.shake()
    path = b"/large-%d" % number
    assert wire.ask(create(1, path)) == (1, 0)
    wire.send(b"".join([set_data(xid, path, b"x" * 1_000_000) for xid in range(2, 32)]))
    for xid in range(2, 32):
        assert wire.receive()[:4] == i4(xid)


def test_frames_above_the_limit(znoded_server: StartServer) -> None:
    server = znoded_server()
    with unharmed(server, grown_bytes=40 * MIB), ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(30)]
        data = create(7, b"/big", b"x" * 2_000_000)
        for wire in wires:
            assert wire.shake()
            wire.send(data[:-1])
        for wire in wires:
            assert wire.ask(data[-1:]) == (7, -8)
        for wire in wires:
            wire.send(i4(2**31 - 1) + data[4:12])
            wire.wait_until_closed()


def test_requests_that_take_long(znoded_server: StartServer) -> None:
    server = znoded_server("limits = { watches_per_session = 1000 }")
    with Wire(server) as wire:
        assert wire.shake()
        child = string(b"/wide/") + string(b"") + vector(acl(31, b"world", b"anyone")) + i4(2)
        assert wire.ask(create(1, b"/wide")) == (1, 0)
        for xid in range(2, 7):
            assert wire.ask(request(xid, Op.MULTI, multi(*[(Op.CREATE, child)] * 10_000))) == (xid, 0)
    count = request(1, Op.GET_ALL_CHILDREN_NUMBER, string(b"/wide"))
    failing = request(3, Op.MULTI, multi(*[(Op.CREATE, child)] * 10_000, (Op.CHECK, string(b"/none") + i4(-1))))
    with unharmed(server, slowest_s=5, grown_bytes=300 * MIB), ExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for _ in range(5)]
        for wire in wires:
            assert wire.shake()
            wire.send(count * 20 + get_children(2, b"/wide") + failing + count * 2)
        for wire in wires:
            xids = [int.from_bytes(wire.receive()[:4], "big") for _ in range(24)]
            assert xids == [1] * 20 + [2, 3, 1, 1]


def test_tls_handshakes_that_do_not_end(znoded_server: StartServer, tmp_path: Path) -> None:
    directory = tmp_path / "certificates"
    directory.mkdir()
    made = make_certificates(directory)
    port = free_port()
    server = znoded_server(f"""
[limits]
handshake_timeout_ms = 1000
[client.tls]
listen = ["tcp:{port}:interface=127.0.0.1"]
certificate = "{made.server_certificate}"
private_key = "{made.server_key}"
""")
    client_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    with unharmed(server), ExitStack() as stack:
        for said in (b"", client_hello, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff"):
            tls_socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            tls_socket.sendall(said)
            with suppress(ConnectionResetError):
                while tls_socket.recv(1000):
                    pass
    assert log_lines(server, "(limits.handshake_timeout_ms)")
    assert_log_is_clean(server)
