"""The parts of the configuration that decide what a command does.

They are replicated state: the command that begins a term carries them. So a command does the same at every member of a
cell, and when the log is replayed under another configuration.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from znoded.jute.primitives import Reader

# ttl_nodes, enforce_quota, reconfig, sasl_ids, x509_ids, children_bytes, acl_entries
_ENCODED = struct.Struct(">?????qq")


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """`ttl_nodes`: TTL nodes may be created. `enforce_quota`: hard limits refuse. `reconfig`: the op is not disabled.

    `history_bytes`, `history_retention_ms`: how much of the history is kept. `sasl_ids` and `x509_ids`: ACLs may name
    identities of these schemes, as far as clients can gain them. `children_bytes`: the names of a znode's children
    together. `acl_entries`: the entries of one ACL.
    """

    ttl_nodes: bool = True
    enforce_quota: bool = True
    reconfig: bool = False
    sasl_ids: bool = False
    x509_ids: bool = False
    history_bytes: int = 256 * 1024 * 1024
    history_retention_ms: int = 3_600_000
    children_bytes: int = 32 * 1024 * 1024
    acl_entries: int = 1_000

    def encode(self) -> bytes:
        """All but what is kept of the history, which decides nothing: every member keeps what it likes."""
        flags = self.ttl_nodes, self.enforce_quota, self.reconfig, self.sasl_ids, self.x509_ids
        return _ENCODED.pack(*flags, self.children_bytes, self.acl_entries)

    def decided(self, encoded: bytes) -> TreeOptions:
        """These, but with what `encode` gave elsewhere. Raises JuteError."""
        ttl_nodes, enforce_quota, reconfig, sasl_ids, x509_ids, children_bytes, acl_entries = Reader(encoded).unpack(
            _ENCODED
        )
        return replace(
            self,
            ttl_nodes=ttl_nodes,
            enforce_quota=enforce_quota,
            reconfig=reconfig,
            sasl_ids=sasl_ids,
            x509_ids=x509_ids,
            children_bytes=children_bytes,
            acl_entries=acl_entries,
        )
