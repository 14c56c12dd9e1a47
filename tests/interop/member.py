"""What the client programs work on, a member or a cell of three: every feature on, sweeps and timeouts quick."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from tests.cell_processes import CellProcesses
from tests.interop.certificates import make_certificates
from tests.server_process import ServerProcess, free_port

SUPER_PASSWORD = "test"

# A name of several parts, one of which needs an escape when it is written as text.
CLIENT_SUBJECT = x509.Name.from_rfc4514_string(r"CN=client\, interop,OU=clients,O=znoded")

# The digest is that of super:test.
CONFIGURATION = """\
tick_ms = 500
[auth]
super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
[auth.sasl_users]
super = "super_password"
jaasuser = "jaas_password"
[limits]
connections_per_address = 0
[tree]
sweep_interval_ms = 500
[words]
allow = ["*"]
"""

TLS = """\
[client.tls]
listen = ["tcp:{secure_port}:interface=127.0.0.1"]
certificate = "{certificates.server_certificate}"
private_key = "{certificates.server_key}"
client_ca = "{certificates.ca_certificate}"
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A serving member: its process, its plain and its TLS address as host:port, and a folder for its TLS clients.

    The folder holds `client.pem` (key, then certificate), `client.crt` and `ca.pem`.
    """

    process: ServerProcess
    address: str
    secure_address: str
    certificates: Path


@contextmanager
def member(directory: Path) -> Iterator[Member]:
    """Start a member in `directory`, which exists, and end it with the block. No client may bring it to a traceback."""
    certificates = make_certificates(directory, CLIENT_SUBJECT)
    (directory / "client.pem").write_bytes(
        certificates.client_key.read_bytes() + certificates.client_certificate.read_bytes()
    )
    (directory / "ca.pem").write_bytes(certificates.ca_certificate.read_bytes())
    secure_port = free_port()
    toml = CONFIGURATION + TLS.format(certificates=certificates, secure_port=secure_port)
    with ServerProcess(directory, toml) as server:
        yield Member(server, server.address, f"127.0.0.1:{secure_port}", directory)
    expect_no_traceback(server)


@contextmanager
def cell(directory: Path) -> Iterator[CellProcesses]:
    """Start a cell of three in `directory`, which exists, and end it with the block. The same is asked of it."""
    with CellProcesses(directory, lambda _number: CONFIGURATION) as members:
        yield members
    for each in members:
        expect_no_traceback(each)


def expect_no_traceback(server: ServerProcess) -> None:
    log = server.log_path.read_text()
    assert "Traceback" not in log, log
