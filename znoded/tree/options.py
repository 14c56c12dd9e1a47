"""The parts of the configuration that decide what a command does; they must be the same at every member of a cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """`ttl_nodes`: TTL nodes may be created. `enforce_quota`: hard limits refuse. `reconfig`: the op is not disabled.

    `changes_bytes`: how much of the recent changes is kept, for watches that were away. `sasl_ids` and `x509_ids`: ACLs
    may name identities of these schemes, as far as clients can gain them. `children_bytes`: the names of a znode's
    children together. `acl_entries`: the entries of one ACL.
    """

    ttl_nodes: bool = True
    enforce_quota: bool = True
    reconfig: bool = False
    sasl_ids: bool = False
    x509_ids: bool = False
    changes_bytes: int = 16 * 1024 * 1024
    children_bytes: int = 32 * 1024 * 1024
    acl_entries: int = 1_000
