"""`python -m bench.streams`: many watch streams on one prefix, each of which has to get every event once, and soon.

One member runs in a process of its own and this one is its clients, on the same machine: what is measured is the time
from when a put was sent to when a stream had the event, over all streams and events.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import select
import socket
import sys
import tempfile
import time
from pathlib import Path

from bench.server import LOOPBACK
from bench.znoded import Znoded

PREFIX = "/streams"
REVISION = re.compile(rb'\{"type":"(events|progress)","revision":([0-9]+)')
CONFIGURATION = """
connections = 1000
api_connections = 20000
api_connections_per_address = 0
[api]
listen = "tcp:{port}:interface={loopback}"
"""
WAIT_S = 60.0


class StreamServer(Znoded):
    """One member that lets any number of streams in."""

    def __init__(self, directory: Path, ports: tuple[int, int, int]) -> None:
        super().__init__(directory, *ports[:2])
        self.api_port = ports[2]

    def configuration(self) -> str:
        return super().configuration() + CONFIGURATION.format(port=self.api_port, loopback=LOOPBACK)


class Streams:
    """The clients: sockets that are read as they become readable."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._rest: dict[int, bytes] = {}
        self.marked = 0
        #: For each stream, the revisions that it was told, with the time of each.
        self.told: dict[int, list[tuple[int, float]]] = {}

    def open(self, count: int) -> None:
        """Open so many streams, and return when each has its first mark."""
        for number in range(count):
            stream = socket.create_connection((LOOPBACK, self._port))
            stream.sendall(f"GET /v1/watch?prefix={PREFIX} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            stream.setblocking(False)
            self._sockets[stream.fileno()] = stream
            self._rest[stream.fileno()] = b""
            self.told[stream.fileno()] = []
            self._poll.register(stream, select.EPOLLIN)
            if number % 100 == 0:
                self.read(0)
        deadline_s = time.monotonic() + WAIT_S
        while self.marked < count and time.monotonic() < deadline_s:
            self.read(0.1)
        if self.marked < count:
            sys.exit(f"only {self.marked} of {count} streams began")

    def read(self, wait_s: float) -> None:
        """Take what came."""
        for descriptor, _ in self._poll.poll(wait_s):
            data = self._rest[descriptor] + self._sockets[descriptor].recv(1 << 16)
            now_s = time.monotonic()
            end = 0
            for match in REVISION.finditer(data):
                end = match.end()
                if match[1] == b"events":
                    self.told[descriptor].append((int(match[2]), now_s))
                elif not self.told[descriptor]:
                    self.marked += 1
            self._rest[descriptor] = data[max(end, len(data) - 64) :]


class Writer:
    """Puts one event after another on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port))

    def send(self) -> None:
        """Begin to put."""
        op = {"op": "put", "key": f"{PREFIX}/key", "value": "", "parents": True}
        body = json.dumps({"then": [op]}).encode()
        headers = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
        self._socket.sendall("\r\n".join(("POST /v1/txn HTTP/1.1", *headers, "", "")).encode() + body)

    def revision(self) -> int:
        """The revision of the last put."""
        data = b""
        while b"linearizable" not in data:
            received = self._socket.recv(1 << 16)
            if not received:
                sys.exit("the member closed the writer's connection")
            data += received
        return int(data.rpartition(b'"revision": ')[2].partition(b",")[0])


def main() -> None:
    """Run it, and print one line. Ends with status 1 if an event was lost, told twice or out of order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between two events")
    parser.add_argument("--port", type=int, default=23_300, help="the first of three ports")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ports = (arguments.port, arguments.port + 1, arguments.port + 2)
    with tempfile.TemporaryDirectory() as directory:
        server = StreamServer(Path(directory), ports)
        server.start()
        try:
            is_right = measure(arguments.streams, arguments.events, arguments.interval, ports[2])
        finally:
            server.stop()
    sys.exit(0 if is_right else 1)


def measure(count: int, events: int, interval_s: float, port: int) -> bool:
    """Open the streams and have the events told: whether each stream got each of them once and in order."""
    streams = Streams(port)
    began_s = time.monotonic()
    streams.open(count)
    opened_s = time.monotonic() - began_s
    writer = Writer(port)
    sent: dict[int, float] = {}
    for _ in range(events):
        sent_s = time.monotonic()
        writer.send()
        sent[writer.revision()] = sent_s
        while time.monotonic() < sent_s + interval_s:
            streams.read(0.01)
    deadline_s = time.monotonic() + WAIT_S
    wanted = sorted(sent)
    while time.monotonic() < deadline_s and any(len(told) < len(wanted) for told in streams.told.values()):
        streams.read(0.1)
    wrong = sum([revision for revision, _ in told] != wanted for told in streams.told.values())
    times_s = sorted(got_s - sent[revision] for told in streams.told.values() for revision, got_s in told)
    p50_ms, p99_ms, most_ms = (1000 * times_s[int(part * (len(times_s) - 1))] for part in (0.5, 0.99, 1.0))
    print(f"{count} streams on one prefix, opened in {opened_s:.1f} s; {events} events, one each {interval_s} s")
    print(f"from put to told: p50 {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms, most {most_ms:.0f} ms")
    print(f"streams that did not get every event once and in order: {wrong}")
    return wrong == 0


if __name__ == "__main__":
    main()
