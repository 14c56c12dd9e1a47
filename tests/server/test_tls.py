"""TLS contexts made from PEM files: what they demand, how they follow their files, and the names in certificates."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.internet import task
from twisted.internet.interfaces import IOpenSSLContextFactory, IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import LogEvent, capturedLogs
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.test.iosim import connectedServerAndClient
from zope.interface import implementer
from zope.interface.verify import verifyObject

from znoded.config import TlsConfig
from znoded.server.tls import ReloadingContext, TlsFilesError, subject_rfc2253

PEM = serialization.Encoding.PEM
BORN = datetime.datetime(2020, 1, 1)
DIES = datetime.datetime(2120, 1, 1)


class Authority:
    """A CA, or, below another one, whoever it vouches for."""

    def __init__(self, name: str | x509.Name, issuer: Authority | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        if isinstance(name, str):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = issuer or self
        self.name = name
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(BORN)
            .not_valid_after(DIES)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer.key, hashes.SHA256())
        )

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)

    def key_pem(self, passphrase: bytes | None = None) -> bytes:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if passphrase is not None:
            encryption = serialization.BestAvailableEncryption(passphrase)
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption)


class Files:
    """The PEM files of a server in a folder."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "server.crt"
        self.private_key = folder / "server.key"
        self.client_ca = folder / "ca.crt"
        self._changes = 0

    def write(self, path: Path, pem: bytes) -> None:
        """Put a new content in place, with another time of change however fast the tests run."""
        path.write_bytes(pem)
        self._changes += 1
        os.utime(path, (self._changes, self._changes))

    def write_server(self, server: Authority, *chain: Authority) -> None:
        self.write(self.certificate, b"".join(each.certificate_pem() for each in (server, *chain)))
        self.write(self.private_key, server.key_pem())

    def config(self, *, client_ca: bool = False) -> TlsConfig:
        return TlsConfig(
            listen=(),
            certificate=str(self.certificate),
            private_key=str(self.private_key),
            client_ca=str(self.client_ca) if client_ca else None,
        )


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.write_server(Authority("first"))
    return files


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logged() -> Iterator[Sequence[LogEvent]]:
    with capturedLogs() as events:
        yield events


def client_context(client: Authority | None = None) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    if client is not None:
        context.use_certificate(client.certificate)
        context.use_privatekey(client.key)
    return context


def shake_hands(factory: ReloadingContext, context: SSL.Context | None = None) -> tuple[SSL.Connection, SSL.Connection]:
    """Both ends, after their handshake in memory. Raises SSL.Error if either refuses the other."""
    server = factory.serverConnectionForTLS(None)
    client = SSL.Connection(context or client_context(), None)
    server.set_accept_state()
    client.set_connect_state()
    done = 0
    for _ in range(10):
        for end, other in ((client, server), (server, client)):
            try:
                end.do_handshake()
                done += 1
            except SSL.WantReadError:
                pass
            try:
                other.bio_write(end.bio_read(1 << 16))
            except SSL.WantReadError:
                pass
    assert done > 10
    return server, client


def served_name(factory: ReloadingContext) -> str:
    _, client = shake_hands(factory)
    certificate = client.get_peer_certificate(as_cryptography=True)
    assert certificate is not None
    return certificate.subject.rfc4514_string()


class Greeter(Protocol):
    """A server that says one word."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(b"imok")


class Listener(Protocol):
    """A client that keeps what it hears."""

    heard = b""

    def dataReceived(self, data: bytes) -> None:
        self.heard += data


@implementer(IOpenSSLContextFactory)
class ClientSide:
    def getContext(self) -> SSL.Context:
        return client_context()


# ---- what a context demands


def test_it_is_what_twisted_asks_for(files: Files) -> None:
    verifyObject(IOpenSSLServerConnectionCreator, ReloadingContext(files.config()))


def test_a_twisted_server_speaks_through_it(files: Files) -> None:
    reactor_clock = task.Clock()  # Twisted sends what was written at the end of the turn
    listener = Listener()
    served, heard = Factory.forProtocol(Greeter), Factory.forProtocol(lambda: listener)
    server_side = TLSMemoryBIOFactory(ReloadingContext(files.config()), False, served, reactor_clock)
    client_side = TLSMemoryBIOFactory(ClientSide(), True, heard, reactor_clock)
    _, _, pump = connectedServerAndClient(
        lambda: server_side.buildProtocol(None), lambda: client_side.buildProtocol(None)
    )
    pump.flush()
    reactor_clock.advance(0)
    pump.flush()
    assert listener.heard == b"imok"


@pytest.mark.parametrize("version", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION])
def test_it_speaks_tls_1_2_and_1_3(files: Files, version: int) -> None:
    context = client_context()
    context.set_min_proto_version(version)
    context.set_max_proto_version(version)
    server, _ = shake_hands(ReloadingContext(files.config()), context)
    assert server.get_protocol_version() == version


def test_it_refuses_tls_1_1(files: Files) -> None:
    context = client_context()
    context.set_cipher_list(b"ALL:@SECLEVEL=0")
    context.set_min_proto_version(SSL.TLS1_1_VERSION)
    context.set_max_proto_version(SSL.TLS1_1_VERSION)
    with pytest.raises(SSL.Error):
        shake_hands(ReloadingContext(files.config()), context)


def test_the_whole_chain_is_sent(files: Files) -> None:
    root = Authority("root")
    middle = Authority("middle", root)
    files.write_server(Authority("server", middle), middle)
    _, client = shake_hands(ReloadingContext(files.config()))
    chain = client.get_peer_cert_chain(as_cryptography=True)
    assert chain is not None
    assert [each.subject.rfc4514_string() for each in chain] == ["CN=server", "CN=middle"]


def test_no_certificate_is_asked_for_without_a_client_ca(files: Files) -> None:
    server, _ = shake_hands(ReloadingContext(files.config()), client_context(Authority("ann")))
    assert server.get_peer_certificate(as_cryptography=True) is None


def test_a_client_with_a_certificate_of_the_client_ca_gets_in(files: Files) -> None:
    ca = Authority("ca")
    files.write(files.client_ca, ca.certificate_pem())
    factory = ReloadingContext(files.config(client_ca=True))
    server, client = shake_hands(factory, client_context(Authority("ann", ca)))
    certificate = server.get_peer_certificate(as_cryptography=True)
    assert certificate is not None
    assert subject_rfc2253(certificate) == b"CN=ann"
    assert [name.CN for name in client.get_client_ca_list()] == ["ca"]


@pytest.mark.parametrize(
    "make_client", [lambda: None, lambda: Authority("ann"), lambda: Authority("ann", Authority("ca"))]
)
def test_other_clients_are_refused(files: Files, make_client: Callable[[], Authority | None]) -> None:
    files.write(files.client_ca, Authority("ca").certificate_pem())
    factory = ReloadingContext(files.config(client_ca=True))
    with pytest.raises(SSL.Error):
        shake_hands(factory, client_context(make_client()))


# ---- following the files


def test_changed_files_are_read_again(files: Files, clock: Clock) -> None:
    factory = ReloadingContext(files.config(), clock)
    assert served_name(factory) == "CN=first"
    files.write_server(Authority("second"))
    clock.now_s = 1.0
    assert served_name(factory) == "CN=second"


def test_files_are_looked_at_once_a_second_at_most(files: Files, clock: Clock) -> None:
    factory = ReloadingContext(files.config(), clock)
    files.write_server(Authority("second"))
    clock.now_s = 0.9
    assert served_name(factory) == "CN=first"


def test_files_that_did_not_change_are_not_read_again(files: Files, clock: Clock, logged: Sequence[LogEvent]) -> None:
    factory = ReloadingContext(files.config(), clock)
    clock.now_s = 5.0
    assert served_name(factory) == "CN=first"
    assert not logged


def test_a_changed_client_ca_counts_for_the_next_client(files: Files, clock: Clock) -> None:
    old, new = Authority("old"), Authority("new")
    files.write(files.client_ca, old.certificate_pem())
    factory = ReloadingContext(files.config(client_ca=True), clock)
    files.write(files.client_ca, new.certificate_pem())
    clock.now_s = 1.0
    shake_hands(factory, client_context(Authority("ann", new)))
    with pytest.raises(SSL.Error):
        shake_hands(factory, client_context(Authority("ann", old)))


def test_bad_files_leave_the_old_ones_in_force_with_one_error(
    files: Files, clock: Clock, logged: Sequence[LogEvent]
) -> None:
    factory = ReloadingContext(files.config(), clock)
    second = Authority("second")
    files.write(files.certificate, second.certificate_pem())  # and its key is not there yet
    for clock.now_s in (1.0, 2.0, 3.0):
        assert served_name(factory) == "CN=first"
    (event,) = logged
    assert str(files.private_key) in str(event["error"])
    files.write(files.private_key, second.key_pem())
    clock.now_s = 4.0
    assert served_name(factory) == "CN=second"


def test_files_that_vanish_leave_the_old_ones_in_force(files: Files, clock: Clock, logged: Sequence[LogEvent]) -> None:
    factory = ReloadingContext(files.config(), clock)
    files.certificate.unlink()
    clock.now_s = 1.0
    assert served_name(factory) == "CN=first"
    assert f"{files.certificate} cannot be read: No such file or directory" in str(logged[0]["error"])


def test_a_start_with_bad_files_fails_and_names_the_file(files: Files) -> None:
    def refusal(**config: bool) -> str:
        with pytest.raises(TlsFilesError) as caught:
            ReloadingContext(files.config(**config))
        return str(caught.value)

    assert refusal(client_ca=True) == f"{files.client_ca} cannot be read: No such file or directory"
    files.write(files.client_ca, b"no PEM")
    assert refusal(client_ca=True).startswith(f"{files.client_ca} cannot be used for TLS: it must hold")
    files.write(files.private_key, Authority("other").key_pem())
    assert refusal() == (
        f"{files.private_key} cannot be used for TLS: it must hold, as PEM, the private key of {files.certificate} "
        "(key values mismatch)"
    )
    files.write(files.private_key, b"no PEM")
    assert "a private key without a passphrase" in refusal()
    files.write(files.certificate, b"")
    assert refusal().startswith(f"{files.certificate} cannot be used for TLS: it must hold")


def test_a_key_with_a_passphrase_is_refused_without_asking(files: Files) -> None:
    server = Authority("server")
    files.write_server(server)
    files.write(files.private_key, server.key_pem(b"secret"))
    with pytest.raises(TlsFilesError, match="without a passphrase"):
        ReloadingContext(files.config())


# ---- names


def test_a_subject_is_written_as_java_writes_it() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ünïcode, Inc."),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
            x509.NameAttribute(NameOID.COMMON_NAME, "ann"),
        ]
    )
    assert subject_rfc2253(Authority(name).certificate).decode() == (
        "CN=ann,1.2.840.113549.1.9.1=#16056140622e63,O=Ünïcode\\, Inc.,C=DE"
    )
