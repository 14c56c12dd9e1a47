"""TLS between the members of a cell."""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from zope.interface import implementer

from znoded.config import CellTlsConfig, TlsConfig
from znoded.server.tls import make_context


@implementer(IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator)
class PeerContext:
    """Makes the TLS side of each connection between members: both ends show a certificate that one CA signed."""

    def __init__(self, config: CellTlsConfig) -> None:
        """Raise TlsFilesError."""
        self._context = make_context(TlsConfig((), config.certificate, config.private_key, config.ca), SSL.TLS_METHOD)

    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """The side that dials."""
        return SSL.Connection(self._context, None)

    def serverConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """The side that is dialled."""
        return SSL.Connection(self._context, None)
