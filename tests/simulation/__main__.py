"""Run simulated cells with their clients: `python -m tests.simulation --seeds FIRST COUNT`, or SEED to see one run."""

from __future__ import annotations

import argparse
import gc
import sys
import time

from tests.simulation.simulation import run
from tests.zab_raft.core.history import Violation


def main() -> None:
    parser = argparse.ArgumentParser(description="Run simulated cells with their clients.")
    parser.add_argument("seed", type=int, nargs="?", help="show every event of this run")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "COUNT"))
    parser.add_argument("--stop", action="store_true", help="at the first seed that fails")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        simulation = run(arguments.seed, show=True)
        print(f"seed {arguments.seed}: nothing found; {dict(simulation.reached)}")
    else:
        first, count = arguments.seeds or (0, 100)
        sys.exit(try_seeds(first, count, arguments.stop))


def try_seeds(first: int, count: int, stop: bool) -> bool:
    """Run these seeds, and say which fail. True if any did."""
    failed = 0
    began_s = time.process_time()
    gc.disable()
    for seed in range(first, first + count):
        if not seed % 20:
            gc.collect()
        try:
            run(seed)
        except Violation as violation:
            failed += 1
            print(str(violation).splitlines()[-2][:300], f"(seed {seed})", flush=True)
            if stop:
                break
    took_s = time.process_time() - began_s
    print(f"{count} seeds, {failed} failed, {took_s:.0f} s of CPU")
    return bool(failed)


if __name__ == "__main__":
    main()
