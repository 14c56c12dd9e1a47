"""Who a connection is: the `auth` request and the identities that come of it (protocol facts 6)."""

from __future__ import annotations

import hmac
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

from znoded.config import AuthConfig
from znoded.jute.records import AuthRequest
from znoded.server.sasl import DigestMd5Server
from znoded.tree.acl import SUPER, Identity, digest_id
from znoded.tree.commands import encode_identities

if TYPE_CHECKING:
    from znoded.server.connection import ClientConnection

NONCE_BYTES = 32
READ_MODES = (b"linearizable", b"serializable")


class AuthFailed(Exception):
    """The client is not who it says, or says it in a scheme that is unknown here."""


def authenticate(request: AuthRequest, host: str, config: AuthConfig) -> tuple[Identity, ...]:
    """The identities that an auth request gives. Raises AuthFailed.

    Beside ZooKeeper's schemes there is `reads`, which gives no identity: see `reads_serializable`.
    """
    if request.scheme == b"digest":
        if request.auth is None:
            raise AuthFailed("digest needs user:password")
        identity = digest_id(request.auth)
        is_super = config.super_digest is not None and hmac.compare_digest(identity, config.super_digest.encode())
        return ((b"digest", identity), SUPER) if is_super else ((b"digest", identity),)
    if request.scheme == b"ip":
        return ((b"ip", host.encode()),)
    if request.scheme == b"reads":
        if request.auth not in READ_MODES:
            raise AuthFailed("reads must be linearizable or serializable")
        return ()
    raise AuthFailed("its scheme must be digest, ip or reads")


def reads_serializable(request: AuthRequest) -> bool | None:
    """What an auth request says on how fresh the connection's reads must be; None if it is about something else."""
    return request.auth == b"serializable" if request.scheme == b"reads" else None


def require_room(held: tuple[Identity, ...], gained: tuple[Identity, ...], limit_bytes: int) -> None:
    """Every command of a connection carries its identities: raise AuthFailed if these become more than may be."""
    size_bytes = sum(len(scheme) + len(name) for scheme, name in {*held, *gained})
    if size_bytes > limit_bytes:
        raise AuthFailed(
            f"its identities would be {size_bytes} bytes, and limits.identity_bytes_per_connection allows {limit_bytes}"
        )


@lru_cache(maxsize=4096)
def with_identities(held: tuple[Identity, ...], gained: tuple[Identity, ...]) -> tuple[tuple[Identity, ...], bytes]:
    """The identities after `gained` came to `held`, and their record as commands carry it.

    Cached: most clients are alike.
    """
    identities = held + tuple(identity for identity in gained if identity not in held)
    return identities, encode_identities(identities)


def sasl_step(connection: ClientConnection, token: bytes, config: AuthConfig) -> bytes | None:
    """One step of SASL DIGEST-MD5 (protocol facts 13): the server's token, or None where SASL is not configured.

    Raises SaslFailure. After the last step the connection has the user's identity; the user `super` is the superuser.
    """
    if not config.sasl_users:
        return None
    if connection.sasl is None:
        connection.sasl = DigestMd5Server(config.sasl_users, secrets.token_bytes(NONCE_BYTES))
    answer: bytes = connection.sasl.step(token)
    user = connection.sasl.authorization_id
    if user is not None:
        connection.sasl = None
        connection.add_identities(((b"sasl", user), SUPER) if user == b"super" else ((b"sasl", user),))
    return answer
