"""One typed configuration: read from TOML or from a ZooKeeper's zoo.cfg, checked as a whole, complete with defaults.

`load_toml`, `load_zoo_cfg` and `parse` give a `Config` or raise one `ConfigError` that lists everything wrong at once,
each line with the key, the value and what would be right. Relative paths are taken from the working directory.
docs/configuration.md and docs/limits.md describe every key for operators.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from znoded import config_values as values
from znoded import zoo_cfg
from znoded.addresses import EVERY_INTERFACE, endpoint_at, is_ip_address
from znoded.config_values import Problem, Reader, shown, wrong

HARMLESS_WORDS = ("ruok", "srvr", "stat", "mntr", "conf", "envi", "isro", "cons", "wchs", "dirs")

MIB = 1 << 20
HOUR_MS = 3_600_000
INT32_MAX = (1 << 31) - 1
#: The least time without a leader before an election; fewer heartbeats, and a late one would cause it.
ELECTION_HEARTBEATS = 4
#: A command has to fit into a frame of 16 MiB between members, with a batch of others.
CELL_COMMAND_BYTES_MOST = 14 * MIB

Section = TypeVar("Section")


class ConfigError(ValueError):
    """Everything wrong with the configuration called `source`."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = [f"{source} is not a usable configuration:", *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join(lines))


def _key(read: Reader, default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A dataclass field that is a key of the configuration; without a default the key must be given."""
    return field(default=default, metadata={"read": read}, **options)


def _section(section: type[Any], *, optional: bool = False) -> Any:
    """A dataclass field that is a table of the configuration; an optional one that is absent is None."""
    read = _section_reader(section)
    if optional:
        return field(default=None, metadata={"read": read})
    return field(default_factory=section, metadata={"read": read})


def _section_reader(section: type[Any]) -> Reader:
    def read(value: object, key: str, problems: list[Problem]) -> Any:
        return _read_section(section, value, key, problems)

    return read


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS listeners for clients, beside the plain ones or alone. Files are PEM and are read again when they change."""

    listen: tuple[str, ...] = _key(values.list_of(values.tls_endpoint, '["tcp:2281"]'))
    certificate: str = _key(values.pem_file("CERTIFICATE"))
    private_key: str = _key(values.pem_file("PRIVATE KEY"))
    #: When set, a client must show a certificate signed by it; its subject is its x509 identity.
    client_ca: str | None = _key(values.pem_file("CERTIFICATE"), None)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where clients connect, and how their reads are answered."""

    listen: tuple[str, ...] = _key(values.list_of(values.endpoint, '["tcp:2181"]'), ("tcp:2181",))
    reads: str = _key(values.choice("linearizable", "serializable"), "linearizable")
    tls: TlsConfig | None = _section(TlsConfig, optional=True)

    @property
    def tls_listen(self) -> tuple[str, ...]:
        """The listeners for TLS, if there are any."""
        return self.tls.listen if self.tls else ()


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may be whom. `super_digest` is ZooKeeper's superDigest; `sasl_users` are for SASL DIGEST-MD5."""

    super_digest: str | None = _key(values.super_digest, None, repr=False)
    sasl_users: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"read": values.table_of(values.password, 'a table of user = "password"')},
        repr=False,
    )


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The HTTP listener for health, metrics and commands; None: there is none."""

    listen: str | None = _key(values.optional_endpoint, "tcp:8080:interface=127.0.0.1")


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """The HTTP listener for the native API; None: there is none. `hosts` are the names by which clients call it."""

    listen: str | None = _key(values.optional_endpoint, None)
    hosts: tuple[str, ...] = _key(values.list_of(values.host_name, '["znoded.example.org"]'), ())


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits. docs/limits.md has what happens at each."""

    frame_bytes: int = _key(values.integer(1024, 64 * MIB, "bytes"), 1_048_575)
    connections_per_address: int = _key(values.integer(1, INT32_MAX, "connections", zero="no limit"), 60)
    connections: int = _key(values.integer(1, INT32_MAX, "connections", zero="no limit"), 12_000)
    sessions: int = _key(values.integer(1, INT32_MAX, "sessions"), 100_000)
    session_timeout_min_ms: int = _key(values.integer(1, INT32_MAX, "ms", zero="two ticks"), 0)
    session_timeout_max_ms: int = _key(values.integer(1, INT32_MAX, "ms", zero="twenty ticks"), 0)
    handshake_timeout_ms: int = _key(values.integer(100, HOUR_MS, "ms"), 10_000)
    watches_per_session: int = _key(values.integer(1, INT32_MAX, "watches"), 500_000)
    watch_bytes_per_session: int = _key(values.integer(1024, INT32_MAX, "bytes"), 64 * MIB)
    identity_bytes_per_connection: int = _key(values.integer(1024, INT32_MAX, "bytes"), 8192)
    multi_read_bytes: int = _key(values.integer(65_536, INT32_MAX, "bytes"), 32 * MIB)
    outstanding_per_connection: int = _key(values.integer(1, INT32_MAX, "requests"), 1_000)
    outstanding: int = _key(values.integer(1, INT32_MAX, "requests"), 20_000)
    outstanding_bytes_per_connection: int = _key(values.integer(65_536, INT32_MAX, "bytes"), 4 * MIB)
    outstanding_bytes: int = _key(values.integer(65_536, INT32_MAX, "bytes"), 64 * MIB)
    queued_bytes_per_connection: int = _key(values.integer(65_536, INT32_MAX, "bytes"), 4 * MIB)
    children_bytes: int = _key(values.integer(1024, INT32_MAX, "bytes"), 32 * MIB)
    acl_entries: int = _key(values.integer(1, INT32_MAX, "entries"), 1_000)
    api_connections: int = _key(values.integer(1, INT32_MAX, "connections"), 12_000)
    api_connections_per_address: int = _key(values.integer(1, INT32_MAX, "connections", zero="no limit"), 250)
    api_unread_bytes: int = _key(values.integer(MIB, 1024 * 1024 * MIB, "bytes"), 256 * MIB)


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """What the tree does by itself and what it refuses."""

    sweep_interval_ms: int = _key(values.integer(10, 24 * HOUR_MS, "ms"), 60_000)
    ttl_nodes: bool = _key(values.boolean, True)
    enforce_quota: bool = _key(values.boolean, True)
    reconfig: bool = _key(values.boolean, False)


@dataclass(frozen=True, slots=True)
class WordsConfig:
    """The four-letter words that are answered; `*` stands for all."""

    allow: tuple[str, ...] = _key(values.list_of(values.word, '["ruok", "mntr"]'), HARMLESS_WORDS)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The log on disk, and the checkpoint behind it: due after the interval or the bytes, whichever is first."""

    segment_bytes: int = _key(values.integer(65_536, 1024 * MIB, "bytes"), 16 * MIB)
    checkpoint_interval_ms: int = _key(values.integer(10, 24 * HOUR_MS, "ms"), 5_000)
    checkpoint_bytes: int = _key(values.integer(65_536, 4096 * MIB, "bytes"), 16 * MIB)


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """How much of the history is kept: for so long, unless it takes more than so many bytes."""

    retention_ms: int = _key(values.integer(1_000, 7 * 24 * HOUR_MS, "ms"), HOUR_MS)
    bytes: int = _key(values.integer(MIB, 4096 * MIB, "bytes"), 256 * MIB)


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """A member of the cell: where its peers and its clients reach it, and whether it votes."""

    peer: str = _key(values.address)
    #: Empty: nobody is told where its clients reach it.
    client: str = _key(values.optional_address, "")
    role: str = _key(values.choice("voter", "learner"), "voter")

    def reached_at(self, address: str) -> str:
        """One of its addresses as others see it: every interface of it is one of the host that its peers know."""
        host, _, port = address.rpartition(":")
        return f"{self.peer.rpartition(':')[0] if host in EVERY_INTERFACE else host}:{port}".lower()


def _read_members(value: object, key: str, problems: list[Problem]) -> dict[int, MemberConfig | None] | None:
    expected = f"tables [{key}.1], [{key}.2] and so on"
    members = values.table_of(_section_reader(MemberConfig), expected)(value, key, problems) or {}
    strange = [name for name in members if not (re.fullmatch("[1-9][0-9]{0,2}", name) and int(name) <= 254)]
    problems.extend(wrong(f"{key}.{name}", shown(name), "a number from 1 to 254") for name in strange)
    return {int(name): member for name, member in sorted(members.items()) if name not in strange}


@dataclass(frozen=True, slots=True)
class CellTlsConfig:
    """TLS between members. Each has to show a certificate that `ca` signed. Files are PEM."""

    certificate: str = _key(values.pem_file("CERTIFICATE"))
    private_key: str = _key(values.pem_file("PRIVATE KEY"))
    ca: str = _key(values.pem_file("CERTIFICATE"))


@dataclass(frozen=True, slots=True)
class CellConfig:
    """The members of the cell, by number; none: this member stands alone. What they tell each other, and how."""

    members: Mapping[int, MemberConfig] = field(default_factory=dict, metadata={"read": _read_members})
    #: Where this member listens for the others; None: at its own `peer`.
    listen: str | None = _key(values.optional_endpoint, None)
    secret_file: str | None = _key(values.secret_file, None)
    tls: CellTlsConfig | None = _section(CellTlsConfig, optional=True)
    heartbeat_ms: int = _key(values.integer(1, 60_000, "ms"), 100)
    election_ms: int = _key(values.integer(4, 600_000, "ms"), 1_000)
    snapshot_bytes_per_second: int = _key(values.integer(65_536, INT32_MAX, "bytes", zero="no cap"), 0)
    log_tail_bytes: int = _key(values.integer(65_536, 4096 * MIB, "bytes"), 32 * MIB)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a member is told from outside."""

    member: int = _key(values.integer(1, 254, ""), 1)
    data_dir: str = field(default_factory=lambda: os.path.abspath("znoded-data"), metadata={"read": values.directory})
    tick_ms: int = _key(values.integer(1, HOUR_MS, "ms"), 2_000)
    client: ClientConfig = _section(ClientConfig)
    auth: AuthConfig = _section(AuthConfig)
    admin: AdminConfig = _section(AdminConfig)
    api: ApiConfig = _section(ApiConfig)
    limits: Limits = _section(Limits)
    tree: TreeConfig = _section(TreeConfig)
    words: WordsConfig = _section(WordsConfig)
    log: LogConfig = _section(LogConfig)
    history: HistoryConfig = _section(HistoryConfig)
    cell: CellConfig = _section(CellConfig)

    @property
    def session_timeout_min_ms(self) -> int:
        """The least session timeout a client is given: two ticks unless the limits say otherwise."""
        return self.limits.session_timeout_min_ms or 2 * self.tick_ms

    @property
    def session_timeout_max_ms(self) -> int:
        """The greatest session timeout a client is given: twenty ticks unless the limits say otherwise."""
        return self.limits.session_timeout_max_ms or 20 * self.tick_ms

    @property
    def peer_listen(self) -> str:
        """The endpoint at which this member of a cell listens for the others: on its own address if `peer` has one."""
        if self.cell.listen:
            return self.cell.listen
        host, _, port = self.cell.members[self.member].peer.rpartition(":")
        return endpoint_at(port, host if is_ip_address(host) else "")


def load_toml(path: str, overrides: Mapping[str, object] | None = None) -> Config:
    """Read a TOML file; `overrides` are dotted keys with values that win over it (the command line's).

    Raises ConfigError.
    """
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(path, [Problem("the file", f"cannot be read: {error.strerror}")]) from error
    except (ValueError, RecursionError) as error:  # those of TOML and UTF-8 are ValueErrors
        advice = "; a zoo.cfg is read with --zoo-cfg" if path.endswith(".cfg") else ""
        raise ConfigError(path, [Problem("the file", f"is not TOML: {error}{advice}")]) from error
    return parse(table, overrides, source=path)


def load_zoo_cfg(path: str, overrides: Mapping[str, object] | None = None) -> tuple[Config, list[str]]:
    """Read a ZooKeeper's zoo.cfg; the second value says what of it has no effect here, a line each.

    Raises ConfigError.
    """
    try:
        imported = zoo_cfg.read(path)
    except OSError as error:
        raise ConfigError(path, [Problem("the file", f"cannot be read: {error.strerror}")]) from error
    except ValueError as error:
        raise ConfigError(path, [Problem("the file", f"names an impossible path: {error}")]) from error
    refused = [Problem(key, message) for key, message in imported.refused.items()]
    return parse(imported.table, overrides, source=path, origins=imported.origins, problems=refused), imported.notes


def parse(
    table: Mapping[str, object],
    overrides: Mapping[str, object] | None = None,
    *,
    source: str = "the command line",
    origins: Mapping[str, str] | None = None,
    problems: list[Problem] | None = None,
) -> Config:
    """Check a whole configuration given as nested tables.

    `origins` names keys as their author wrote them; `problems` are those found so far. Raises ConfigError.
    """
    problems = problems or []
    merged = _merged(table, overrides or {})
    config = _read_section(Config, merged, "", problems)
    if config:
        problems.extend(_contradictions(config))
    if config is None or problems:
        written = (dataclasses.replace(problem, key=_as_written(problem.key, origins or {})) for problem in problems)
        raise ConfigError(source, list(dict.fromkeys(written)))  # two of our keys may be one of zoo.cfg's
    return config


def _as_written(dotted: str, origins: Mapping[str, str]) -> str:
    """What the author called this key, or the one that it is part of."""
    part = dotted
    while part:
        if part in origins:
            return origins[part]
        part = part[: max(part.rfind("."), part.rfind("["), 0)]
    return dotted


def _merged(table: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """A copy of the nested tables in which each dotted key of `overrides` has its new value."""
    merged = dict(table)
    for dotted, value in overrides.items():
        name, _, rest = dotted.partition(".")
        inner = merged.get(name, {})
        if not rest:
            merged[name] = value
        elif isinstance(inner, dict):
            merged[name] = _merged(inner, {rest: value})
    return merged


def _read_section(section: type[Section], table: object, at: str, problems: list[Problem]) -> Section | None:
    """Read a table into the dataclass `section`; None when anything in it is wrong, said in `problems`."""
    if not isinstance(table, dict):
        problems.append(wrong(at, shown(table), f"a table [{at}]"))
        return None
    known_before = len(problems)
    prefix = f"{at}." if at else ""
    keys = {key.name: key for key in dataclasses.fields(section)}  # type: ignore[arg-type]
    problems.extend(Problem(f"{prefix}{name}", _unknown(name, keys)) for name in table if name not in keys)
    values = {}
    for name, key in keys.items():
        if name in table:
            values[name] = key.metadata["read"](table[name], f"{prefix}{name}", problems)
        elif key.default is dataclasses.MISSING and key.default_factory is dataclasses.MISSING:
            problems.append(Problem(f"{prefix}{name}", f"is missing, [{at}] needs it"))
    return section(**values) if len(problems) == known_before else None


def _unknown(name: str, keys: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, keys, n=1)
    return "there is no such key" + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(keys)}")


def _contradictions(config: Config) -> Iterator[Problem]:
    """What is wrong between values that are right each by itself."""
    if not config.client.listen and not config.client.tls_listen:
        yield Problem("client.listen", 'no listener: it must name one, such as ["tcp:2181"], or [client.tls] must')
    if config.session_timeout_min_ms > config.session_timeout_max_ms:
        greatest = f"at most {config.session_timeout_max_ms} ms, the greatest session timeout"
        yield wrong("limits.session_timeout_min_ms", f"{config.session_timeout_min_ms} ms", greatest)
    yield from _contradictions_of_listeners(config)
    yield from _contradictions_in_the_cell(config)


def _contradictions_of_listeners(config: Config) -> Iterator[Problem]:
    """Of two listeners that want the same port of the same interface, the second could not start."""
    taken: dict[str, values.Place] = {}
    for key, endpoint in _listeners(config):
        place = values.place_of(endpoint)
        if place is None:
            continue
        other = next((other for other, where in taken.items() if place.collides(where)), None)
        if other:
            yield wrong(key, shown(endpoint), f"another port or interface than {other}")
        taken[key] = place


def _listeners(config: Config) -> Iterator[tuple[str, str]]:
    """Key and endpoint of all that this member listens at."""
    for key, endpoints in (("client.listen", config.client.listen), ("client.tls.listen", config.client.tls_listen)):
        yield from ((f"{key}[{index}]", endpoint) for index, endpoint in enumerate(endpoints))
    if config.member in config.cell.members:
        yield "cell.listen" if config.cell.listen else f"cell.members.{config.member}.peer", config.peer_listen
    for key, optional in (("admin.listen", config.admin.listen), ("api.listen", config.api.listen)):
        if optional:
            yield key, optional


def _contradictions_in_the_cell(config: Config) -> Iterator[Problem]:
    cell, members = config.cell, config.cell.members
    if cell.election_ms < ELECTION_HEARTBEATS * cell.heartbeat_ms:
        least_ms = ELECTION_HEARTBEATS * cell.heartbeat_ms
        yield wrong(
            "cell.election_ms", f"{cell.election_ms} ms", f"at least {least_ms} ms, {ELECTION_HEARTBEATS} heartbeats"
        )
    limits = config.limits
    if members and limits.frame_bytes + limits.identity_bytes_per_connection > CELL_COMMAND_BYTES_MOST:
        most = f"at most {CELL_COMMAND_BYTES_MOST} bytes in a cell, limits.identity_bytes_per_connection included"
        yield wrong("limits.frame_bytes", f"{limits.frame_bytes} bytes", most)
    if members and config.member not in members:
        yield Problem("member", f"{config.member} is not in cell.members, which lists {', '.join(map(str, members))}")
    if members and all(member.role != "voter" for member in members.values()):
        first = min(members)
        yield wrong(f"cell.members.{first}.role", '"learner"', '"voter" for one member at least')
    taken: dict[str, str] = {}
    for number, member in members.items():
        for name in ("peer", "client"):
            key, address = f"cell.members.{number}.{name}", getattr(member, name)
            if name == "peer" and len(members) > 1 and address.rpartition(":")[0] in EVERY_INTERFACE:
                yield wrong(key, shown(address), "an address at which the other members reach this one")
            if address and taken.setdefault(member.reached_at(address), key) != key:
                yield wrong(key, shown(address), f"another address than {taken[member.reached_at(address)]}")
