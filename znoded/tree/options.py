"""The parts of the configuration that decide what a command does; they must be the same at every member of a cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """`ttl_nodes`: TTL nodes may be created. `enforce_quota`: hard limits refuse. `reconfig`: the op is not disabled.

    `sasl_ids` and `x509_ids`: ACLs may name identities of these schemes, as far as clients can gain them.
    """

    ttl_nodes: bool = True
    enforce_quota: bool = True
    reconfig: bool = True
    sasl_ids: bool = False
    x509_ids: bool = False
