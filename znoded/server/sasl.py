"""The server's side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's clients speak it (protocol facts 13).

The old mechanism is kept for the clients that know no other. Only its quality `auth` is offered: no layer of its own
over the connection. One exchange: an empty token, our challenge, the client's response, our proof that we know the
password too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping

REALM = b"zk-sasl-md5"
DIGEST_URI = b"zookeeper/zk-sasl-md5"
NONCE_COUNT = b"00000001"
QUALITY = b"auth"
#: RFC 2831, 2.1.2: a longer response must be refused.
RESPONSE_BYTES_LIMIT = 4096

REQUIRED = (b"username", b"realm", b"nonce", b"cnonce", b"nc", b"digest-uri", b"response")

# One directive: a name, and a token or a quoted string as its value; any white space around them.
_DIRECTIVE = re.compile(
    rb"""[ \t\r\n]*(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t\r\n]*=[ \t\r\n]*"""
    rb"""(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<token>[!#$%&'*+.^_`|~0-9A-Za-z/-]+))[ \t\r\n]*""",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


class SaslFailure(Exception):
    """The exchange failed. The text says why, for the log; the client is not told."""


class DigestMd5Server:
    """One exchange with one client.

    `users` are names and passwords. `nonce` are bytes that never come twice, from a source that nobody can guess.
    """

    def __init__(self, users: Mapping[str, str], nonce: bytes) -> None:
        self._users = users
        self._nonce = base64.b64encode(nonce)
        self._challenged = False
        #: The user that the client proved to be, in UTF-8; None until then.
        self.authorization_id: bytes | None = None

    def step(self, token: bytes) -> bytes:
        """Take the client's next token and give ours. Raises SaslFailure, after which the exchange is over."""
        if self.authorization_id is not None:
            raise SaslFailure("a token came after the exchange was over")
        if not self._challenged:
            if token:
                raise SaslFailure("the first token of DIGEST-MD5 must be empty")
            self._challenged = True
            return b'realm="%s",nonce="%s",charset=utf-8,algorithm=md5-sess' % (REALM, self._nonce)
        return self._verify(token)

    def _verify(self, token: bytes) -> bytes:
        said = parse_directives(token)
        self._check(said)
        user = _text(said[b"username"])
        password = self._users.get(user)
        proof = None
        for user_bytes, password_bytes in _encodings(user, password or ""):
            secret = md5(user_bytes + b":" + REALM + b":" + password_bytes)
            if hmac.compare_digest(_hash(secret, said, b"AUTHENTICATE:"), said[b"response"]):
                proof = _hash(secret, said, b":")
        # Unknown users take the same time as wrong passwords.
        if proof is None or password is None:
            raise SaslFailure(f"user {user!r} is unknown or has another password")
        self.authorization_id = user.encode()
        return b"rspauth=" + proof

    def _check(self, said: dict[bytes, bytes]) -> None:
        """Whether the response belongs to our challenge and asks for what we offer."""
        for name in REQUIRED:
            if not said.get(name):
                raise SaslFailure(f"directive {name.decode()} is missing or empty")
        if not hmac.compare_digest(said[b"nonce"], self._nonce):
            raise SaslFailure("the nonce is not ours")
        expected = {b"realm": REALM, b"nc": NONCE_COUNT, b"digest-uri": DIGEST_URI}
        if b"qop" in said:
            expected[b"qop"] = QUALITY
        if b"charset" in said:
            expected[b"charset"] = b"utf-8"
        if b"authzid" in said:
            expected[b"authzid"] = said[b"username"]  # nobody may act for somebody else
        for name, value in expected.items():
            if said[name] != value:
                raise SaslFailure(f"directive {name.decode()} is {said[name]!r}; it must be {value!r}")


def parse_directives(token: bytes) -> dict[bytes, bytes]:
    """A list of directives by their names in lower case, quotes and escapes taken off (RFC 2831, 7.1).

    Raises SaslFailure. No directive may come twice: those that RFC 2831 lets come again go from server to client.
    """
    if len(token) >= RESPONSE_BYTES_LIMIT:
        raise SaslFailure(f"a response of {len(token)} bytes; it must be below {RESPONSE_BYTES_LIMIT}")
    directives: dict[bytes, bytes] = {}
    for match in _directives(token):
        name = match["name"].lower()
        if name in directives:
            raise SaslFailure(f"directive {name.decode()} comes twice")
        quoted: bytes | None = match["quoted"]
        directives[name] = match["token"] if quoted is None else _ESCAPE.sub(rb"\1", quoted)
    return directives


def _directives(token: bytes) -> Iterator[re.Match[bytes]]:
    position = 0
    while True:
        match = _DIRECTIVE.match(token, position)
        if match is None:
            raise SaslFailure(f"no directive at byte {position} of the response")
        yield match
        position = match.end()
        if position == len(token):
            return
        if token[position : position + 1] != b",":
            raise SaslFailure(f"no comma at byte {position} of the response")
        position += 1


def md5(data: bytes) -> bytes:
    """The hash that the mechanism is built on. It is weak: DIGEST-MD5 wants TLS around it."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hash(secret: bytes, said: dict[bytes, bytes], purpose: bytes) -> bytes:
    """The response-value of RFC 2831, 2.1.2.1. Its purpose is `AUTHENTICATE:` for the client's, `:` for ours."""
    session = b":".join((secret, said[b"nonce"], said[b"cnonce"]))
    if b"authzid" in said:
        session += b":" + said[b"authzid"]
    key = md5(session).hex().encode()
    asked = md5(purpose + said[b"digest-uri"]).hex().encode()
    text = b":".join((key, said[b"nonce"], said[b"nc"], said[b"cnonce"], QUALITY, asked))
    return md5(text).hex().encode()


def _encodings(*texts: str) -> tuple[tuple[bytes, ...], ...]:
    """The bytes that clients hash for these: all in UTF-8, or each in ISO 8859-1 if it can be, as RFC 2831 has it."""
    return tuple(text.encode() for text in texts), tuple(_latin_1_or_utf_8(text) for text in texts)


def _latin_1_or_utf_8(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _text(name: bytes) -> str:
    """A user's name. Clients send UTF-8 also where they do not say so, and otherwise ISO 8859-1."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("latin-1")
