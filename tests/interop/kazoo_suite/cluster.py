"""Stands in for `kazoo.testing.common`: the servers that Kazoo's own tests start and stop are znoded members.

Kazoo's module of that name runs Java servers and makes their key stores; its harness uses only what is here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cell_processes import CellProcesses
from tests.interop.certificates import Certificates, make_certificates
from tests.server_process import ServerProcess, free_port

HOST = "127.0.0.1"

# The settings of the servers that Kazoo's cluster starts, in our terms: the superuser is super:test, no limit on
# connections from one address, every four-letter word, reconfig on; the SASL users are those of its JAAS file.
CONFIGURATION = """\
tick_ms = 2000
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
[limits]
connections_per_address = 0
[tree]
ttl_nodes = true
reconfig = true
[words]
allow = ["*"]
"""


class ManagedMember:
    """One `twistd -n znoded` process, with the attributes that Kazoo's tests use of a server."""

    def __init__(self, server: ServerProcess, secure_client_port: int) -> None:
        self.host = HOST
        self.secure_client_port = secure_client_port
        self.secure_address = f"{HOST}:{secure_client_port}"
        self._server = server
        self.client_port = server.port
        self.address = server.address

    @property
    def running(self) -> bool:
        return self._server.runs

    def run(self) -> None:
        """Start the process and return once it serves."""
        if not self.running:
            self._server.start()

    def launch(self) -> None:
        """Start the process."""
        if not self.running:
            self._server.launch()

    def wait_until_it_serves(self) -> None:
        self._server.wait_until_it_serves()

    def stop(self) -> None:
        """End the process; its data stays. Raises RuntimeError when anything went wrong inside while it ran."""
        if self.running:
            self._server.stop()
            log = self._server.log_path.read_text(errors="replace")
            if "Traceback" in log:
                raise RuntimeError(f"a traceback in the log of znoded:\n{log}")

    def reset(self) -> None:
        """End the process and forget its data; it can be run again."""
        self.stop()
        shutil.rmtree(self._server.data_dir, ignore_errors=True)

    def get_logs(self, num_lines: int = 100) -> list[str]:
        path = self._server.log_path
        return path.read_text(errors="replace").splitlines()[-num_lines:] if path.exists() else []


class ZookeeperCluster:
    """A member that stands alone, or a cell of `size`. What else Kazoo's harness passes is for its Java servers."""

    def __init__(self, size: int, **_for_java_servers: object) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kazoo-suite-")
        directory = Path(self._directory.name)
        self._certificates = make_certificates(directory)
        secure_ports = [free_port() for _ in range(size)]
        configurations = [configuration(port, self._certificates) for port in secure_ports]
        servers: list[ServerProcess]
        if size == 1:
            servers = [ServerProcess(directory, configurations[0])]
        else:
            servers = list(CellProcesses(directory, lambda number: configurations[number - 1], size))
        self._members = [ManagedMember(*pair) for pair in zip(servers, secure_ports, strict=True)]

    def __getitem__(self, index: int) -> ManagedMember:
        return self._members[index]

    def __iter__(self) -> Iterator[ManagedMember]:
        return iter(self._members)

    def start(self) -> None:
        for member in self:
            member.launch()
        for member in self:
            member.wait_until_it_serves()

    def stop(self) -> None:
        for member in self:
            member.stop()

    def reset(self) -> None:
        for member in self:
            member.reset()

    def terminate(self) -> None:
        self.reset()

    def get_logs(self) -> list[str]:
        return [line for member in self for line in member.get_logs()]

    def get_ssl_client_configuration(self) -> dict[str, bytes]:
        """What a client needs to be let in over TLS, as PEM."""
        return {
            "client_key": self._certificates.client_key.read_bytes(),
            "client_cert": self._certificates.client_certificate.read_bytes(),
            "ca_cert": self._certificates.ca_certificate.read_bytes(),
        }


def configuration(tls_port: int, certificates: Certificates) -> str:
    return CONFIGURATION.format(host=HOST, tls_port=tls_port, certificates=certificates)
