"""A session that keeps itself alive."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from znoded.client.errors import ApiError, Unavailable

if TYPE_CHECKING:
    from znoded.client.client import Client

#: It is kept alive so many times within its timeout.
KEEP_ALIVES = 3

log = logging.getLogger("znoded.client")


class Session:
    """A session, kept alive beside whatever else is done, as an async context manager or until `close`.

    `secret` opens it, `id` names it to others. `lost_at_s` is when it may be over at the earliest, on the io's clock:
    counted from before the last request that was answered, so that the member cannot have heard of it any later.
    """

    def __init__(self, client: Client, secret: str, id: str, timeout_ms: int, asked_s: float) -> None:
        """`asked_s` is when it was asked for."""
        self.secret = secret
        self.id = id
        self.timeout_ms = timeout_ms
        self.lost_at_s = asked_s + timeout_ms / 1000
        self._client = client
        self._is_over = False
        #: Called once if the session expires, or may have: whatever was held in it may be held by another.
        self.on_lost: list[Callable[[], None]] = []
        self._stop = client.io.spawn(self._keep_alive())

    @property
    def is_lost(self) -> bool:
        """Whether it is over, or may be."""
        return self._is_over or self._client.io.now_s() >= self.lost_at_s

    async def close(self) -> None:
        """End it: what it held is free."""
        self._stop()
        if self._is_over:
            return
        self._is_over = True
        with suppress(ApiError, Unavailable):
            await self._client.call("session/close", {"session": self.secret})

    async def _keep_alive(self) -> None:
        interval_s = self.timeout_ms / 1000 / KEEP_ALIVES
        io = self._client.io
        while not self.is_lost:
            await io.sleep(min(interval_s, max(self.lost_at_s - io.now_s(), 0)))
            asked_s = io.now_s()
            left_s = max(self.lost_at_s - asked_s, 0.001)
            try:
                await io.within(left_s, self._ask(left_s))
            except (TimeoutError, Unavailable, ApiError) as failure:
                if isinstance(failure, ApiError) and failure.code == "session_expired":
                    break
            else:
                self.lost_at_s = asked_s + self.timeout_ms / 1000
        self._is_over = True
        for told in self.on_lost:
            try:
                told()
            except Exception:
                log.exception("on_lost failed for the session %s", self.id)

    async def _ask(self, within_s: float) -> None:
        await self._client.call("session/keepalive", {"session": self.secret}, within_s=within_s)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
