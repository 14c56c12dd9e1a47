"""Access control: who is who, what an ACL allows, and which ACLs may be stored (protocol facts 6)."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from znoded.jute.errors import ErrorCode
from znoded.jute.ops import Perm
from znoded.jute.primitives import JuteError, readable
from znoded.jute.records import ACL_VECTOR, Acl
from znoded.tree.options import TreeOptions
from znoded.tree.refusal import Refused

#: A scheme and an id in it, as a connection has gained them: ("ip", its address), ("digest", "user:hash").
Identity: TypeAlias = tuple[bytes, bytes]
Identities: TypeAlias = tuple[Identity, ...]
Acls: TypeAlias = tuple[Acl, ...]

#: Who has this identity may do everything.
SUPER: Identity = (b"super", b"")

#: Everyone may do everything. A znode with this ACL has no entry in `Tree.acls`.
OPEN_ACL: Acls = (Acl(Perm.ALL, b"world", b"anyone"),)
OPEN_ACL_RECORD = ACL_VECTOR.encode(OPEN_ACL)

READ, WRITE, CREATE, DELETE, ADMIN = (
    int(perm) for perm in (Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN)
)

_AUTHENTICATED_SCHEMES = frozenset((b"digest", b"sasl", b"x509"))
_OCTET = re.compile(rb"[+-]?[0-9]{1,10}")
_IPV6 = re.compile(rb"[0-9A-Fa-f:]+")  # ZooKeeper takes neither scopes nor dotted ends
_PRINCIPAL = re.compile(rb"[^/@]*(?:/[^/@]*)?@[^/@]*")  # a part may be empty
# There must be one way only to read a name: else a long wrong one takes for ever. Hence the possessive repetitions, of
# single characters only: those of groups are wrong in Python 3.11 before 3.11.5 (its issue 106052). The keywords are
# those that Java knows.
_X509_KEYWORD = (
    rb"CN|C|L|ST?|OU?|T|IP|STREET|DC|DNQ(?:UALIFIER)?|SURNAME|GIVENNAME|INITIALS|GENERATION|EMAIL(?:ADDRESS)?|UID"
    rb"|SERIALNUMBER"
)
_X509_OID = rb"(?:OID\.)?(?:[01]\.[1-3]?[0-9]|2\.[0-9]++)(?:\.[0-9]++)*"
_X509_VALUE = rb"\"[^\"]*\"|#(?:[0-9A-F]{2})+|(?!#)(?:[^,+\"\\<>;]++|\\.)*"
_X509_ATTRIBUTE = rb"\s*+(?:%s|%s)\s*+=\s*+(?:%s)" % (_X509_KEYWORD, _X509_OID, _X509_VALUE)
_X509_NAME = re.compile(rb"%s(?:[,;+]%s)*" % (_X509_ATTRIBUTE, _X509_ATTRIBUTE), re.DOTALL | re.IGNORECASE)


def digest_id(user_password: bytes) -> bytes:
    """The id of scheme digest for `user:password`; without a colon, the whole text is the user and is hashed."""
    user = user_password.partition(b":")[0]
    return user + b":" + base64.b64encode(hashlib.sha1(user_password).digest())


def allowed(acl: Acls | None, perms: int, identities: Iterable[Identity]) -> bool:
    """Whether one of `identities` has one of the rights `perms` by `acl` (None: the open one)."""
    if acl is None:
        return True
    if SUPER in identities:
        return True
    for entry_perms, scheme, acl_id in acl:
        if entry_perms & perms and (scheme == b"world" or _matches(scheme, acl_id, identities)):
            return True
    return False


def _matches(scheme: bytes | None, acl_id: bytes | None, identities: Iterable[Identity]) -> bool:
    for identity_scheme, identity_id in identities:
        if identity_scheme != scheme:
            continue
        if identity_id == acl_id:
            return True
        if scheme == b"ip" and _address_matches(identity_id, acl_id or b""):
            return True
        if scheme == b"sasl" and identity_id == b"super":
            return True
    return False


def fix_acl(acl: Acls | None, identities: Iterable[Identity], options: TreeOptions) -> Acls:
    """The ACL to store for the one in a request: without duplicates, `auth` entries replaced by who is asking.

    Raises Refused (INVALID_ACL, or QUOTA_EXCEEDED above the limit of entries) or, for a null id where one is needed,
    JuteError (protocol facts 6.3, 6.4, 1.1).
    """
    fixed: list[Acl] = []
    for entry in dict.fromkeys(acl or ()):
        if entry.scheme == b"auth":
            mine = [Acl(entry.perms, *identity) for identity in identities if identity[0] in _AUTHENTICATED_SCHEMES]
            if not mine:
                raise Refused(ErrorCode.INVALID_ACL)
            fixed += mine
        elif _is_valid(entry, options):
            fixed.append(entry)
        else:
            raise Refused(ErrorCode.INVALID_ACL)
        # Whoever comes by this znode goes through all entries.
        if len(fixed) > options.acl_entries:
            raise Refused(ErrorCode.QUOTA_EXCEEDED)
    if not fixed:
        raise Refused(ErrorCode.INVALID_ACL)
    return tuple(fixed)


def _is_valid(entry: Acl, options: TreeOptions) -> bool:
    scheme, acl_id = entry.scheme, entry.id
    check = {
        b"world": _is_anyone,
        b"digest": _is_digest_id,
        b"ip": _is_address_range,
        b"sasl": _is_principal if options.sasl_ids else None,
        b"x509": _is_x509_name if options.x509_ids else None,
    }.get(scheme or b"")
    if check is None:
        return False
    if acl_id is None:
        raise JuteError("an ACL entry without an id")
    return check(acl_id)


def _is_anyone(acl_id: bytes) -> bool:
    return acl_id == b"anyone"


def _is_digest_id(acl_id: bytes) -> bool:
    # Java's split leaves out empty parts at the end.
    return len(acl_id.rstrip(b":").split(b":")) == 2


def _is_principal(acl_id: bytes) -> bool:
    return b"@" not in acl_id or _PRINCIPAL.fullmatch(acl_id) is not None


def _is_x509_name(acl_id: bytes) -> bool:
    return not acl_id or _X509_NAME.fullmatch(acl_id) is not None


def _is_address_range(acl_id: bytes) -> bool:
    return _address_range(acl_id) is not None


def _address_range(acl_id: bytes) -> tuple[int, int, int] | None:
    """The number, the width in bits and the bits that count of `address` or `address/bits`; None if it is neither."""
    text, slash, bits_text = acl_id.partition(b"/")
    address = _address(text)
    if address is None or (slash and not _OCTET.fullmatch(bits_text)):
        return None
    number, width_bits = address
    bits = int(bits_text) if slash else width_bits
    return (number, width_bits, bits) if 0 <= bits <= width_bits else None


def _address(text: bytes) -> tuple[int, int] | None:
    """An address as a number and its width in bits (32 or 128), or None."""
    octets = text.split(b".")
    if len(octets) == 4 and all(_OCTET.fullmatch(octet) and 0 <= int(octet) <= 255 for octet in octets):
        return int.from_bytes(bytes([int(octet) for octet in octets]), "big"), 32
    if not _IPV6.fullmatch(text):
        return None
    try:
        return int(ipaddress.IPv6Address(text.decode("ascii"))), 128
    except ValueError:
        return None


# An ACL can be long, and is gone through for each request: what is in it is read once.
_known_address = lru_cache(4096)(_address)
_known_address_range = lru_cache(4096)(_address_range)


def _address_matches(address_text: bytes, acl_id: bytes) -> bool:
    address, wanted = _known_address(address_text), _known_address_range(acl_id)
    if address is None or wanted is None or address[1] != wanted[1]:
        return False
    number, width_bits, bits = wanted
    return (address[0] ^ number) >> (width_bits - bits) == 0


def redacted(acl: Acls) -> Acls:
    """The ACL as getACL shows it to who lacks ADMIN: without the hashes (protocol facts 6.5)."""
    return tuple(
        Acl(perms, scheme, shown_user(acl_id or b"") + b":x") if scheme == b"digest" else Acl(perms, scheme, acl_id)
        for perms, scheme, acl_id in acl
    )


def shown_user(digest_text: bytes) -> bytes:
    """The user of an id of scheme digest, without the hash."""
    return readable(digest_text.partition(b":")[0])


def size_bytes(acl: Acls) -> int:
    """About what it takes to keep an ACL."""
    return sum(len(entry.id or b"") + 32 for entry in acl)
