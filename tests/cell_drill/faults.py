"""What the drill does to the leader of a cell."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.cell_drill.cell import DrillCell
from tests.cell_drill.network import Cut

DOWN_S = (0.3, 2.0)
PAUSED_S = 5.0
CUT_S = (1.0, 4.0)
Fault = Callable[[DrillCell], Awaitable[str]]
"""Does it, undoes it, and tells what it was."""


async def kill(cell: DrillCell) -> str:
    """SIGKILL, and a start a moment later."""
    leader = await cell.leader()
    await asyncio.to_thread(leader.kill)
    down_s = random.uniform(*DOWN_S)
    await asyncio.sleep(down_s)
    leader.launch()
    await asyncio.to_thread(leader.wait_until_it_serves)
    return f"member {leader.number} killed, down for {down_s:.1f} s"


async def pause(cell: DrillCell) -> str:
    """SIGSTOP, and SIGCONT when others have led for long."""
    leader = await cell.leader()
    leader.pause()
    await asyncio.sleep(PAUSED_S)
    leader.resume()
    return f"member {leader.number} paused for {PAUSED_S:.0f} s"


async def cut(cell: DrillCell) -> str:
    """The leader is cut off from the other members: both ways or one, with or without anybody being told."""
    leader = await cell.leader()
    others = [number for number in cell.members if number != leader.number]
    ways = random.choice(("both ways", "outwards", "inwards"))
    how = random.choice(list(Cut))
    outwards = [(leader.number, other) for other in others] if ways != "inwards" else []
    inwards = [(other, leader.number) for other in others] if ways != "outwards" else []
    cell.network.cut(outwards + inwards, how)
    cut_s = random.uniform(*CUT_S)
    await asyncio.sleep(cut_s)
    cell.network.heal()
    return f"member {leader.number} cut off {ways} for {cut_s:.1f} s, {how.value}"
