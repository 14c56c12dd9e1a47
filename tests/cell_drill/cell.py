"""The cell of the drill: real processes whose faults the drill makes, and the network between them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Collection
from pathlib import Path

from tests.cell_drill.network import Network
from tests.server_process import POLL_INTERVAL_S, ServerProcess

HOST = "127.0.0.1"
LEADER_PATIENCE_S = 30.0
START_PATIENCE_S = 120.0
SUPER_CREDENTIAL = b"super:test"
TOML = """tick_ms = 500
[auth]
super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
[limits]
connections_per_address = 0
[tree]
reconfig = true
[cell]
heartbeat_ms = 20
election_ms = 200
"""


class Member(ServerProcess):
    """One member. Others reach it at `peer_port`, which leads to where it listens unless the network is cut."""

    def __init__(self, directory: Path, number: int, base_port: int, extra_toml: str, is_cuttable: bool) -> None:
        self.number = number
        self.listen_port = base_port + 200 + number
        self.peer_port = base_port + 300 + number if is_cuttable else self.listen_port
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, port=base_port + number)
        self.admin_port = base_port + 100 + number
        self._toml = f'member = {number}\n{TOML}{extra_toml}listen = "tcp:{self.listen_port}:interface={HOST}"\n'

    @property
    def server_line(self) -> bytes:
        """This member as `reconfig` wants it."""
        return f"server.{self.number}={HOST}:{self.peer_port}:{self.peer_port};{HOST}:{self.port}".encode()

    def configure(self, members: Collection[Member]) -> None:
        """Write its file: who the members are when it starts without a disk."""
        tables = [
            f'[cell.members.{each.number}]\npeer = "{HOST}:{each.peer_port}"\nclient = "{HOST}:{each.port}"\n'
            for each in members
        ]
        self._config_path.write_text(self._toml + "".join(tables))

    def wait_until_it_serves(self) -> None:
        """Patiently: a start is no part of the drill, and the machine is busy. Raises RuntimeError."""
        deadline_s = time.monotonic() + START_PATIENCE_S
        while not self.serves():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"member {self.number} does not serve {START_PATIENCE_S:.0f} s after its start")
            time.sleep(POLL_INTERVAL_S)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.data_dir, ignore_errors=True)


class DrillCell:
    """`size` members that begin as a cell of `founders`. To be used as an asynchronous context manager.

    `extra_toml` goes on in their table `[cell]`. What cannot be cut has no proxies between its members.
    """

    def __init__(
        self,
        directory: Path,
        base_port: int,
        size: int = 3,
        founders: int = 3,
        extra_toml: str = "",
        is_cuttable: bool = True,
    ) -> None:
        numbers = range(1, size + 1)
        self.members = {
            number: Member(directory / f"member-{number}", number, base_port, extra_toml, is_cuttable)
            for number in numbers
        }
        self.network = Network()
        self._founders = [self.members[number] for number in numbers[:founders]]

    @property
    def ports(self) -> list[int]:
        """Where clients reach the members."""
        return [member.port for member in self.members.values()]

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.runs]

    async def __aenter__(self) -> DrillCell:
        for member in self.members.values():
            if member.peer_port != member.listen_port:
                await self.network.serve(member.number, member.peer_port, member.listen_port)
            member.configure(self._founders)
        try:
            for member in self._founders:
                member.launch()
            await self.all_serve()
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for member in self.running:
            member.resume()
            member.kill()
        self.network.close()

    async def all_serve(self) -> None:
        """Return once all that run serve clients."""
        for member in self.running:
            await asyncio.to_thread(member.wait_until_it_serves)

    async def leader(self) -> Member:
        """The member that leads, once there is one and nobody else thinks so."""
        async with asyncio.timeout(LEADER_PATIENCE_S):
            while True:
                modes = {member: await asyncio.to_thread(member.mode) for member in self.running}
                leaders = [member for member, mode in modes.items() if mode in ("leader", "standalone")]
                if len(leaders) == 1:
                    return leaders[0]
                await asyncio.sleep(0.02)
