"""Reads a ZooKeeper's zoo.cfg into the tables that a TOML configuration would hold.

A key is taken over; or it has no effect here and is noted; or it is refused, because leaving it out would make the
server less strict than its owner wrote. Values are checked by `znoded.config`, under the names used in zoo.cfg. Keys
may carry the prefix `zookeeper.` of the system properties that they stand for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from znoded.addresses import EVERY_INTERFACE, PORT_MOST, endpoint_at, is_ip_address, is_port

#: Keys whose value is taken over as it stands.
PLAIN_KEYS = {
    "tickTime": "tick_ms",
    "minSessionTimeout": "limits.session_timeout_min_ms",
    "maxSessionTimeout": "limits.session_timeout_max_ms",
    "maxClientCnxns": "limits.connections_per_address",
    "maxCnxns": "limits.connections",
    "globalOutstandingLimit": "limits.outstanding",
    "jute.maxbuffer": "limits.frame_bytes",
    "nio.sessionlessCnxnTimeout": "limits.handshake_timeout_ms",
    "znode.container.checkIntervalMs": "tree.sweep_interval_ms",
    "extendedTypesEnabled": "tree.ttl_nodes",
    "enforceQuota": "tree.enforce_quota",
    "reconfigEnabled": "tree.reconfig",
    "DigestAuthenticationProvider.superDigest": "auth.super_digest",
}

#: Keys that are read together with others.
PART_OF_ANOTHER = {
    "clientPort", "clientPortAddress", "clientPortListenBacklog", "secureClientPort", "secureClientPortAddress",
    "dataDir", "ssl.keyStore.location", "ssl.trustStore.location", "ssl.clientAuth", "4lw.commands.whitelist",
    "admin.enableServer", "admin.serverPort", "admin.serverAddress", "dynamicConfigFile",
}  # fmt: skip

#: Patterns of keys that a server may well ignore, and why.
NO_EFFECT = {
    r"dataLogDir": "the log lies in the data directory; mount DATA/log elsewhere to part them",
    r"(quorum|observer|learner)\..*|initLimit|syncLimit|connectToLearnerMasterLimit|electionAlg|electionPortBindRetry|"
    r"cnxTimeout|leaderServes|peerType|standaloneEnabled|quorumListenOnAllIPs|sslQuorum.*|multiAddress\..*": (
        "members find and follow each other by their own rules, see [cell]"
    ),
    r"localSessions.*": "a session is known to every member",
    r"readonlymode\.enabled": "clients that ask for it are served without a quorum, always",
    r"version": "the members' own configuration has the version that counts",
    r"(autopurge|snapshot|fastleader)\..*|snapCount|(snapSize|txnLogSize)LimitInKb|preAllocSize|commitLogCount": (
        "the log and the checkpoint have their own rules, see [log]; old files are always removed"
    ),
    r"fsync\.warningthresholdms|forceSync": "every write is synced before it is acknowledged",
    r"metricsProvider\..*": "metrics are at /metrics of the admin listener",
    r"(admin|nio|netty)\..*|serverCnxnFactory|clientCnxnSocket|jute\.maxbuffer\.extrasize|tcpKeepAlive": (
        "it speaks of a part of the Java server"
    ),
    r"authProvider\..*|ssl\.authProvider|DigestAuthenticationProvider\.enabled": (
        "digest and ip are always there, x509 comes with a client_ca, sasl with [auth.sasl_users]"
    ),
    r"ssl\.((keyStore|trustStore)\.type|quorum.*|hostnameVerification|reloadCertFiles|protocol|enabledProtocols)": (
        "PEM files are reloaded when they change, TLS 1.2 and 1.3 are spoken"
    ),
}

#: What protects an ensemble's own traffic when it is true; there is nothing to protect if there is one server.
PROTECT_PEERS = (
    "sslQuorum", "quorum.auth.enableSasl", "quorum.auth.learnerRequireSasl", "quorum.auth.serverRequireSasl",
)  # fmt: skip

#: Patterns of keys that would leave the server less strict, or its clients worse off, when ignored.
REFUSED = {
    r"skipACL": "ACLs are always checked; remove it",
    r"enforce\.auth\..*|sessionRequireClientSASLAuth|requireClientAuthScheme": (
        "this version cannot require a scheme of its clients; require certificates by a client_ca, and remove it"
    ),
    r"ssl\.(keyStore|trustStore)\.password(Path)?": "keys are read from PEM files without a password; remove it",
    r"group\..*|weight\..*": "each voter counts as much as any other; remove it",
    r"portUnification|client\.portUnification": "plain and TLS clients need a port each; remove it",
    r"X509AuthenticationProvider\.superUser|superUser.*": (
        "the superuser is named by superDigest or [auth.sasl_users] only; remove it"
    ),
}


@dataclass(slots=True)
class ZooCfg:
    """What a zoo.cfg says, in the terms of `znoded.config`."""

    #: Nested tables, as from TOML.
    table: dict[str, object] = field(default_factory=dict)
    #: Dotted key of the table -> key in zoo.cfg.
    origins: dict[str, str] = field(default_factory=dict)
    #: What has no effect, a line each.
    notes: list[str] = field(default_factory=list)
    #: Key in zoo.cfg -> why it cannot be had.
    refused: dict[str, str] = field(default_factory=dict)

    def put(self, dotted: str, value: object, origin: str) -> None:
        """Set a dotted key, and remember which key of zoo.cfg it came from."""
        *tables, name = dotted.split(".")
        inner = self.table
        for table in tables:
            inner = inner.setdefault(table, {})  # type: ignore[assignment]
        inner[name] = value
        self.origins[dotted] = origin


def read(path: str) -> ZooCfg:
    """Read the zoo.cfg at `path`, and the dynamic configuration and `myid` that it points to.

    Raises OSError when the zoo.cfg cannot be read.
    """
    result = ZooCfg()
    keys = _properties(path, result)
    if "dynamicConfigFile" in keys:
        try:
            keys |= _properties(keys["dynamicConfigFile"], result)
        except OSError as error:
            result.refused["dynamicConfigFile"] = f"{error.filename} cannot be read: {error.strerror}"
    for key, dotted in PLAIN_KEYS.items():
        if key in keys:
            result.put(dotted, _typed(keys[key]), key)
    for part in (_put_members, _put_tls, _put_client, _put_data_dir, _put_words, _put_admin):
        part(keys, result)
    for key in sorted(keys.keys() - PLAIN_KEYS.keys() - PART_OF_ANOTHER):
        if not key.startswith("server.") and key not in result.refused:
            _judge(key, result)
    result.notes.sort()
    return result


def _properties(path: str, result: ZooCfg) -> dict[str, str]:
    """The keys and values of a Java properties file, without the prefix `zookeeper.`.

    A key alone has an empty value. Of one that is there twice the last value counts, which is noted.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = re.sub(r"\\\n\s*", "", file.read()).splitlines()
    keys: dict[str, str] = {}
    for line in lines:
        if match := re.fullmatch(r"\s*([^#!=:\s][^=:\s]*)\s*[=:]?\s*(.*?)\s*", line):
            key = match[1].removeprefix("zookeeper.")
            if key in keys:
                result.notes.append(f"{key}: is there more than once, the last one counts")
            keys[key] = match[2]
    return keys


def _typed(text: str) -> object:
    """A value as TOML would have it: ZooKeeper takes booleans in any case."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"0[xX][0-9A-Fa-f]{1,15}", text):
        return int(text, 16)
    return {"true": True, "false": False}.get(text.lower(), text)


def _port(keys: Mapping[str, str], result: ZooCfg, origin: str, default: str = "") -> str | None:
    """The port that the key `origin` names; None, and refused, if that is none."""
    port = keys.get(origin, default)
    if is_port(port):
        return port
    result.refused[origin] = f"{port} is not right: it must be a port, a whole number from 0 to {PORT_MOST}"
    return None


def _put_client(keys: Mapping[str, str], result: ZooCfg) -> None:
    if "clientPort" in keys:
        if port := _port(keys, result, "clientPort"):
            endpoint = endpoint_at(port, keys.get("clientPortAddress", ""))
            backlog = keys.get("clientPortListenBacklog", "-1")
            listen = [endpoint if backlog == "-1" else f"{endpoint}:backlog={backlog}"]
            result.put("client.listen", listen, "clientPort")
    elif own_client := _own_client(keys, result):
        host, _, port = own_client.rpartition(":")
        interface = host if is_ip_address(host) and host not in EVERY_INTERFACE else ""
        result.put("client.listen", [endpoint_at(port, interface)], f"server.{result.table['member']}")
    elif "client.tls.listen" in result.origins:
        result.put("client.listen", [], "clientPort")


def _own_client(keys: Mapping[str, str], result: ZooCfg) -> str:
    """What stands behind the `;` of this member's own line; empty if there is nothing."""
    return keys.get(f"server.{result.table.get('member')}", "").partition(";")[2]


def _put_tls(keys: Mapping[str, str], result: ZooCfg) -> None:
    if "secureClientPort" not in keys:
        return
    stores = {"client.tls.certificate": "ssl.keyStore.location", "client.tls.private_key": "ssl.keyStore.location"}
    client_auth = keys.get("ssl.clientAuth", "need").lower()
    if client_auth == "need":
        stores["client.tls.client_ca"] = "ssl.trustStore.location"
    elif client_auth != "none":
        result.refused["ssl.clientAuth"] = f"{client_auth} is not right: it must be need or none"
    if missing := set(stores.values()) - keys.keys():
        why = "is missing: it must be the path of a PEM file, since there is a secureClientPort"
        result.refused |= dict.fromkeys(sorted(missing), why)
        return
    if port := _port(keys, result, "secureClientPort"):
        endpoint = endpoint_at(port, keys.get("secureClientPortAddress", ""))
        result.put("client.tls.listen", [endpoint], "secureClientPort")
        for dotted, origin in stores.items():
            result.put(dotted, keys[origin], origin)


def _put_data_dir(keys: Mapping[str, str], result: ZooCfg) -> None:
    directory = keys.get("dataDir")
    if directory is None:
        result.refused["dataDir"] = "is missing: it must be the path of a directory"
        return
    result.put("data_dir", directory, "dataDir")
    legacy = os.path.join(directory, "version-2")
    if os.path.isdir(legacy):
        result.notes.append(f"{legacy}: a ZooKeeper's data is left alone, not imported; this server has its own tree")


def _put_words(keys: Mapping[str, str], result: ZooCfg) -> None:
    if "4lw.commands.whitelist" in keys:
        words = [word.strip() for word in keys["4lw.commands.whitelist"].split(",") if word.strip()]
        result.put("words.allow", words, "4lw.commands.whitelist")


def _put_admin(keys: Mapping[str, str], result: ZooCfg) -> None:
    if keys.get("admin.enableServer", "true").lower() == "false":
        result.put("admin.listen", "", "admin.enableServer")
    elif {"admin.serverPort", "admin.serverAddress"} & keys.keys() and (
        port := _port(keys, result, "admin.serverPort", "8080")
    ):
        result.put("admin.listen", endpoint_at(port, keys.get("admin.serverAddress", "127.0.0.1")), "admin.serverPort")


def _put_members(keys: Mapping[str, str], result: ZooCfg) -> None:
    """`server.N=host:peerPort:electionPort[:role][;[clientHost:]clientPort]`; the own N stands in the file `myid`."""
    servers = {key.removeprefix("server."): value for key, value in keys.items() if key.startswith("server.")}
    for number, spec in servers.items():
        peer, _, client = spec.partition(";")
        match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+):(\d+):\d+(?::(participant|observer))?", peer.split("|")[0])
        if not match:
            right = "HOST:PEER_PORT:ELECTION_PORT[:participant|:observer][;[HOST:]CLIENT_PORT]"
            result.refused[f"server.{number}"] = f"{spec} is not right: it must be {right}"
            continue
        host, peer_port, role = match.groups()
        member = {"peer": f"{host}:{peer_port}", "client": _client_of(client, host)}
        if role == "observer":
            member["role"] = "learner"
        result.put(f"cell.members.{number}", member, f"server.{number}")
        if "|" in peer:
            result.notes.append(f"server.{number}: only the first of its addresses is used")
    if len(servers) > 1:
        result.origins["cell.members"] = "server.N"
        for key in PROTECT_PEERS:
            if keys.get(key, "").lower() == "true":
                result.refused[key] = "use a TOML file, with [cell.tls] and a cell.secret_file; remove it"
    if servers:
        _put_member(os.path.join(keys.get("dataDir", "."), "myid"), list(servers), result)


def _client_of(text: str, host: str) -> str:
    """HOST:PORT of what stands behind the `;`. A host that stands for every interface is none to tell clients."""
    client_host, _, port = text.rpartition(":")
    if not port:
        return ""
    is_named = client_host and client_host not in EVERY_INTERFACE
    return f"{client_host if is_named else host}:{port}"


def _put_member(path: str, servers: list[str], result: ZooCfg) -> None:
    """The number of this member. A ZooKeeper that is its only server needs no `myid`."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            result.put("member", _typed(file.read().strip()), "myid")
    except OSError as error:
        if len(servers) == 1 and isinstance(error, FileNotFoundError):
            result.put("member", _typed(servers[0]), f"server.{servers[0]}")
        else:
            result.refused["myid"] = f"{path} cannot be read: {error.strerror}"


def _judge(key: str, result: ZooCfg) -> None:
    """Refuse or note a key that is not taken over."""
    for patterns, say in ((REFUSED, result.refused.__setitem__), (NO_EFFECT, _noted(result))):
        for pattern, why in patterns.items():
            if re.fullmatch(pattern, key):
                say(key, why)
                return
    result.notes.append(f"{key}: not known here, it has no effect")


def _noted(result: ZooCfg) -> Callable[[str, str], None]:
    return lambda key, why: result.notes.append(f"{key}: has no effect, {why}")
