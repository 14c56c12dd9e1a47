"""Dialling another member: connect, prove, and hand over a connection that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IAddress, IOpenSSLClientConnectionCreator
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOFactory

from znoded.zab_raft.peers.connection import PeerConnection, address_of
from znoded.zab_raft.peers.gate import Gate
from znoded.zab_raft.peers.handshake import NONCE_BYTES, Dialling, Hello, Mistrusted, Purpose, Refused
from znoded.zab_raft.peers.refusal_log import RefusalLog

CONNECT_TIMEOUT_S = 1.0

#: Connects a protocol of the factory to "host:port", and fires with it.
Connect = Callable[[str, Factory], Deferred[Any]]


def connector(reactor: Any, tls: IOpenSSLClientConnectionCreator | None) -> Connect:
    """Connects over TCP, or over TLS."""

    def connect(address: str, factory: Factory) -> Deferred[Any]:
        endpoint = _endpoint(reactor, *address_of(address))
        if tls is None:
            connected: Deferred[Any] = endpoint.connect(factory)
        else:
            connected = endpoint.connect(secured(tls, True, factory, reactor)).addCallback(_within)
        return connected

    return connect


def secured(tls: Any, is_client: bool, factory: Any, reactor: Any) -> Any:
    """A factory of TLS connections around the protocols of `factory`."""
    wrapped = TLSMemoryBIOFactory(tls, is_client, factory, reactor)
    wrapped.noisy = False
    return wrapped


def _within(connection: Any) -> Any:
    return connection.wrappedProtocol


def _endpoint(reactor: Any, host: str, port: int) -> Any:
    """An address in numbers needs no resolver, which takes a thread."""
    if isIPAddress(host):
        return TCP4ClientEndpoint(reactor, host, port, timeout=CONNECT_TIMEOUT_S)
    if isIPv6Address(host):
        return TCP6ClientEndpoint(reactor, host, port, timeout=CONNECT_TIMEOUT_S)
    return HostnameEndpoint(reactor, host, port, timeout=CONNECT_TIMEOUT_S)


class Dialled(PeerConnection):
    """The dialler's end. `opened` fires with it when both sides are content, or fails; `on_ended` is called later on.

    It fails with `Refused` if either side refused the other, which is logged then.

    `on_ended(by_other)` says who closed it.
    """

    def __init__(self, dialler: Dialler, purpose: Purpose, raft_id: int, number: int, address: str) -> None:
        super().__init__(dialler.reactor)
        self.opened: Deferred[Dialled] = Deferred(lambda _: self.close())
        self.on_ended: Callable[[bool], None] = lambda by_other: None
        self._dialler = dialler
        self._purpose = purpose
        self._raft_id = raft_id
        self._number = number
        self._address = address
        self._replied = False
        self._refusal: Refused | None = None

    def connectionMade(self) -> None:
        super().connectionMade()
        gate = self._dialler.gate
        nonce = self._dialler.random_bytes(NONCE_BYTES)
        self._handshake = Dialling(Hello(self._purpose, gate.identity, self._number, gate.address, nonce), gate.secret)
        self.say(self._handshake.hello)

    def shake(self, payload: bytes) -> None:
        if not self._replied:
            self._check(payload)
            self._replied = True
            self.say(self._handshake.proof)
        else:
            self._handshake.judged(payload)
            self.opened.callback(self)

    def refused(self, reason: str) -> None:
        self._refusal = Refused(reason)
        self._dialler.refusals.add(self.host, f"member {self._number} at {self._address}", reason)

    def ended(self, by_other: bool, why: str) -> None:
        if self.opened.called:
            self.on_ended(by_other)
        else:
            self.opened.errback(self._refusal or ConnectionLost(why))

    def _check(self, payload: bytes) -> None:
        gate = self._dialler.gate
        identity = self._handshake.replied(payload)
        if self._purpose is Purpose.ENTER:
            why = gate.why_not_number(identity, self._number)
        else:
            why = gate.why_not_acceptor(identity, self._raft_id, self._number)
        if why:
            raise Mistrusted(why)


class Dialler:
    """Makes connections to other members."""

    def __init__(
        self, reactor: Any, gate: Gate, refusals: RefusalLog, connect: Connect, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.reactor = reactor
        self.gate = gate
        self.refusals = refusals
        self.random_bytes = random_bytes
        self._connect = connect

    def dial(self, purpose: Purpose, raft_id: int, number: int, address: str) -> Deferred[Dialled]:
        """A connection to the member at an address, whose handshake is done; its owner has to `open` it at once."""
        try:
            connecting = self._connect(address, _DialledFactory(self, purpose, raft_id, number, address))
        except ValueError as error:  # not "host:port"
            return fail(error)
        return connecting.addCallback(lambda connection: connection.opened)


class _DialledFactory(Factory):
    noisy = False

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def buildProtocol(self, addr: IAddress | None) -> Dialled:
        return Dialled(*self._arguments)
