"""What the values of a configuration have to be: readers, each of which gives a value or adds the problem with it."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory

from znoded.addresses import HOST, PORT_MOST, is_port

FOUR_LETTER_WORDS = (
    "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr",
    "ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs",
)  # fmt: skip
EVERY_WORD = "*"
ENDPOINT = "a Twisted endpoint string, such as tcp:2181:interface=127.0.0.1"
HOST_FORM = "the host a name of letters, digits and hyphens between dots, or an IPv6 address in brackets"
#: The kinds of endpoints that have a port.
PORT_KINDS = ("tcp", "tcp6", "ssl")
ALL_INTERFACES = frozenset(("", "0.0.0.0", "::"))
SHA1_BYTES = 20
SECRET_BYTES_LEAST = 16
SECRET_BYTES_MOST = 4096


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration: the key, and a message with its value and what would be right."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


#: Takes what TOML holds, its dotted key, and the problems to add to; gives the value, or None after a problem.
Reader = Callable[[object, str, list[Problem]], Any]


def _reader(convert: Callable[[object], object], expected: str, *, secret: bool = False) -> Reader:
    """Makes a reader of `convert`, which gives the value or raises ValueError with what is expected, if it knows."""

    def read(value: object, key: str, problems: list[Problem]) -> Any:
        try:
            return convert(value)
        except ValueError as error:
            problems.append(wrong(key, "the given value" if secret else shown(value), str(error) or expected))
            return None

    return read


def wrong(key: str, value: str, expected: str) -> Problem:
    """The problem of a value that is another than expected."""
    return Problem(key, f"{value} is not right: it must be {expected}")


def shown(value: object) -> str:
    """A value as TOML would write it, or nearly so, and not too long."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists as deep
        return "what is too long to be shown"
    return text if len(text) <= 80 else text[:76] + " ..."


class Place(NamedTuple):
    """What a listener takes: a port on an interface of this machine, or on all of them."""

    port: int
    interface: str

    def collides(self, other: Place) -> bool:
        """Whether two cannot listen here and there at a time. Port 0 is any that is free."""
        if self.port != other.port or self.port == 0 or (":" in self.interface) != (":" in other.interface):
            return False
        return self.interface == other.interface or not ALL_INTERFACES.isdisjoint((self.interface, other.interface))


class _PlaceFinder:
    """In the place of a reactor: it listens nowhere and tells where an endpoint would."""

    def listenTCP(self, port: int, factory: object, backlog: int = 50, interface: str = "") -> Place:
        return Place(port, interface)

    def listenSSL(
        self, port: int, factory: object, contextFactory: object, backlog: int = 50, interface: str = ""
    ) -> Place:
        return Place(port, interface)


def place_of(endpoint: str) -> Place | None:
    """Where an endpoint string, which is one, listens; None if that is no port of the network."""
    if endpoint.partition(":")[0] not in PORT_KINDS:
        return None
    places: list[Place] = []
    serverFromString(_PlaceFinder(), endpoint).listen(Factory()).addCallback(places.append)
    return places[0]


# ---- readers with parameters


def integer(least: int, most: int, unit: str, *, zero: str | None = None) -> Reader:
    """A whole number of `unit`, or of nothing; `zero`, when given, says what an additional 0 means."""

    def convert(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and (least <= value <= most or (zero and value == 0)):
            return value
        raise ValueError

    unit = unit and f", in {unit}"
    return _reader(convert, f"a whole number from {least} to {most}{unit}" + (f", or 0: {zero}" if zero else ""))


def choice(*choices: str) -> Reader:
    """One of some texts."""

    def convert(value: object) -> str:
        if value in choices:
            return str(value)
        raise ValueError

    return _reader(convert, " or ".join(f'"{each}"' for each in choices))


def list_of(read_item: Reader, example: str) -> Reader:
    """A list, read into a tuple; each wrong item is a problem of its own."""

    def read(value: object, key: str, problems: list[Problem]) -> Any:
        if isinstance(value, list):
            return tuple(read_item(item, f"{key}[{index}]", problems) for index, item in enumerate(value))
        problems.append(wrong(key, shown(value), f"a list, such as {example}"))
        return None

    return read


def table_of(read_item: Reader, expected: str) -> Reader:
    """A table whose keys are the operator's own; each wrong value is a problem of its own."""

    def read(value: object, key: str, problems: list[Problem]) -> Any:
        if isinstance(value, dict):
            return {name: read_item(item, f"{key}.{name}", problems) for name, item in value.items()}
        problems.append(Problem(key, f"it must be {expected}"))
        return None

    return read


def pem_file(label: str) -> Reader:
    """The path of a readable PEM file that holds a `label` block."""

    def convert(value: object) -> str:
        path = _path(value)
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise ValueError(f"a readable PEM file ({path}: {error.strerror})") from error
        if not re.search(rb"-----BEGIN [A-Z ]*" + label.encode() + rb"-----", content):
            raise ValueError(f"a PEM file with a {label} block")
        if b"ENCRYPTED" in content:
            raise ValueError(f"a PEM file whose {label} has no password")
        return path

    return _reader(convert, "the path of a PEM file")


def read_secret(path: str) -> bytes:
    """The secret in a file, without the space around it. Raises ValueError with what would be right."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(SECRET_BYTES_MOST + 1)
    except OSError as error:
        raise ValueError(f"the path of a readable file ({path}: {error.strerror})") from error
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(
            f"a file that only its owner may use, but its mode is {stat.S_IMODE(mode):04o}: chmod 600 {path}"
        )
    secret = content.strip()
    if len(content) > SECRET_BYTES_MOST or len(secret) < SECRET_BYTES_LEAST:
        raise ValueError(f"a file with a secret of {SECRET_BYTES_LEAST} to {SECRET_BYTES_MOST} bytes")
    return secret


# ---- readers


def _secret_file(value: object) -> str:
    path = _path(value)
    read_secret(path)
    return path


def _text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError


def _path(value: object) -> str:
    text = _text(value)
    if "\0" in text:
        raise ValueError
    return os.path.abspath(text)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _endpoint(value: object) -> str:
    text = _text(value)
    kind, _, rest = text.partition(":")
    port = rest.partition(":")[0]
    try:
        if kind in PORT_KINDS and not is_port(port):
            raise ValueError(f"a port from 0 to {PORT_MOST}")
        serverFromString(None, text)  # the reactor is needed to listen only
    except Exception as error:
        why = re.sub(r"^_\w+\(\) (got an )?", "", str(error))  # a wrong option names the function that has none such
        raise ValueError(f"{ENDPOINT} ({why})") from error
    return text


def _tls_endpoint(value: object) -> str:
    if _text(value).partition(":")[0] in ("tcp", "tcp6", "unix"):
        return _endpoint(value)
    raise ValueError


def _optional_endpoint(value: object) -> str | None:
    return None if value == "" else _endpoint(value)


def _super_digest(value: object) -> str:
    user, _, digest = _text(value).partition(":")
    try:
        sha1 = base64.b64decode(digest, validate=True)
    except ValueError:
        raise ValueError from None  # its text says nothing of the key
    if user and len(sha1) == SHA1_BYTES:
        return f"{user}:{digest}"
    raise ValueError


def _word(value: object) -> str:
    if value == EVERY_WORD or value in FOUR_LETTER_WORDS:
        return str(value)
    raise ValueError


def _address(value: object) -> str:
    match = re.fullmatch(rf"{HOST}:([0-9]{{1,5}})", _text(value))
    if match and 1 <= int(match[1]) <= PORT_MOST:
        return match[0]
    raise ValueError


def _host_name(value: object) -> str:
    name = _text(value).lower()
    if re.fullmatch(r"[0-9a-z._-]{1,255}", name):
        return name
    raise ValueError


def _optional_address(value: object) -> str:
    return "" if value == "" else _address(value)


boolean = _reader(_boolean, "true or false")
directory = _reader(_path, "the path of a directory")
endpoint = _reader(_endpoint, ENDPOINT)
tls_endpoint = _reader(_tls_endpoint, "a tcp, tcp6 or unix endpoint string, such as tcp:2281")
optional_endpoint = _reader(_optional_endpoint, f'{ENDPOINT}, or "" for none')
password = _reader(_text, "a text that is not empty", secret=True)
super_digest = _reader(_super_digest, 'user:base64(SHA-1("user:password")), as ZooKeeper\'s superDigest', secret=True)
word = _reader(_word, f'"*" for all, or one of {", ".join(FOUR_LETTER_WORDS)}')
secret_file = _reader(_secret_file, "the path of a file with a secret")
host_name = _reader(_host_name, "a host name, without a port")
address = _reader(_address, f"HOST:PORT, {HOST_FORM}")
optional_address = _reader(_optional_address, f'HOST:PORT, {HOST_FORM}, or "" for none')
