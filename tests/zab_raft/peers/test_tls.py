"""Members over mutual TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.logger import capturedLogs, formatEvent
from zope.interface import implementer

from tests.server.test_tls import Authority
from tests.zab_raft.peers.loop import Loop, Member, connect, introduce
from znoded.zab_raft.peers.peers import Tls
from znoded.zab_raft.peers.wire import FrameKind

Make = Callable[..., Member]


@implementer(IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator)
class Mutual:
    """Shows a certificate of one authority, and demands one of the same."""

    def __init__(self, path: Path, authority: Authority) -> None:
        own = Authority("member", authority)
        (path / "ca").write_bytes(authority.certificate_pem())
        (path / "certificate").write_bytes(own.certificate_pem())
        (path / "key").write_bytes(own.key_pem())
        self.context = SSL.Context(SSL.TLS_METHOD)
        self.context.use_certificate_file(str(path / "certificate"))
        self.context.use_privatekey_file(str(path / "key"))
        self.context.load_verify_locations(str(path / "ca"))
        self.context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)

    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        return SSL.Connection(self.context, None)

    serverConnectionForTLS = clientConnectionForTLS


def tls(path: Path, authority: Authority) -> Tls:
    path.mkdir()
    mutual = Mutual(path, authority)
    return Tls(mutual, mutual)


def test_members_with_certificates_of_one_authority_connect(loop: Loop, member: Make, tmp_path: Path) -> None:
    secure = tls(tmp_path / "tls", Authority("cell"))
    first, second = member(1, tls=secure), member(2, tls=secure)
    connect(loop, first, second)
    records = [bytes([number]) * (1 << 20) for number in range(20)]
    assert all(first.peers.send(2, FrameKind.TELL, record) for record in records)
    loop.run_until(lambda: len(second.handler.frames) == len(records))
    assert [frame[2] for frame in second.handler.frames] == records
    second.stop()
    loop.run_until(lambda: ("closed", 2) in first.handler.events)


def test_a_stranger_to_the_authority_is_refused(loop: Loop, member: Make, tmp_path: Path) -> None:
    first = member(1, tls=tls(tmp_path / "tls", Authority("cell")))
    second = member(2, tls=tls(tmp_path / "other tls", Authority("another")))
    with capturedLogs() as events:
        introduce(first, second)
        loop.run_until(lambda: any("ended within the handshake" in str(formatEvent(event)) for event in events))
    assert not first.peers.connected(2)


def test_plain_text_is_refused(loop: Loop, member: Make, tmp_path: Path) -> None:
    first = member(1, tls=tls(tmp_path / "tls", Authority("cell")))
    with capturedLogs() as events, socket.create_connection(("127.0.0.1", first.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        loop.run_until(lambda: any("ended within the handshake" in str(formatEvent(event)) for event in events))
