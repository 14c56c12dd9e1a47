"""A real znoded as its own process, for tests that need the whole program."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
TWISTD = "from twisted.scripts.twistd import run; run()"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.02


#: Below those that Linux gives to connections: one of these would be taken again before a server listens on it.
PORTS = range(15_000, 32_000)
#: Where each process of a test run begins: they start their servers at the same time.
_places = itertools.count(os.getpid() * 997)


def free_port() -> int:
    """A loopback port that nothing listens on now, and that was not asked for just before."""
    while True:
        port = PORTS[next(_places) % len(PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class ServerProcess:
    """One `twistd -n znoded`, with the configuration `toml`, in `directory`.

    The data directory, one plain client listener and the admin listener are set on the command line, on loopback ports
    of its own (the client's may be given: `port`); everything else is up to `toml`. As a context manager it serves
    inside the block and ends with it.

    Attributes: `address` ("127.0.0.1:PORT" for clients), `port`, `admin_port`, `data_dir`, `log_path`.
    """

    def __init__(self, directory: Path, toml: str = "", port: int | None = None) -> None:
        self.port = port or free_port()
        self.admin_port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.data_dir = directory / "data"
        self.log_path = directory / "znoded.log"
        self._config_path = directory / "member.toml"
        self._config_path.write_text(toml)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; the server has to run."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process was started and not ended by us."""
        return self._process is not None

    def start(self) -> None:
        """Start the process and return once it serves clients. Raises RuntimeError with the log when it does not."""
        self.launch()
        self.wait_until_it_serves()

    def launch(self) -> None:
        """Start the process."""
        assert self._process is None, "the server runs already"
        arguments = [
            "--nodaemon",
            "--pidfile=",
            "znoded",
            f"--config={self._config_path}",
            f"--data-dir={self.data_dir}",
            f"--client=tcp:{self.port}:interface=127.0.0.1",
            f"--admin=tcp:{self.admin_port}:interface=127.0.0.1",
        ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", TWISTD, *arguments],
                cwd=self._directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_until_it_serves(self) -> None:
        """Return once it serves clients. Raises RuntimeError with the log when it does not."""
        assert self._process is not None, "the server does not run"
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self.serves():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"znoded does not serve {self.address}, its log:\n{self.log_path.read_text()}")
            time.sleep(POLL_INTERVAL_S)

    def serves(self) -> bool:
        """Whether the process says that it is ready for clients."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=1):
                return True
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    def mode(self) -> str:
        """What the member is in its cell, in ZooKeeper's words; empty when it does not say."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except (TimeoutError, ConnectionError):
            return ""
        return "".join(re.findall(r"^Mode: (.*)$", answer.decode(), re.MULTILINE))

    def stop(self) -> int:
        """End the process with SIGTERM and wait for it. Returns its exit status."""
        return self.end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, with no chance to say good-bye."""
        self.end(signal.SIGKILL)

    def end(self, signal_number: signal.Signals) -> int:
        """Send a signal that ends the process and wait. Returns its exit status."""
        assert self._process is not None, "the server does not run"
        process, self._process = self._process, None
        process.send_signal(signal_number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"znoded did not end within {STOP_TIMEOUT_S} s of {signal_number.name}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()
