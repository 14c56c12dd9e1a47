"""Runs the server of this repository, as `twistd -n znoded` with its ordinary settings."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from bench.server import LOOPBACK, Server, ServerError

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIGURATION = """\
data_dir = {data_dir}
[client]
listen = ["tcp:{client_port}:interface={loopback}"]
[admin]
listen = "tcp:{admin_port}:interface={loopback}"
[limits]
connections_per_address = 0
"""


class Znoded(Server):
    """One member. Only its addresses and directory are set, and that one address may bring any number of clients."""

    name = "znoded"
    checkpoint_pattern = "data/state/*"
    knows_serializable = True

    def __init__(self, directory: Path, client_port: int, admin_port: int) -> None:
        super().__init__(directory, client_port, {"PYTHONPATH": str(REPOSITORY)})
        self.admin_port = admin_port
        self.data_dir = self.directory / "data"

    def prepare(self) -> list[str]:
        config_path = self.directory / "znoded.toml"
        config_path.write_text(self.configuration())
        return [twistd(), "--nodaemon", "--pidfile=", "znoded", "--config", str(config_path)]

    def configuration(self) -> str:
        """The text of its configuration file."""
        return CONFIGURATION.format(
            data_dir=json.dumps(str(self.data_dir)),
            client_port=self.client_port,
            admin_port=self.admin_port,
            loopback=LOOPBACK,
        )


def twistd() -> str:
    """The `twistd` of the Python that runs this, else the one on the PATH."""
    beside = Path(sys.executable).with_name("twistd")
    found = str(beside) if beside.exists() else shutil.which("twistd")
    if found is None:
        raise ServerError(
            "no `twistd` beside this Python and none on the PATH: install this package (pip install -e .)"
        )
    return found
