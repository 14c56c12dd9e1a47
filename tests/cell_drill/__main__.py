"""The drill for cells.

    python -m tests.cell_drill --kills 200 --pauses 50 --cuts 50     what happens to leaders
    python -m tests.cell_drill --membership 5                        members join and leave, so many times around
    python -m tests.cell_drill --catch-up 1000000                    a member comes back, or anew, to so many znodes

All of it under load, with real processes; see `load` for what is checked. Ends with status 1 when something is wrong,
and keeps data and logs of the members then.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.cell_drill.catch_up import drill_catch_up
from tests.cell_drill.leaders import drill_leaders
from tests.cell_drill.membership import drill_membership


def main() -> None:
    parser = argparse.ArgumentParser(description="A drill for a cell of real processes under load.")
    parser.add_argument("--kills", type=int, default=0, help="how often the leader is killed")
    parser.add_argument("--pauses", type=int, default=0, help="how often the leader is stopped for 5 s")
    parser.add_argument("--cuts", type=int, default=0, help="how often the leader is cut off from the others")
    parser.add_argument("--membership", type=int, default=0, help="how often members join and leave, all around")
    parser.add_argument("--catch-up", type=int, default=0, metavar="ZNODES", help="how much a wiped member has to get")
    parser.add_argument("--base-port", type=int, default=26_000, help="the drill takes some of the 500 ports from here")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the order of faults")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="cell-drill-"))
    try:
        faults = {"kill": arguments.kills, "pause": arguments.pauses, "cut": arguments.cuts}
        if any(faults.values()):
            asyncio.run(drill_leaders(directory / "leaders", arguments.base_port, faults))
        if arguments.membership:
            asyncio.run(drill_membership(directory / "membership", arguments.base_port, arguments.membership))
        if arguments.catch_up:
            asyncio.run(drill_catch_up(directory / "catch-up", arguments.base_port, arguments.catch_up))
    except BaseException as error:
        print(f"seed {arguments.seed}, data and logs in {directory}", file=sys.stderr)
        if isinstance(error, AssertionError):
            sys.exit(f"the cell failed: {error}")
        raise
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
