"""Stands in for `kazoo.testing.common`: the servers that Kazoo's own tests start and stop are one znoded member.

Kazoo's module of that name runs Java servers and makes their key stores; its harness uses only what is here.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.interop.kazoo_suite.certificates import Certificates, make_certificates

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.02

# The settings of the servers that Kazoo's cluster starts, in our terms: the superuser is super:test, no limit on connections from
# one address, every four-letter word, reconfig on; the SASL users are those of its JAAS file.
CONFIGURATION = """\
member = 1
data_dir = "{data_dir}"
tick_ms = 2000
[client]
listen = ["tcp:{client_port}:interface={host}"]
[client.tls]
listen = ["tcp:{tls_port}:interface={host}"]
certificate = "{certificates.server_certificate}"
private_key = "{certificates.server_key}"
client_ca = "{certificates.ca_certificate}"
[auth]
super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
[auth.sasl_users]
super = "super_secret"
jaasuser = "jaas_password"
[admin]
listen = "tcp:{admin_port}:interface={host}"
[limits]
connections_per_address = 0
[tree]
ttl_nodes = true
reconfig = true
[words]
allow = ["*"]
"""


class ManagedMember:
    """One `twistd -n znoded` process in a directory of its own, with the attributes Kazoo's tests use of a server."""

    def __init__(self, port: int, directory: Path, certificates: Certificates) -> None:
        self.host = HOST
        self.client_port = port
        self.secure_client_port = port + 1
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "znoded.log"
        self.config_path = directory / "member.toml"
        self.config_path.write_text(
            CONFIGURATION.format(
                host=HOST,
                data_dir=self.data_dir,
                client_port=port,
                tls_port=port + 1,
                admin_port=port + 2,
                certificates=certificates,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def secure_address(self) -> str:
        return f"{self.host}:{self.secure_client_port}"

    @property
    def running(self) -> bool:
        return self._process is not None

    def run(self) -> None:
        """Start the process and return once it accepts connections."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "twisted", "znoded", "--config", str(self.config_path)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(self.client_port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"znoded does not serve {self.address}, its log:\n{self._log_tail(100)}")
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """End the process; its data stays."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"znoded did not end within {STOP_TIMEOUT_S} s of SIGTERM") from None

    def reset(self) -> None:
        """End the process and forget its data."""
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def destroy(self) -> None:
        """End the process; nothing of it stays but its configuration, so that it can be run again."""
        self.reset()
        self.log_path.unlink(missing_ok=True)

    def get_logs(self, num_lines: int = 100) -> list[str]:
        return self._log_tail(num_lines).splitlines()

    def _log_tail(self, lines: int) -> str:
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class ZookeeperCluster:
    """A cluster of one member. Kazoo's harness passes more than is needed here: all but the first port is for its Java servers."""

    def __init__(self, *, port_offset: int, **_for_java_servers: object) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kazoo-suite-"))
        self._certificates = make_certificates(self._directory)
        self._members = [ManagedMember(port_offset, self._directory, self._certificates)]

    def __getitem__(self, index: int) -> ManagedMember:
        return self._members[index]

    def __iter__(self) -> Iterator[ManagedMember]:
        return iter(self._members)

    def start(self) -> None:
        for member in self:
            member.run()

    def stop(self) -> None:
        for member in self:
            member.stop()

    def reset(self) -> None:
        for member in self:
            member.reset()

    def terminate(self) -> None:
        for member in self:
            member.destroy()

    def get_logs(self) -> list[str]:
        return [line for member in self for line in member.get_logs()]

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        """What a client needs to be let in over TLS, as PEM."""
        return {
            "client_key": self._certificates.client_key.read_bytes(),
            "client_cert": self._certificates.client_certificate.read_bytes(),
            "ca_cert": self._certificates.ca_certificate.read_bytes(),
        }


def accepts(port: int) -> bool:
    """Whether something on this machine accepts connections on `port`."""
    try:
        with socket.create_connection((HOST, port), 1.0):
            return True
    except OSError:
        return False
