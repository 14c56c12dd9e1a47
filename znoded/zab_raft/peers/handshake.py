"""How two members prove to each other who they are, before anything else is said. Pure: payloads in, payloads out.

    dialler                                            acceptor
      hello: purpose, who I am, whom I want, nonce  ->
                                                    <-  reply: who I am, nonce, proof
      proof                                         ->
                                                    <-  verdict: accepted, or a reason

A proof is an HMAC-SHA256 over both sides' words, under the secret that all members of a cell share and with the
prover's part in it, so that neither a recording nor an echo proves anything. Without a secret a proof is empty. Either
side may send a verdict with a reason, and close, in the place of what it owes.
"""

from __future__ import annotations

import hmac
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from znoded.jute.primitives import JuteError, Reader, encode_buffer
from znoded.zab_raft.peers.identity import Identity

FORMAT = 1
#: No payload of a handshake is longer.
HANDSHAKE_BYTES_LIMIT = 1024
NONCE_BYTES = 32
ADDRESS_BYTES_LIMIT = 300
REASON_BYTES_LIMIT = 400

_MAGIC = b"znoded peer\n"
_HEAD = Struct(f">{len(_MAGIC)}sHB")
_IDENTITY = Struct(">16sIQ16s")
_HELLO = Struct(">BI")
_NONCE = Struct(f">{NONCE_BYTES}s")
_HELLO_KIND, _REPLY_KIND, _PROOF_KIND, _VERDICT_KIND = range(1, 5)


class Purpose(IntEnum):
    """What a connection is for."""

    FRAMES = 1
    SNAPSHOT = 2
    #: A blank member asks for its cell.
    ENTER = 3


class Refused(Exception):
    """The other side does not go on with this one; the text is its reason."""


class Mistrusted(Exception):
    """This side does not go on with the other one; the text is the reason, in words that either side can log."""


class Hello(NamedTuple):
    """`to_number` is whom the dialler takes the acceptor for, `address` where the dialler itself is reached."""

    purpose: Purpose
    identity: Identity
    to_number: int
    address: str
    nonce: bytes

    def encode(self) -> bytes:
        parts = _HELLO.pack(self.purpose, self.to_number), encode_buffer(self.address.encode()), self.nonce
        return _head(_HELLO_KIND) + _encode_identity(self.identity) + b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> Hello:
        """Raises JuteError, or Mistrusted for another format of the protocol."""
        reader = _body(payload, _HELLO_KIND)
        identity = _decode_identity(reader)
        purpose, to_number = reader.unpack(_HELLO)
        address = reader.buffer() or b""
        nonce = reader.data[reader.position :]
        if len(nonce) != NONCE_BYTES or len(address) > ADDRESS_BYTES_LIMIT or purpose not in Purpose._value2member_map_:
            raise JuteError("not a hello")
        try:
            return cls(Purpose(purpose), identity, to_number, address.decode(), nonce)
        except UnicodeDecodeError as error:
            raise JuteError("the address in a hello is not text") from error


class Dialling:
    """The dialler's side of one handshake. Its payloads are `hello`, then `proof`."""

    def __init__(self, hello: Hello, secret: bytes) -> None:
        self.hello = hello.encode()
        self._secret = secret

    def replied(self, payload: bytes) -> Identity:
        """Who the acceptor is, proven; `proof` is set. Raises JuteError, Mistrusted, or Refused."""
        _raise_refusal(payload)
        reader = _body(payload, _REPLY_KIND)
        identity = _decode_identity(reader)
        reader.unpack(_NONCE)
        transcript = _transcript(self.hello, payload[: reader.position])
        _check_proof(self._secret, b"acceptor", transcript, payload[reader.position :])
        self.proof = _head(_PROOF_KIND) + _proof(self._secret, b"dialer", transcript)
        return identity

    def judged(self, payload: bytes) -> None:
        """The acceptor's verdict. Raises JuteError or Refused."""
        _raise_refusal(payload)
        _body(payload, _VERDICT_KIND)


class Accepting:
    """The acceptor's side of one handshake. Its payloads are `reply`, then a verdict."""

    def __init__(self, identity: Identity, secret: bytes, nonce: bytes) -> None:
        self._said = _head(_REPLY_KIND) + _encode_identity(identity) + nonce
        self._secret = secret

    def greeted(self, payload: bytes) -> Hello:
        """What the dialler claims; `reply` is set. Raises JuteError, Mistrusted, or Refused."""
        _raise_refusal(payload)
        hello = Hello.decode(payload)
        self._transcript = _transcript(payload, self._said)
        self.reply = self._said + _proof(self._secret, b"acceptor", self._transcript)
        return hello

    def proven(self, payload: bytes) -> None:
        """The dialler's proof. Raises JuteError, Mistrusted, or Refused."""
        _raise_refusal(payload)
        reader = _body(payload, _PROOF_KIND)
        _check_proof(self._secret, b"dialer", self._transcript, payload[reader.position :])


def verdict(reason: str = "") -> bytes:
    """The payload that accepts the other side, or says why it is not accepted."""
    return _head(_VERDICT_KIND) + reason.encode()[:REASON_BYTES_LIMIT]


def _head(kind: int) -> bytes:
    return _HEAD.pack(_MAGIC, FORMAT, kind)


def _body(payload: bytes, kind: int) -> Reader:
    """What follows the head, if that is as it should be."""
    reader = Reader(payload)
    magic, version, found = reader.unpack(_HEAD)
    if magic != _MAGIC:
        raise JuteError("this is not a member of a znoded cell")
    if version != FORMAT:
        raise Mistrusted(f"one side speaks format {version} of the peer protocol, the other {FORMAT}")
    if found != kind:
        raise JuteError(f"part {found} of a handshake where part {kind} belongs")
    return reader


def _raise_refusal(payload: bytes) -> None:
    if payload[: _HEAD.size] == _head(_VERDICT_KIND) and len(payload) > _HEAD.size:
        raise Refused(payload[_HEAD.size : _HEAD.size + REASON_BYTES_LIMIT].decode(errors="replace"))


def _encode_identity(identity: Identity) -> bytes:
    return _IDENTITY.pack(identity.cell, identity.number, identity.raft_id, identity.incarnation)


def _decode_identity(reader: Reader) -> Identity:
    return Identity(*reader.unpack(_IDENTITY))


def _transcript(hello: bytes, reply: bytes) -> bytes:
    return encode_buffer(hello) + encode_buffer(reply)


def _proof(secret: bytes, prover: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, prover + b"\0" + transcript, "sha256") if secret else b""


def _check_proof(secret: bytes, prover: bytes, transcript: bytes, proof: bytes) -> None:
    if hmac.compare_digest(_proof(secret, prover, transcript), proof):
        return
    if not secret or not proof:
        raise Mistrusted("only one of the two has a cell.secret_file")
    raise Mistrusted("the two have different secrets in their cell.secret_file, or the proof is not fresh")
