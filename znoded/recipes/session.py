"""A Kazoo client's session: which one it is, how long it lasts, and when a request has to be asked again."""

from __future__ import annotations

import re
import weakref
from contextlib import closing
from typing import Any, Final

from kazoo.client import KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)

from znoded.recipes.errors import SessionTimeoutUnknown

SUSPENDED, LOST = KazooState.SUSPENDED, KazooState.LOST
#: Nobody knows whether the request was carried out; the session goes on.
UNANSWERED: Final = (ConnectionLoss, OperationTimeoutError, SessionMovedError)
#: The session is over, and its ephemeral znodes with it.
ENDED: Final = (SessionExpiredError, ConnectionClosedError, AuthFailedError)

#: A server that does not tell its limits is asked again so often, after pauses.
TRIES, PAUSE_S = 3, 0.5
CONF_BYTES_MOST = 64 * 1024

#: Client -> its session's id, and the timeout that its connection was granted.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[int, float]] = weakref.WeakKeyDictionary()
_LIMIT = re.compile(r"(min|max)SessionTimeout=(\d+)\s")


def session_id(client: Any) -> int | None:
    """The id of the session that the client has; None while it is not connected."""
    identity = client.client_id
    return identity[0] if identity else None


def session_timeout_async(client: Any, session: int) -> Any:
    """The answer, as Kazoo's: the timeout in seconds that the client's connection was granted for its `session`.

    Kazoo keeps what it asked for and does not tell what it was granted. The server grants what lies between its two
    limits, which it tells to the word `conf`; one that answers something else is taken to have granted what was wanted.

    Its exceptions are SessionTimeoutUnknown, and ConnectionLoss if the connection changed meanwhile: each one has a
    timeout of its own.
    """
    answer = client.handler.async_result()
    known_session, known_s = _KNOWN.get(client, (0, 0.0))
    if known_session == session:
        answer.set(known_s)
    else:
        client.handler.spawn(_learn_timeout, client, session, answer)
    return answer


def _learn_timeout(client: Any, session: int, answer: Any) -> None:
    """This may take as long as a session: the word goes by a connection of its own."""
    has_changed = client.handler.event_object()

    def forget(_state: Any) -> bool:
        has_changed.set()
        _KNOWN.pop(client, None)
        return True  # Kazoo calls it no more

    client.add_listener(forget)
    wanted_ms = int(client._session_timeout)
    conf = ""
    for _ in range(TRIES):
        conf = _conf(client)
        if conf or has_changed.is_set():
            break
        client.handler.sleep_func(PAUSE_S)
    if has_changed.is_set() or session_id(client) != session:
        answer.set_exception(ConnectionLoss())
    elif not conf:
        client.remove_listener(forget)
        answer.set_exception(SessionTimeoutUnknown("the server does not tell its session timeouts to the word conf"))
    else:
        limits = {name: int(value) for name, value in _LIMIT.findall(conf)}
        timeout_s = max(limits.get("min", 0), min(wanted_ms, limits.get("max", wanted_ms))) / 1000
        _KNOWN[client] = session, timeout_s
        if has_changed.is_set():
            _KNOWN.pop(client, None)
        answer.set(timeout_s)


def _conf(client: Any) -> str:
    """What the server says to the word `conf`, nothing if it cannot be asked.

    Not by `client.command`, which with TLS looks for the port in the server's certificate.
    """
    try:
        connected = client._connection._socket
        peer = connected.getpeername()[:2]
        connection = client.handler.create_connection(
            peer,
            hostname=getattr(connected, "server_hostname", None) or peer[0],
            timeout=client._session_timeout / 1000,
            use_ssl=client.use_ssl,
            ca=client.ca,
            certfile=client.certfile,
            keyfile=client.keyfile,
            keyfile_password=client.keyfile_password,
            verify_certs=client.verify_certs,
            check_hostname=client.check_hostname,
        )
        with closing(connection):
            connection.sendall(b"conf")
            told = ""
            while len(told) < CONF_BYTES_MOST and len(_LIMIT.findall(told)) < 2:  # what is behind them tells nothing
                part = connection.recv(CONF_BYTES_MOST)
                if not part:
                    break
                told += str(part, "utf-8", "replace")
            return told
    except Exception:  # whatever it is, there is no answer
        return ""
