"""Keys and values as JSON has them, and as the tree has them."""

from __future__ import annotations

import base64
from typing import Any, TypeAlias

from znoded.jute.ops import Perm
from znoded.jute.records import Acl
from znoded.tree.acl import Acls
from znoded.tree.znode import data_of, parsed_stat

#: What is JSON: an object as a request or answer has it.
Fields: TypeAlias = dict[str, Any]

_PERMS = {perm.name.lower(): int(perm) for perm in Perm if perm.name}


def item_of(path: bytes, node: bytes, with_value: bool = True) -> Fields:
    """A key with its value: the schema Item."""
    stat = parsed_stat(node)
    return {
        "key": text_of(path),
        "value": value_of(node) if with_value else None,
        "version": stat.version,
        "create_revision": stat.czxid,
        "mod_revision": stat.mzxid,
        "create_time_ms": stat.ctime,
        "mod_time_ms": stat.mtime,
        "session": session_id_of(stat.ephemeral_owner),
    }


def value_of(node: bytes) -> str:
    """The data of a znode, in base64; null data is empty."""
    return base64.b64encode(data_of(node)).decode()


def text_of(path: bytes) -> str:
    """A path as a JSON string. Clients of the wire can make none that is not UTF-8."""
    return path.decode(errors="replace")


def session_id_of(owner: int) -> str | None:
    """The public id of a session, None for no session."""
    return f"0x{owner & (1 << 64) - 1:x}" if owner else None


def bytes_of(value: str) -> bytes:
    """The bytes of a value in base64, which is checked already."""
    return base64.b64decode(value)


def acl_of(entries: list[Fields] | None) -> Acls | None:
    """The ACL that a request asks for; None is the open one."""
    if entries is None:
        return None
    return tuple(
        Acl(sum({_PERMS[name] for name in entry["perms"]}), entry["scheme"].encode(), entry["id"].encode())
        for entry in entries
    )
