"""A certificate authority with one server and one client certificate, good for a day."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files; each key belongs to the certificate of the same name."""

    ca_certificate: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path


def make_certificates(directory: Path, client_subject: x509.Name | None = None) -> Certificates:
    """Write a fresh set below `directory`.

    The server's is for localhost and 127.0.0.1; the client's subject is CN=client unless another one is given.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = name("ca")
    ca = sign(ca_name, ca_key, ca_name, ca_key, x509.BasicConstraints(ca=True, path_length=0))
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    end_entity = x509.BasicConstraints(ca=False, path_length=None)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = sign(name("localhost"), server_key, ca_name, ca_key, end_entity, here)
    client_key = ec.generate_private_key(ec.SECP256R1())
    client = sign(client_subject or name("client"), client_key, ca_name, ca_key, end_entity)
    return Certificates(
        ca_certificate=write(directory / "ca.crt", certificate_pem(ca)),
        server_certificate=write(directory / "server.crt", certificate_pem(server)),
        server_key=write(directory / "server.key", key_pem(server_key)),
        client_certificate=write(directory / "client.crt", certificate_pem(client)),
        client_key=write(directory / "client.key", key_pem(client_key)),
    )


def name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(constraints, critical=True)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
