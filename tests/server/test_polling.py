"""Which ports the poller reads."""

from __future__ import annotations

from twisted.internet import ssl, unix
from twisted.internet.protocol import ServerFactory
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactorClock
from twisted.protocols.tls import TLSMemoryBIOFactory

from znoded.server.polling import SocketPoller


def is_polled(port: Port) -> bool:
    before = port.doRead
    SocketPoller(MemoryReactorClock(), lambda received: None).take_over(port)
    return port.doRead != before


def test_a_port_for_tcp_is() -> None:
    assert is_polled(Port(0, ServerFactory()))


def test_one_that_wraps_its_protocols_in_tls_is_not() -> None:
    secure = TLSMemoryBIOFactory(ssl.CertificateOptions(), False, ServerFactory())
    assert not is_polled(Port(0, secure))


def test_one_for_unix_sockets_is_not() -> None:
    assert not is_polled(unix.Port(b"a path", ServerFactory()))
