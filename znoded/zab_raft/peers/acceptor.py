"""The other members' connections to here, and everybody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from znoded.zab_raft.peers.connection import PeerConnection
from znoded.zab_raft.peers.gate import Gate
from znoded.zab_raft.peers.handshake import NONCE_BYTES, Accepting, Hello, Mistrusted, verdict
from znoded.zab_raft.peers.refusal_log import RefusalLog

#: Connections whose handshake is not done, in all.
STRANGERS_LIMIT = 64
STRANGERS_PER_HOST = 16


class Guests(Protocol):
    """Who takes over the connections that were accepted."""

    def accepted(self, connection: Incoming, hello: Hello) -> None:
        """The handshake is done; the connection has to be opened at once."""

    def gone(self, connection: Incoming, by_other: bool) -> None:
        """A connection that was accepted is closed."""


class Incoming(PeerConnection):
    """The acceptor's end. `hello` is the dialler's, proven once the connection was accepted."""

    hello: Hello

    def __init__(self, acceptor: Acceptor) -> None:
        super().__init__(acceptor.reactor)
        self._acceptor = acceptor
        self._accepting: Accepting | None = None
        self._accepted = False

    def connectionMade(self) -> None:
        super().connectionMade()
        self._acceptor.arrived(self)

    def shake(self, payload: bytes) -> None:
        gate = self._acceptor.gate
        if self._accepting is None:
            self._accepting = Accepting(gate.identity, gate.secret, self._acceptor.random_bytes(NONCE_BYTES))
            self.hello = self._accepting.greeted(payload)
            self.say(self._accepting.reply)
            return
        self._accepting.proven(payload)
        if why := gate.why_not_dialler(self.hello):
            raise Mistrusted(why)
        self._accepted = True
        self._acceptor.known(self)
        self.say(verdict())
        self._acceptor.guests.accepted(self, self.hello)

    def refused(self, reason: str) -> None:
        where = f"member {self.hello.identity.number} at {self.where}" if self._accepted else self.where
        self._acceptor.refusals.add(self.host, where, reason)

    def ended(self, by_other: bool, why: str) -> None:
        if self._accepted:
            self._acceptor.guests.gone(self, by_other)
            return
        self._acceptor.known(self)
        if by_other:
            self.refused(f"it ended within the handshake: {why}")


class Acceptor(ServerFactory):
    """Makes the acceptor's ends, and bounds how many may be in their handshake."""

    noisy = False

    def __init__(
        self, reactor: Any, gate: Gate, refusals: RefusalLog, guests: Guests, random_bytes: Callable[[int], bytes]
    ) -> None:
        self.reactor = reactor
        self.gate = gate
        self.refusals = refusals
        self.guests = guests
        self.random_bytes = random_bytes
        self._strangers: dict[Incoming, None] = {}  # oldest first

    def buildProtocol(self, addr: IAddress | None) -> Incoming:
        return Incoming(self)

    def arrived(self, connection: Incoming) -> None:
        """A connection whose handshake is to be done. If there are too many, the one that takes longest has to go.

        A member is soon done: so strangers who say nothing keep none out.
        """
        self._strangers[connection] = None
        of_host = [each for each in self._strangers if each.host == connection.host]
        if len(of_host) > STRANGERS_PER_HOST or len(self._strangers) > STRANGERS_LIMIT:
            oldest = of_host[0] if len(of_host) > STRANGERS_PER_HOST else next(iter(self._strangers))
            self.known(oldest)
            oldest.refuse("too many connections whose handshake is not done")

    def known(self, connection: Incoming) -> None:
        """Its handshake is done, or it is closed."""
        self._strangers.pop(connection, None)
