"""A server process on the loopback interface: start it and wait until it serves, stop it, kill it, weigh it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

LOOPBACK = "127.0.0.1"
POLL_INTERVAL_S = 0.01
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60
LOG_LINES_SHOWN = 20


class ServerError(Exception):
    """A server cannot be started; the message says why, names its log and shows the end of it."""


class Server:
    """What ZooKeeper and znoded have in common; a subclass says how its process is started.

    The process's output is appended to `log_path`. What an earlier run left in `directory` is kept.
    """

    name: str
    #: The files of its checkpoints, as a glob pattern below `directory`.
    checkpoint_pattern: str
    #: Its clients can ask for reads that a member answers without asking the others, where it would ask them.
    knows_serializable = False

    def __init__(self, directory: Path, client_port: int, environment: dict[str, str]) -> None:
        self.directory = Path(directory).resolve()
        self.client_port = client_port
        self.environment = {**os.environ, **environment}
        self.log_path = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> list[str]:
        """Write the files that the process needs, and return its command."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{self.name} is not running: call start() first")
        return self._process.pid

    @property
    def ports(self) -> list[int]:
        """Where clients reach it."""
        return [self.client_port]

    def start(self) -> None:
        """Start the process and return once it serves clients."""
        self.launch()
        self.wait_until_serving()

    def launch(self) -> None:
        """Start the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.prepare()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.directory,
                start_new_session=True,
            )

    def wait_until_serving(self) -> None:
        """Return once `srvr` names the server's mode, that is, once it serves clients; else kill it."""
        try:
            self._wait_until_serving()
        except BaseException:
            self.kill()
            raise

    def _wait_until_serving(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while b"Mode: " not in four_letter_word(self.client_port, b"srvr"):
            if self._process.poll() is not None:
                raise ServerError(f"{self.name} exited with {self._process.returncode}, see {self._log_end()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} does not serve after {START_TIMEOUT_S} s, see {self._log_end()}")
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """End the process in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def anonymous_bytes(self) -> int:
        """The process's anonymous resident memory (RssAnon of proc(5)): what it holds beyond its files."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
        if found is None:
            raise ServerError(f"/proc/{self.pid}/status has no RssAnon: Linux 4.5 or later is needed to weigh a server")
        return int(found[1]) * 1024

    def newest_checkpoint_ns(self) -> int:
        """When a file of its checkpoints was last written to; 0 when there is none."""
        return max((path.stat().st_mtime_ns for path in self.directory.glob(self.checkpoint_pattern)), default=0)

    def _log_end(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"{self.log_path}:", *lines])


def four_letter_word(port: int, word: bytes, timeout_s: float = 2.0) -> bytes:
    """What the server on a loopback port answers to a four-letter word; b"" while nothing answers there."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout_s) as connection:
        connection.sendall(word)
        while chunk := connection.recv(65536):
            answer += chunk
    return answer
