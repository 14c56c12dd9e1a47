"""Runs a real ZooKeeper server, to measure and to compare against.

from bench.fetch_zookeeper import find_jars
from bench.zookeeper import ZooKeeper

with ZooKeeper(find_jars(), directory, client_port=2181, zoo_cfg={"tickTime": 200}) as server:
    ...  # server.address is "127.0.0.1:2181"; server.pid, server.kill() and server.start() are there too
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.server import LOOPBACK, Server, ServerError

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


class ZooKeeper(Server):
    """One ZooKeeper server process on the loopback interface.

    It runs with stock settings, except that the admin server is off, that one address may bring any number of clients
    and that only warnings are logged. `zoo_cfg` lines override and add to these; `properties` are system properties.
    A `4lw.commands.whitelist` among them has to allow `srvr`, which is how `start` knows that the server serves.
    `heap_mb` is the JVM's `-Xmx`; 1000 is what `zkServer.sh` gives.
    A server of an ensemble gets `server.N` lines in `zoo_cfg` and its own number as `server_id`.
    `environment` adds to the process's environment, for instance a LD_PRELOAD.
    """

    name = "ZooKeeper"
    checkpoint_pattern = "data/version-2/snapshot.*"

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
        super().__init__(directory, client_port, dict(environment or {}))
        self.jars = Path(jars).resolve()
        self.heap_mb = heap_mb
        self.server_id = server_id
        self.data_dir = self.directory / "data"
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

    def prepare(self) -> list[str]:
        self.data_dir.mkdir(exist_ok=True)
        if self.server_id is not None:
            (self.data_dir / "myid").write_text(f"{self.server_id}\n")
        config_path = self.directory / "zoo.cfg"
        config_path.write_text("".join(f"{key}={value}\n" for key, value in self.zoo_cfg.items()))
        return [
            java(),
            f"-Xmx{self.heap_mb}m",
            *(f"-D{key}={value}" for key, value in self.properties.items()),
            "-cp",
            class_path(self.jars),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config_path),
        ]


def java() -> str:
    """The path of the Java launcher."""
    found = shutil.which("java")
    if found is None:
        raise ServerError("no `java` on the PATH: install a Java 17 runtime (Debian: openjdk-17-jre-headless)")
    return found


def class_path(jars: Path) -> str:
    """The class path of a ZooKeeper server or `zkCli`, from a folder of jars."""
    found = [str(path) for pattern in CLASS_PATH_PATTERNS for path in sorted(Path(jars).glob(pattern))]
    if not any("/zookeeper-jute-" in path for path in found):
        raise ServerError(f"{jars} holds no zookeeper-*.jar and zookeeper-jute-*.jar")
    return ":".join(found)
