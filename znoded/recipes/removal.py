"""Taking a contender out of the queue, whatever happened to it: no acquire leaves one behind."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError

from znoded.recipes.clock import Event
from znoded.recipes.guarded import HELD_VERSION
from znoded.recipes.names import own
from znoded.recipes.session import ENDED, UNANSWERED, session_id

_RECONNECT_POLL_S = 0.1

log = logging.getLogger("znoded.recipes")


def remove_in_background(client: Any, path: str, own_id: str, nodes: Sequence[str] = (), pending: Any = None) -> Event:
    """Begin to take the contender with this id out of the queue at `path`; the event is set once it is gone.

    That goes on for as long as it takes, across lost connections; with the session, the contender is gone as well.
    `nodes` are its znodes if they are known. `pending` is the answer to the request that made it.
    """
    is_gone: Event = client.handler.event_object()

    def work() -> None:
        try:
            if pending is not None:
                pending.wait()  # what is still to be made would not be found
            if not (nodes and _delete_together(client, nodes)):
                _delete_all_of(client, path, own_id)
        except KazooException:
            log.exception("a contender for %s stays behind until its session ends", path)
        finally:
            is_gone.set()

    client.handler.spawn(work)
    return is_gone


def _delete_together(client: Any, nodes: Sequence[str]) -> bool:
    """Delete znodes in one round trip, if nobody has set their data; whether that was done."""
    transaction = client.transaction()
    for node in nodes:
        transaction.delete(node, HELD_VERSION)
    try:
        return all(result is True for result in transaction.commit())
    except UNANSWERED:
        return False
    except ENDED:
        return True


def _delete_all_of(client: Any, path: str, own_id: str) -> None:
    while True:
        try:
            _delete_seen(client, path, own_id)
            return
        except UNANSWERED:
            client.handler.sleep_func(_RECONNECT_POLL_S)
        except ENDED:
            return


def _delete_seen(client: Any, path: str, own_id: str) -> None:
    """Delete the contender's znodes of the client's present session."""
    try:
        client.sync(path)
        nodes = [f"{path}/{each.name}" for each in own(client.get_children(path), own_id)]
    except NoNodeError:
        return
    for node in nodes:
        stat = client.exists(node)
        session = session_id(client)
        if session is None:  # the connection broke behind the answer
            raise ConnectionLoss
        # One of an earlier session is kept for a while by a lock-delay.
        if stat is not None and stat.ephemeralOwner == session:
            try:
                client.delete(node)
            except NoNodeError:
                pass
