"""Which names a listener is known by: the guard against DNS rebinding.

A page in a browser cannot read what another host answers. But whoever made the page can let the page's own name point
to the address of a listener that only this machine reaches, or only its network: then the browser takes the listener
for the page's own server. It still says the name in each request, and the name is not one of the listener's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from ipaddress import ip_address

LOCALHOST = "localhost"


def is_known(hosts: Sequence[bytes], names: Collection[str], local_address: object) -> bool:
    """Whether requests with these Host headers are for a listener with these names.

    Addresses and localhost always are. Without names, only what comes in through a loopback address is looked at,
    `local_address` being where a connection came in: nobody knows by which names others reach it.
    """
    if not names and not _is_loopback(str(getattr(local_address, "host", ""))):
        return True
    return all(_is_known(_name(host), names) for host in hosts)


def _is_known(name: str, names: Collection[str]) -> bool:
    is_local = name == LOCALHOST or name.endswith("." + LOCALHOST)
    return name == "" or is_local or name in names or _is_address(name)


def _name(host: bytes) -> str:
    """The host without its port."""
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return _is_address(address) and ip_address(address.removeprefix("::ffff:")).is_loopback
