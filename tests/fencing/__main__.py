"""The fencing safety test, the long way.

python -m tests.fencing --seeds FIRST COUNT     so many runs of the model, each with a seed of its own
python -m tests.fencing --rounds COUNT          so many rounds on a real cell of three, with real workers
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from tests.fencing.drill import run_drill
from tests.fencing.seeds import run_seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, metavar=("FIRST", "COUNT"))
    parser.add_argument("--rounds", type=int, metavar="COUNT")
    parser.add_argument("--port", type=int, default=27000, help="the first of 400 free ports")
    options = parser.parse_args()
    began_s = time.monotonic()
    if options.seeds:
        first, how_many = options.seeds
        counts = run_seeds(first, how_many)
        print(f"{how_many} seeds from {first}: {told(counts)}; {time.monotonic() - began_s:.0f} s")
    if options.rounds:
        with tempfile.TemporaryDirectory(prefix="fencing-drill-") as directory:
            counts = asyncio.run(
                run_drill(Path(directory), options.port, options.rounds, lambda line: print(line, flush=True))
            )
        print(f"{options.rounds} rounds: {told(counts)}; {time.monotonic() - began_s:.0f} s")


def told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


if __name__ == "__main__":
    main()
