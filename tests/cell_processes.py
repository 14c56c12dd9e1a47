"""A real cell: several znoded processes on this machine, for tests that need the whole of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.server_process import POLL_INTERVAL_S, START_TIMEOUT_S, ServerProcess, free_port

HOST = "127.0.0.1"


class CellProcesses:
    """A cell of `size` members, each a `ServerProcess` in a folder of its own below `directory`.

    `toml_of(number)` is the configuration of a member, but for its number, its plain listener and who the members are.
    As a context manager the cell serves inside the block and ends with it. `cell[0]` is member 1.

    Attributes: `addresses`, the clients' connection string with all members.
    """

    def __init__(self, directory: Path, toml_of: Callable[[int], str], size: int = 3) -> None:
        numbers = range(1, size + 1)
        ports = {number: free_port() for number in numbers}
        tables = "".join(_table(number, ports[number]) for number in numbers)
        self._members: list[ServerProcess] = []
        for number in numbers:
            folder = directory / f"member-{number}"
            folder.mkdir()
            toml = f"member = {number}\n{toml_of(number)}{tables}"
            self._members.append(ServerProcess(folder, toml, ports[number]))
        self.addresses = ",".join(member.address for member in self)

    def __getitem__(self, index: int) -> ServerProcess:
        return self._members[index]

    def __iter__(self) -> Iterator[ServerProcess]:
        return iter(self._members)

    def start(self) -> None:
        """Start those that do not run; return once all serve. A new cell needs most of its members to begin."""
        for member in self:
            if not member.runs:
                member.launch()
        for member in self:
            member.wait_until_it_serves()

    def leader(self) -> ServerProcess:
        """The member that leads, as soon as one does."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            for member in self:
                if member.runs and member.mode() == "leader":
                    return member
            time.sleep(POLL_INTERVAL_S)
        raise RuntimeError(f"nobody leads within {START_TIMEOUT_S} s")

    def __enter__(self) -> Self:
        with ExitStack() as on_error:
            on_error.callback(self.stop)
            self.start()
            on_error.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End those that run with SIGTERM, one after another."""
        with ExitStack() as running:
            for member in self:
                if member.runs:
                    running.callback(member.stop)


def _table(number: int, client_port: int) -> str:
    return f'[cell.members.{number}]\npeer = "{HOST}:{free_port()}"\nclient = "{HOST}:{client_port}"\n'
