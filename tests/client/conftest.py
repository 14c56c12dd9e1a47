"""A running member, and a cell of three, with their APIs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cell_processes import CellProcesses
from tests.server_process import ServerProcess, free_port

LIMITS = "[limits]\nsession_timeout_min_ms = 500\n"


def api_table(port: int) -> str:
    return f'[api]\nlisten = "tcp:{port}:interface=127.0.0.1"\n'


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Where the API of a lone member is."""
    port = free_port()
    toml = f"tick_ms = 250\n{api_table(port)}{LIMITS}"
    with ServerProcess(tmp_path_factory.mktemp("api"), toml):
        yield "127.0.0.1", port


class ApiCell:
    """A cell of three, and where the APIs of its members are."""

    def __init__(self, cell: CellProcesses, addresses: list[tuple[str, int]]) -> None:
        self.cell = cell
        self.addresses = addresses


@pytest.fixture
def api_cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiCell]:
    ports = {number: free_port() for number in (1, 2, 3)}
    timing = "[cell]\nheartbeat_ms = 50\nelection_ms = 400\n"

    def toml_of(number: int) -> str:
        return f"tick_ms = 500\n{api_table(ports[number])}{LIMITS}{timing}"

    with CellProcesses(tmp_path_factory.mktemp("cell"), toml_of) as cell:
        yield ApiCell(cell, [("127.0.0.1", port) for port in ports.values()])
