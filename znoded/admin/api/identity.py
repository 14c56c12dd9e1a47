"""Who asks: HTTP Basic is ZooKeeper's scheme digest, and the address is its scheme ip."""

from __future__ import annotations

import base64
import binascii

from znoded.admin.api import errors
from znoded.config import Config
from znoded.jute.records import AuthRequest
from znoded.server import auth
from znoded.tree.acl import Identities


def identities_of(authorization: bytes | None, host: str, config: Config) -> Identities:
    """The identities that a request shows; `authorization` is its header. Raises auth_failed."""
    identities: Identities = ((b"ip", host.encode()),)
    if authorization is None:
        return identities
    scheme, _, encoded = authorization.strip().partition(b" ")
    if scheme.lower() != b"basic":
        raise errors.auth_failed("the scheme of the Authorization header is not Basic")
    try:
        user_password = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        raise errors.auth_failed("what stands behind Basic is not base64") from None
    gained = auth.authenticate(AuthRequest(0, b"digest", user_password), host, config.auth)
    try:
        auth.require_room(identities, gained, config.limits.identity_bytes_per_connection)
    except auth.AuthFailed as failed:
        raise errors.auth_failed(str(failed)) from None
    return identities + gained
