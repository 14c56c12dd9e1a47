"""A Kazoo client's session: which one it is, how long it lasts, and when a request has to be asked again."""

from __future__ import annotations

import re
import weakref
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

SUSPENDED, LOST = KazooState.SUSPENDED, KazooState.LOST
#: Nobody knows whether the request was carried out; the session goes on.
UNANSWERED: Final = (ConnectionLoss, OperationTimeoutError, SessionMovedError)
#: The session is over, and its ephemeral znodes with it.
ENDED: Final = (SessionExpiredError, ConnectionClosedError, AuthFailedError)

#: Client -> its session's id and timeout.
_KNOWN: weakref.WeakKeyDictionary[Any, tuple[int, float]] = weakref.WeakKeyDictionary()
_LIMIT = re.compile(r"(min|max)SessionTimeout=(\d+)")


def session_id(client: Any) -> int | None:
    """The id of the session that the client has; None while it is not connected."""
    identity = client.client_id
    return identity[0] if identity else None


def session_timeout_async(client: Any, session: int) -> Any:
    """The answer, as Kazoo's: the timeout in seconds of the client's session `session`, as far as it can be known.

    Kazoo keeps what it asked for and does not tell what it was granted. The server grants what lies between its two
    limits, which it tells to the word `conf`; one that does not answer to it is taken to have granted what was wanted.
    """
    answer = client.handler.async_result()
    known_session, known_s = _KNOWN.get(client, (0, 0.0))
    if known_session == session:
        answer.set(known_s)
    else:
        client.handler.spawn(lambda: answer.set(_ask_for_timeout_s(client, session)))
    return answer


def _ask_for_timeout_s(client: Any, session: int) -> float:
    """This may take as long as a session: the word goes by a connection of its own."""
    wanted_ms = int(client._session_timeout)
    try:
        conf = str(client.command(b"conf"))
    except Exception:  # whatever it is, there is no answer
        conf = ""
    limits = {name: int(value) for name, value in _LIMIT.findall(conf)}
    timeout_s = max(limits.get("min", 0), min(wanted_ms, limits.get("max", wanted_ms))) / 1000
    if conf:  # else it is to be asked again
        _KNOWN[client] = session, timeout_s
    return timeout_s
