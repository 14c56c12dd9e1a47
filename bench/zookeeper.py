"""Runs a real ZooKeeper server, to measure beside."""

from __future__ import annotations

import shutil
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
#: What `zkServer.sh` gives.
HEAP_MB = 1000
CONFIGURATION = """\
tickTime=2000
dataDir={data_dir}
clientPort={port}
clientPortAddress={loopback}
maxClientCnxns=0
admin.enableServer=false
"""


class ZooKeeper(Server):
    """One ZooKeeper server process on the loopback interface.

    It runs with stock settings, except that the admin server is off, that one address may bring any number of clients
    and that only warnings are logged.
    """

    name = "ZooKeeper"
    checkpoint_pattern = "data/version-2/snapshot.*"

    def __init__(self, jars: Path, directory: Path, client_port: int) -> None:
        super().__init__(directory, client_port, {})
        self.jars = Path(jars).resolve()
        self.data_dir = self.directory / "data"

    def prepare(self) -> list[str]:
        self.data_dir.mkdir(exist_ok=True)
        config_path = self.directory / "zoo.cfg"
        config_path.write_text(self.configuration())
        return [
            java(),
            f"-Xmx{HEAP_MB}m",
            "-Dlog4j2.level=WARN",
            "-cp",
            class_path(self.jars),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config_path),
        ]

    def configuration(self) -> str:
        """The text of its configuration file."""
        return CONFIGURATION.format(data_dir=self.data_dir, port=self.client_port, loopback=LOOPBACK)


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
