"""TLS towards clients: contexts from PEM files, read again when they change, and the names in clients' certificates."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import Certificate
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from zope.interface import implementer

from znoded.config import TlsConfig
from znoded.server.distinguished_name import rfc2253, subject_of

log = Logger()

CHECK_INTERVAL_S = 1.0
#: For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has nothing else.
CIPHERS = b"ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL"


class TlsFilesError(Exception):
    """The certificate, the private key or the client CA cannot be used. The text names them and says why."""


@implementer(IOpenSSLServerConnectionCreator)
class ReloadingContext:
    """Makes the TLS side of each accepted connection, from files that are looked at again at most once a second.

    Connections that are open keep what they were made with. Raises TlsFilesError if the files are no good at the start;
    if they turn bad later, the last good ones stay in force and the error is logged.
    """

    def __init__(self, config: TlsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds that never go back."""
        self._config = config
        self._clock = clock
        self._stamps = _stamps(config)
        self._context = make_context(config)
        self._checked_s = clock()

    def serverConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """IOpenSSLServerConnectionCreator: the connection that Twisted drives in memory."""
        self._reload_if_changed()
        return SSL.Connection(self._context, None)

    def _reload_if_changed(self) -> None:
        now_s = self._clock()
        if now_s - self._checked_s < CHECK_INTERVAL_S:
            return
        self._checked_s = now_s
        stamps = _stamps(self._config)
        if stamps == self._stamps:
            return
        # Remembered before they are read: if they change meanwhile, the next check sees that.
        self._stamps = stamps
        try:
            self._context = make_context(self._config)
        except TlsFilesError as error:
            log.error("{error}; the TLS files read before stay in force", error=error)
        else:
            log.info("read changed TLS files: {certificate}", certificate=self._config.certificate)


def make_context(config: TlsConfig, method: int = SSL.TLS_SERVER_METHOD) -> SSL.Context:
    """A context for TLS 1.2 and later. With a client CA, clients must show a certificate that it signed.

    Raises TlsFilesError.
    """
    context = SSL.Context(method)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(CIPHERS)
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET)
    # Nothing is resumed: a client is judged by its certificate, and by the CA of now, each time it connects.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    certificate, private_key, client_ca = config.certificate, config.private_key, config.client_ca
    _load(context.use_certificate_chain_file, certificate, "the server's certificate and those that lead to its CA")
    _load(_check_private_key, private_key, "a private key without a passphrase")
    _load(context.use_privatekey_file, private_key, f"the private key of {certificate}")
    if client_ca is not None:
        _load(context.load_verify_locations, client_ca, "the CA certificates that sign clients")
        context.load_client_ca(os.fsencode(client_ca))
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
    return context


def _check_private_key(path: str) -> None:
    """OpenSSL itself would ask for a passphrase on the terminal; this fails."""
    with open(path, "rb") as file:
        load_pem_private_key(file.read(), password=None)


def _load(load: Callable[[str], None], path: str, expected: str) -> None:
    """Call `load` with the file, or say what is wrong with it and what was expected in it."""
    try:
        with open(path, "rb"):
            load(path)
    except OSError as error:
        raise TlsFilesError(f"{path} cannot be read: {error.strerror}") from error
    except (SSL.Error, TypeError, ValueError) as error:
        why = "; ".join(reason for _, _, reason in error.args[0] if reason) if isinstance(error, SSL.Error) else error
        raise TlsFilesError(f"{path} cannot be used for TLS: it must hold, as PEM, {expected} ({why})") from error


def _stamps(config: TlsConfig) -> list[tuple[int, ...] | None]:
    """What differs when one of the files was changed or replaced."""
    paths = (config.certificate, config.private_key, config.client_ca)
    return [_stamp(path) for path in paths if path is not None]


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def subject_rfc2253(certificate: Certificate) -> bytes:
    """The subject as Java's X500Principal.getName() gives it, which is what x509 ACLs hold (protocol facts 13)."""
    return rfc2253(subject_of(certificate.tbs_certificate_bytes)).encode()
