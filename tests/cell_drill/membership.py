"""The drill in which a cell grows from one member to five and shrinks again, with disks kept and lost, under load."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path

from tests.cell_drill.cell import DrillCell, Member
from tests.cell_drill.leaders import told_round
from tests.cell_drill.load import Load
from tests.cell_drill.operator import Operator

REFUSED_WITHIN_S = 15.0
DOWN_S = 0.5


async def drill_membership(directory: Path, base_port: int, loops: int) -> None:
    """1 to 3 to 5 to 3 to 1, so many times. Raises AssertionError when the cell fails."""
    async with DrillCell(directory, base_port, size=5, founders=1) as cell:
        load, operator = Load(cell.ports), Operator(cell)
        await load.start()
        await operator.start()
        for number in range(1, loops + 1):
            began_s = time.monotonic()
            what, result = await load.round(cell, partial(_go_around, cell, operator))
            print(f"{number}/{loops} {what}: {told_round(result)}, {time.monotonic() - began_s:.0f} s", flush=True)
        await operator.stop()
        await load.stop()
    print(f"{loops} times around, nothing lost, {load.reconnects} reconnects, no session expired")


async def _go_around(cell: DrillCell, operator: Operator) -> str:
    changes = Changes(cell, operator)
    await changes.join(2)
    await changes.join(2)
    await changes.replace_lost_disk()
    await changes.restart_with_disk()
    await changes.leave(2)
    await changes.come_back_with_old_disk()
    await changes.leave(2)
    return "1 to 3 to 5 to 3 to 1, " + changes.survivors()


class Changes:
    """Changes of the members of one cell. Who is not a member does not run and has no disk, unless it says so."""

    def __init__(self, cell: DrillCell, operator: Operator) -> None:
        self._cell = cell
        self._operator = operator
        self._members: list[Member] = cell.running

    def survivors(self) -> str:
        return "leaving " + ", ".join(str(member.number) for member in self._members)

    async def join(self, count: int) -> None:
        """Several new members at once, started before they are added or behind that."""
        absent = [member for member in self._cell.members.values() if member not in self._members]
        await self._add(random.sample(absent, count))

    async def leave(self, count: int, keep_disks: bool = False) -> list[Member]:
        """Several members at once, the leader perhaps among them. They are stopped when they are out."""
        leaving = random.sample(self._members, count)
        self._members = [member for member in self._members if member not in leaving]
        await self._operator.change(leaving=leaving)
        await self._operator.settled(self._members)
        for member in leaving:
            await asyncio.to_thread(member.kill)
            if not keep_disks:
                member.wipe()
        return leaving

    async def replace_lost_disk(self) -> None:
        """A member without its disk is kept out until it is removed and added again."""
        member = random.choice(self._members)
        await asyncio.to_thread(member.kill)
        member.wipe()
        member.configure(self._members)
        await self._is_kept_out(member, "remove the member and add it again with reconfig")
        self._members.remove(member)
        await self._operator.change(leaving=[member])
        await self._add([member])

    async def restart_with_disk(self) -> None:
        """A member that was killed comes back by itself."""
        member = random.choice(self._members)
        await asyncio.to_thread(member.kill)
        await asyncio.sleep(DOWN_S)
        member.launch()
        await self._cell.all_serve()
        await self._operator.settled(self._members)

    async def come_back_with_old_disk(self) -> None:
        """A member that was removed is kept out while it has its old disk, also when its number is added again."""
        (member,) = await self.leave(1, keep_disks=True)
        await self._is_kept_out(member, "was removed from the cell")
        await self._add([member])

    async def _add(self, joining: list[Member]) -> None:
        self._members += joining
        is_started_first = random.random() < 0.5
        if is_started_first:
            self._launch(joining)
        await self._operator.change(joining=joining)
        if not is_started_first:
            self._launch(joining)
        await self._operator.settled(self._members)
        await self._cell.all_serve()

    def _launch(self, joining: Collection[Member]) -> None:
        for member in joining:
            member.configure(self._members)
            member.launch()

    async def _is_kept_out(self, member: Member, reason: str) -> None:
        """Start it: it must not serve, and its log must say why. Ends it and takes its disk."""
        logged_before = len(member.log_path.read_text())
        member.launch()
        logged = ""
        try:
            async with asyncio.timeout(REFUSED_WITHIN_S):
                while reason not in logged or await asyncio.to_thread(member.serves):
                    logged = member.log_path.read_text()[logged_before:]
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"member {member.number} must be kept out, and say {reason!r}: {logged}") from None
        await asyncio.to_thread(member.kill)
        member.wipe()
