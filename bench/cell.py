"""Cells of several servers on the loopback interface: znoded's, and a ZooKeeper ensemble to measure beside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.server import LOOPBACK, POLL_INTERVAL_S, START_TIMEOUT_S, Server, ServerError, four_letter_word
from bench.znoded import Znoded
from bench.zookeeper import ZooKeeper

MEMBERS = 3
LEADS = b"Mode: leader"


class Cell:
    """Servers that are started and stopped together, and loaded as one."""

    def __init__(self, members: Sequence[Server]) -> None:
        self.name = members[0].name
        self.knows_serializable = members[0].knows_serializable
        self.ports = [member.client_port for member in members]
        self._members = members

    def start(self) -> None:
        """Return once every member serves clients, and one of them leads."""
        for member in self._members:
            member.launch()
        for member in self._members:
            member.wait_until_serving()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not any(LEADS in four_letter_word(port, b"srvr") for port in self.ports):
            if time.monotonic() > deadline:
                raise ServerError(f"no member of {self.name}'s cell leads after {START_TIMEOUT_S} s")
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """End all of them in an orderly way."""
        for member in self._members:
            member.stop()


class ZnodedMember(Znoded):
    """One of a cell, with its ordinary settings. `client_ports` and `peer_ports` are those of all members."""

    def __init__(
        self, directory: Path, number: int, client_ports: list[int], peer_ports: list[int], admin: int
    ) -> None:
        super().__init__(directory, client_ports[number - 1], admin)
        self._number = number
        self._client_ports = client_ports
        self._peer_ports = peer_ports

    def configuration(self) -> str:
        tables = (
            f'[cell.members.{number}]\npeer = "{LOOPBACK}:{peer}"\nclient = "{LOOPBACK}:{client}"\n'
            for number, (client, peer) in enumerate(zip(self._client_ports, self._peer_ports, strict=True), 1)
        )
        return f"member = {self._number}\n{super().configuration()}{''.join(tables)}"


class ZooKeeperMember(ZooKeeper):
    """One of an ensemble. `servers` are the lines that name all of them."""

    def __init__(self, jars: Path, directory: Path, number: int, client_port: int, servers: str) -> None:
        super().__init__(jars, directory, client_port)
        self._number = number
        self._servers = servers

    def configuration(self) -> str:
        (self.data_dir / "myid").write_text(f"{self._number}\n")
        return f"{super().configuration()}initLimit=10\nsyncLimit=5\n{self._servers}"


def znoded_cell(directory: Path, ports: Iterator[int]) -> Cell:
    """A cell that takes three ports for each member, below this directory."""
    client_ports, peer_ports, admin_ports = ([next(ports) for _ in range(MEMBERS)] for _ in range(3))
    return Cell(
        [
            ZnodedMember(directory / str(number), number, client_ports, peer_ports, admin)
            for number, admin in enumerate(admin_ports, 1)
        ]
    )


def zookeeper_cell(jars: Path, directory: Path, ports: Iterator[int]) -> Cell:
    """An ensemble that takes three ports for each member, below this directory."""
    client_ports = [next(ports) for _ in range(MEMBERS)]
    servers = "".join(f"server.{number}={LOOPBACK}:{next(ports)}:{next(ports)}\n" for number in range(1, MEMBERS + 1))
    return Cell(
        [
            ZooKeeperMember(jars, directory / str(number), number, port, servers)
            for number, port in enumerate(client_ports, 1)
        ]
    )
