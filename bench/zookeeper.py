"""Runs a real ZooKeeper server, to measure and to compare against.

from bench.fetch_zookeeper import find_jars
from bench.zookeeper import ZooKeeper

with ZooKeeper(find_jars(), directory, client_port=2181, zoo_cfg={"tickTime": 200}) as server:
    ...  # server.address is "127.0.0.1:2181"; server.pid, server.kill() and server.start() are there too
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

# What the server needs of a folder that also holds a whole Spark distribution.
CLASS_PATH_PATTERNS = (
    "zookeeper-*.jar",
    "netty-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "snappy-java-*.jar",
    "metrics-core-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
    "jline-2*.jar",
    "jackson-*.jar",
    "audience-annotations-*.jar",
)
LOOPBACK = "127.0.0.1"
POLL_INTERVAL_S = 0.05


class ZooKeeperError(Exception):
    """The server did not start; the message names its log and shows the end of it."""


class ZooKeeper:
    """One ZooKeeper server process on the loopback interface.

    It runs with stock settings, except that the admin server is off, that any number of clients may come from one address and
    that only warnings are logged. `zoo_cfg` lines override and add to these; `properties` are system properties.
    `heap_mb` is the JVM's `-Xmx`; 1000 is what `zkServer.sh` gives.
    A server of an ensemble gets `server.N` lines in `zoo_cfg` and its own number as `server_id`.
    `environment` adds to the process's environment, for instance a LD_PRELOAD.
    """

    def __init__(
        self,
        jars: Path,
        directory: Path,
        client_port: int,
        *,
        zoo_cfg: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
        heap_mb: int = 1000,
        server_id: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.jars = Path(jars)
        self.directory = Path(directory)
        self.client_port = client_port
        self.heap_mb = heap_mb
        self.server_id = server_id
        self.environment = {**os.environ, **(environment or {})}
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "zookeeper.log"
        self.zoo_cfg: dict[str, object] = {
            "tickTime": 2000,
            "dataDir": self.data_dir,
            "clientPort": client_port,
            "clientPortAddress": LOOPBACK,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            **(zoo_cfg or {}),
        }
        self.properties: dict[str, object] = {"log4j2.level": "WARN", **(properties or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.client_port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ZooKeeperError("ZooKeeper is not running: call start() first")
        return self._process.pid

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the process and return once it serves clients. Data of an earlier run in the same directory is kept."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self.server_id is not None:
            (self.data_dir / "myid").write_text(f"{self.server_id}\n")
        config_path = self.directory / "zoo.cfg"
        config_path.write_text("".join(f"{key}={value}\n" for key, value in self.zoo_cfg.items()))
        command = [
            java(),
            f"-Xmx{self.heap_mb}m",
            *(f"-D{key}={value}" for key, value in self.properties.items()),
            "-cp",
            class_path(self.jars),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config_path),
        ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )
        try:
            self.wait_until_serving(timeout_s)
        except ZooKeeperError:
            self.kill()
            raise

    def wait_until_serving(self, timeout_s: float) -> None:
        """Return once `srvr` (allowed by default) names the server's mode, that is, once it serves clients."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while b"Mode: " not in four_letter_word(self.client_port, b"srvr"):
            if self._process.poll() is not None:
                raise ZooKeeperError(
                    f"ZooKeeper exited with {self._process.returncode}, see {self.log_path}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise ZooKeeperError(
                    f"ZooKeeper does not serve after {timeout_s} s, see {self.log_path}:\n{self.log_tail()}"
                )
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
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def java() -> str:
    """The path of the Java launcher."""
    found = shutil.which("java")
    if found is None:
        raise ZooKeeperError("no `java` on the PATH: install a Java 17 runtime (Debian: openjdk-17-jre-headless)")
    return found


def class_path(jars: Path) -> str:
    """The class path of a ZooKeeper server or `zkCli`, from a folder of jars."""
    found = [str(path) for pattern in CLASS_PATH_PATTERNS for path in sorted(Path(jars).glob(pattern))]
    if not any("/zookeeper-jute-" in path for path in found):
        raise ZooKeeperError(f"{jars} holds no zookeeper-*.jar and zookeeper-jute-*.jar")
    return ":".join(found)


def four_letter_word(port: int, word: bytes, timeout_s: float = 2.0) -> bytes:
    """What the server on a loopback port answers to a four-letter word; b"" while nothing answers there."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout_s) as connection:
        connection.sendall(word)
        while chunk := connection.recv(65536):
            answer += chunk
    return answer
