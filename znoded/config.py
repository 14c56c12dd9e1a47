"""One typed configuration: read from TOML or from a ZooKeeper's zoo.cfg, checked as a whole, complete with defaults.

`load_toml`, `load_zoo_cfg` and `parse` give a `Config` or raise one `ConfigError` that lists everything wrong at once,
each line with the key, the value and what would be right. Relative paths are taken from the working directory.
docs/configuration.md and docs/limits.md describe every key for operators.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet.endpoints import serverFromString

from znoded import zoo_cfg

FOUR_LETTER_WORDS = (
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr",
    "ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
)
HARMLESS_WORDS = ("ruok", "srvr", "stat", "mntr", "conf", "envi", "isro", "cons", "wchs", "dirs")
EVERY_WORD = "*"
ENDPOINT = "a Twisted endpoint string, such as tcp:2181:interface=127.0.0.1"

MIB = 1 << 20
HOUR_MS = 3_600_000
INT32_MAX = (1 << 31) - 1

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration: where it stands, what stands there, and what would be right."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


class ConfigError(ValueError):
    """Everything wrong with the configuration called `source`."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = [f"{source} is not a usable configuration:", *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join(lines))


# --- What a value has to be -------------------------------------------------------------------------------------------

Reader = Callable[[object, str, list[Problem]], Any]
"""Takes what TOML holds, its dotted key, and the problems to add to; gives the value, or None after a problem."""


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:76] + " ..."


def _value(convert: Callable[[Any], Any], expected: str, *, secret: bool = False) -> Reader:
    """A reader of one value: `convert` gives it or raises ValueError, whose text, if any, says more than `expected`."""

    def read(value: object, key: str, problems: list[Problem]) -> Any:
        try:
            return convert(value)
        except ValueError as error:
            shown = "the given value" if secret else _shown(value)
            problems.append(Problem(key, f"{shown} is not right: it must be {str(error) or expected}"))
            return None

    return read


def _integer(least: int, most: int, unit: str, *, zero: str | None = None) -> Reader:
    """A whole number of `unit`; `zero`, when given, says what an additional 0 means."""

    def convert(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and (least <= value <= most or (zero and value == 0)):
            return value
        raise ValueError

    return _value(convert, f"a whole number from {least} to {most}, in {unit}" + (f", or 0: {zero}" if zero else ""))


def _list_of(read_item: Reader, example: str) -> Reader:
    """A list, read into a tuple; each wrong item is a problem of its own."""

    def read(value: object, key: str, problems: list[Problem]) -> Any:
        if isinstance(value, list):
            return tuple(read_item(item, f"{key}[{index}]", problems) for index, item in enumerate(value))
        problems.append(Problem(key, f"{_shown(value)} is not right: it must be a list, such as {example}"))
        return None

    return read


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _choice(*choices: str) -> Reader:
    def convert(value: object) -> str:
        if value in choices:
            return str(value)
        raise ValueError

    return _value(convert, " or ".join(f'"{choice}"' for choice in choices))


def _endpoint(value: object, *, kinds: tuple[str, ...] = ()) -> str:
    """A server endpoint string that Twisted takes, of one of `kinds` if any are given."""
    text = _text(value)
    kind, _, rest = text.partition(":")
    if kinds and kind not in kinds:
        raise ValueError
    try:
        if kind in ("tcp", "tcp6", "ssl") and not 0 <= int(rest.split(":")[0]) <= 65535:
            raise ValueError("a port from 0 to 65535")
        serverFromString(None, text)  # the reactor is needed to listen only
    except Exception as error:
        raise ValueError(f"{ENDPOINT} ({error})") from error
    return text


def _tls_endpoint(value: object) -> str:
    return _endpoint(value, kinds=("tcp", "tcp6", "unix"))


def _optional_endpoint(value: object) -> str | None:
    return None if value == "" else _endpoint(value)


def _path(value: object) -> str:
    return os.path.abspath(_text(value))


def _pem_file(label: str) -> Reader:
    """The path of a readable PEM file that holds a `label` block."""

    def convert(value: object) -> str:
        path = _path(value)
        try:
            with open(path, "rb") as file:
                found = re.search(rb"-----BEGIN [A-Z ]*" + label.encode() + rb"-----", file.read())
        except OSError as error:
            raise ValueError(f"a readable PEM file ({path}: {error.strerror})") from error
        if not found:
            raise ValueError(f"a PEM file with a {label} block")
        return path

    return _value(convert, "the path of a PEM file")


def _super_digest(value: object) -> str:
    text = _text(value)
    user, _, digest = text.partition(":")
    try:
        sha1_bytes = base64.b64decode(digest, validate=True)
    except binascii.Error:
        raise ValueError from None
    if not user or len(sha1_bytes) != 20:
        raise ValueError
    return text


def _word(value: object) -> str:
    if value == EVERY_WORD or value in FOUR_LETTER_WORDS:
        return str(value)
    raise ValueError


def _address(value: object) -> str:
    """HOST:PORT, an IPv6 host in brackets."""
    match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):(\d{1,5})", _text(value))
    if match and 1 <= int(match[1]) <= 65535:
        return match[0]
    raise ValueError


def _sasl_users(value: object, key: str, problems: list[Problem]) -> dict[str, str] | None:
    if not isinstance(value, dict):
        problems.append(Problem(key, 'it must be a table of user = "password"'))
        return None
    read_password = _value(_text, "a password in quotes", secret=True)
    return {user: read_password(password, f"{key}.{user}", problems) for user, password in value.items()}


def _members(value: object, key: str, problems: list[Problem]) -> tuple[CellMember, ...] | None:
    if not isinstance(value, dict):
        problems.append(Problem(key, f"{_shown(value)} is not right: it must be tables [{key}.1], [{key}.2] and so on"))
        return None
    members = []
    for name, table in value.items():
        if not (name.isascii() and name.isdigit() and 1 <= int(name) <= 254):
            problems.append(Problem(f"{key}.{name}", "the name of a member must be a number from 1 to 254"))
            continue
        numbered = {"id": int(name), **table} if isinstance(table, dict) else table
        member = _read_section(CellMember, numbered, f"{key}.{name}", problems)
        if member:
            members.append(member)
    return tuple(sorted(members, key=lambda member: member.id))


def _key(read: Reader, default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A dataclass field that is a key of the configuration; without a default the key must be given."""
    return field(default=default, metadata={"read": read}, **options)


def _section(section: type[Any], *, optional: bool = False) -> Any:
    """A dataclass field that is a table of the configuration; an optional one that is absent is None."""

    def read(value: object, key: str, problems: list[Problem]) -> Any:
        return _read_section(section, value, key, problems)

    if optional:
        return field(default=None, metadata={"read": read})
    return field(default_factory=section, metadata={"read": read})


# --- The configuration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS listeners for clients, beside the plain ones or alone. Files are PEM and are read again when they change."""

    listen: tuple[str, ...] = _key(
        _list_of(_value(_tls_endpoint, "a tcp, tcp6 or unix endpoint string, such as tcp:2281"), '["tcp:2281"]')
    )
    certificate: str = _key(_pem_file("CERTIFICATE"))
    private_key: str = _key(_pem_file("PRIVATE KEY"))
    client_ca: str | None = _key(_pem_file("CERTIFICATE"), None)
    """When set, a client must show a certificate signed by it; its subject is its x509 identity."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where clients connect, and how their reads are answered."""

    listen: tuple[str, ...] = _key(_list_of(_value(_endpoint, ENDPOINT), '["tcp:2181"]'), ("tcp:2181",))
    reads: str = _key(_choice("linearizable", "serializable"), "linearizable")
    tls: TlsConfig | None = _section(TlsConfig, optional=True)


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may be whom. `super_digest` is ZooKeeper's superDigest; `sasl_users` are for SASL DIGEST-MD5."""

    super_digest: str | None = _key(
        _value(_super_digest, 'user:base64(SHA-1("user:password")), as ZooKeeper\'s superDigest is', secret=True),
        None,
        repr=False,
    )
    sasl_users: Mapping[str, str] = field(default_factory=dict, metadata={"read": _sasl_users}, repr=False)


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The HTTP listener for health, metrics and commands; None: there is none."""

    listen: str | None = _key(_value(_optional_endpoint, f'{ENDPOINT}, or "" for none'), "tcp:8080:interface=127.0.0.1")


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits. docs/limits.md has what happens at each."""

    frame_bytes: int = _key(_integer(1024, 64 * MIB, "bytes"), 1_048_575)
    connections_per_address: int = _key(_integer(1, INT32_MAX, "connections", zero="no limit"), 60)
    connections: int = _key(_integer(1, INT32_MAX, "connections", zero="no limit"), 12_000)
    sessions: int = _key(_integer(1, INT32_MAX, "sessions"), 100_000)
    session_timeout_min_ms: int = _key(_integer(1, INT32_MAX, "ms", zero="two ticks"), 0)
    session_timeout_max_ms: int = _key(_integer(1, INT32_MAX, "ms", zero="twenty ticks"), 0)
    handshake_timeout_ms: int = _key(_integer(100, HOUR_MS, "ms"), 10_000)
    watches_per_session: int = _key(_integer(1, INT32_MAX, "watches"), 500_000)
    outstanding_per_connection: int = _key(_integer(1, INT32_MAX, "requests"), 1_000)
    outstanding: int = _key(_integer(1, INT32_MAX, "requests"), 20_000)
    queued_bytes_per_connection: int = _key(_integer(65_536, INT32_MAX, "bytes"), 4 * MIB)


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """What the tree does by itself and what it refuses."""

    sweep_interval_ms: int = _key(_integer(10, 24 * HOUR_MS, "ms"), 60_000)
    ttl_nodes: bool = _key(_value(_boolean, "true or false"), True)
    enforce_quota: bool = _key(_value(_boolean, "true or false"), True)
    reconfig: bool = _key(_value(_boolean, "true or false"), False)


@dataclass(frozen=True, slots=True)
class WordsConfig:
    """The four-letter words that are answered; `*` stands for all."""

    allow: tuple[str, ...] = _key(
        _list_of(_value(_word, f'"*" for all, or one of {", ".join(FOUR_LETTER_WORDS)}'), '["ruok", "mntr"]'),
        HARMLESS_WORDS,
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The log on disk, and the checkpoint behind it: due after the interval or the bytes, whichever is first."""

    segment_bytes: int = _key(_integer(65_536, 1024 * MIB, "bytes"), 64 * MIB)
    checkpoint_interval_ms: int = _key(_integer(10, 24 * HOUR_MS, "ms"), 5_000)
    checkpoint_bytes: int = _key(_integer(65_536, 4096 * MIB, "bytes"), 8 * MIB)


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """How much of the recent changes is kept, for watches that were away."""

    bytes: int = _key(_integer(65_536, 4096 * MIB, "bytes"), 16 * MIB)


@dataclass(frozen=True, slots=True)
class CellMember:
    """A member of the cell: where its peers and its clients reach it, and whether it votes."""

    id: int = _key(_integer(1, 254, "member numbers"))
    peer: str = _key(_value(_address, "HOST:PORT"))
    client: str = _key(_value(_address, "HOST:PORT"))
    role: str = _key(_choice("voter", "learner"), "voter")


@dataclass(frozen=True, slots=True)
class CellConfig:
    """The members of the cell, by number; none: this member stands alone."""

    members: tuple[CellMember, ...] = field(default=(), metadata={"read": _members})


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a member is told from outside."""

    member: int = _key(_integer(1, 254, "member numbers"), 1)
    data_dir: str = field(
        default_factory=lambda: os.path.abspath("znoded-data"),
        metadata={"read": _value(_path, "the path of a directory")},
    )
    tick_ms: int = _key(_integer(1, HOUR_MS, "ms"), 2_000)
    client: ClientConfig = _section(ClientConfig)
    auth: AuthConfig = _section(AuthConfig)
    admin: AdminConfig = _section(AdminConfig)
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


# --- Reading ----------------------------------------------------------------------------------------------------------


def load_toml(path: str, overrides: Mapping[str, object] | None = None) -> Config:
    """Read a TOML file; `overrides` are dotted keys with values that win over it (the command line's).

    Raises ConfigError.
    """
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(path, [Problem("the file", f"cannot be read: {error.strerror}")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(path, [Problem("the file", f"is not TOML: {error}")]) from error
    return parse(table, overrides, source=path)


def load_zoo_cfg(path: str, overrides: Mapping[str, object] | None = None) -> tuple[Config, list[str]]:
    """Read a ZooKeeper's zoo.cfg; the second value says what of it has no effect here, a line each.

    Raises ConfigError.
    """
    try:
        imported = zoo_cfg.read(path)
    except OSError as error:
        raise ConfigError(path, [Problem("the file", f"cannot be read: {error.filename}: {error.strerror}")]) from error
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
        raise ConfigError(source, [dataclasses.replace(p, key=_as_written(p.key, origins or {})) for p in problems])
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
        problems.append(Problem(at, f"{_shown(table)} is not right: it must be a table [{at}]"))
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
    if not config.client.listen and not (config.client.tls and config.client.tls.listen):
        yield Problem("client.listen", 'no listener: it must name one, such as ["tcp:2181"], or [client.tls] must')
    if config.session_timeout_min_ms > config.session_timeout_max_ms:
        yield Problem(
            "limits.session_timeout_min_ms",
            f"{config.session_timeout_min_ms} ms is not right: it must be at most {config.session_timeout_max_ms} ms, "
            "the greatest session timeout",
        )
    members = config.cell.members
    if len(members) > 1:
        numbers = ", ".join(str(member.id) for member in members)
        yield Problem(
            "cell.members",
            f"lists members {numbers}, but this version runs one member; the replicated cell comes next. "
            "Leave [cell.members] out to start a member that stands alone",
        )
    elif members and members[0].id != config.member:
        yield Problem("member", f"{config.member} is not in cell.members, which lists {members[0].id}")
    elif members and members[0].role != "voter":
        yield Problem(f"cell.members.{config.member}.role", '"learner" is not right: the only member must be a "voter"')
