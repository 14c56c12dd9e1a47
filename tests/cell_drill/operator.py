"""Who changes the members of the cell, as docs/cells.md says: by `reconfig`, and by looking at GET /members."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterable
from typing import Any

from tests.cell_drill.cell import SUPER_CREDENTIAL, DrillCell, Member
from tests.cell_drill.client import Client, authenticate
from tests.cell_drill.wire import RECONFIG, reconfig_body

PATIENCE_S = 30.0
RETRY_S = 0.1
RECONFIG_IN_PROGRESS, NEW_CONFIG_NO_QUORUM = -14, -13


class Operator:
    """The superuser of a cell."""

    def __init__(self, cell: DrillCell) -> None:
        self._cell = cell
        self._client = Client("operator", cell.ports)
        authenticate(self._client, SUPER_CREDENTIAL)

    async def start(self) -> None:
        await self._client.start()

    async def stop(self) -> None:
        await self._client.stop()

    async def change(self, joining: Iterable[Member] = (), leaving: Iterable[Member] = ()) -> None:
        """Have members join and leave in one change; asked again while another one is not finished."""
        lines = b",".join(member.server_line for member in joining)
        numbers = b",".join(b"%d" % member.number for member in leaving)
        async with asyncio.timeout(PATIENCE_S):
            while error := (await self._client.insist(RECONFIG, reconfig_body(lines, numbers))).error:
                if error not in (RECONFIG_IN_PROGRESS, NEW_CONFIG_NO_QUORUM):
                    raise AssertionError(f"reconfig -add {lines!r} -remove {numbers!r} was refused with {error}")
                await asyncio.sleep(RETRY_S)

    async def settled(self, members: Iterable[Member], patience_s: float = PATIENCE_S) -> None:
        """Return once exactly these are members, all vote, and nothing is missing."""
        wanted = sorted(member.number for member in members)
        told: Any = None
        try:
            async with asyncio.timeout(patience_s):
                while not _is_settled(told, wanted):
                    await asyncio.sleep(RETRY_S)
                    told = await asyncio.to_thread(ask_members, await self._cell.leader())
        except TimeoutError:
            raise AssertionError(f"{wanted} are not settled within {patience_s:.0f} s: {told}") from None


def ask_members(member: Member) -> Any:
    """What a member's admin listener tells of the cell; None if it does not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{member.admin_port}/members", timeout=2) as answer:
            return json.load(answer)
    except OSError:
        return None


def _is_settled(told: Any, wanted: list[int]) -> bool:
    if told is None or [each["number"] for each in told["members"]] != wanted:
        return False
    return all(each["phase"] == "voter" and not each["blocks"] for each in told["members"])
