"""Which hosts an address may name, in the configuration and in the lines of a cell, and where one listens for it."""

from __future__ import annotations

import ipaddress
import re

#: Hosts that stand for all interfaces of a machine, and tell nobody where it is.
EVERY_INTERFACE = ("0.0.0.0", "[::]")
HOST_CHARACTERS_MOST = 255
PORT_MOST = 65_535

_LABEL = r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
#: What a host in front of `:PORT` matches: a name as the domain name system has it, since no resolver is asked for
#: another one, or an IPv6 address in brackets.
HOST = rf"(?:(?=.{{1,{HOST_CHARACTERS_MOST}}}:){_LABEL}(?:\.{_LABEL}){{0,126}}\.?|\[[0-9A-Fa-f:.]{{2,45}}\])"


def endpoint_at(port: str, interface: str = "") -> str:
    """The endpoint string of a port on an interface, else on all. An IPv6 address may stand in brackets."""
    address = interface.strip("[]")
    kind = "tcp6" if ":" in address else "tcp"
    return f"{kind}:{port}" + (":interface=" + address.replace(":", r"\:") if address else "")


def is_port(text: str) -> bool:
    """Whether this is a port to listen on, of which 0 is any that is free."""
    return re.fullmatch("[0-9]{1,5}", text) is not None and int(text) <= PORT_MOST


def is_ip_address(host: str) -> bool:
    """Whether a host is no name, which might lead to no interface of this machine."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
