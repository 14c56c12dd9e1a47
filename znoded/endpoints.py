"""Where to listen: Twisted's endpoint strings, and what the hosts in addresses say of interfaces."""

from __future__ import annotations

import ipaddress

#: Hosts that stand for all interfaces of a machine, and tell nobody where it is.
EVERY_INTERFACE = ("0.0.0.0", "[::]")


def endpoint_at(port: str, interface: str = "") -> str:
    """The endpoint string of a port on an interface, else on all. An IPv6 address may stand in brackets."""
    address = interface.strip("[]")
    kind = "tcp6" if ":" in address else "tcp"
    return f"{kind}:{port}" + (":interface=" + address.replace(":", r"\:") if address else "")


def is_ip_address(host: str) -> bool:
    """Whether a host is no name, which might lead to no interface of this machine."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
