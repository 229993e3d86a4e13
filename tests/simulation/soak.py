"""Run the flows with snapshots through seed after seed, until stopped: ``make soak``.

::

    python -m tests.simulation.soak                               until something goes wrong
    python -m tests.simulation.soak --seeds 10000                 so many of every flow
    python -m tests.simulation.soak --seeds 2000 --flows ring bank
    python -m tests.simulation.soak --seeds 1 --first 41207       this seed
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from itertools import count

from tests.simulation.loop_flows import LOOP_CASES
from tests.simulation.recovering import TIME_CASES, pool, swarm
from tests.simulation.recovery_flows import CASES

FIRST_SEED = 1_000_000
"""Those before belong to `make test`."""
FLOWS = {make.__name__: make for make in (*CASES, *LOOP_CASES, *TIME_CASES)}
ROUND_SEEDS = 200


def main() -> int:
    """Run rounds of seeds and print a line after each; 1 if anything went wrong."""
    parser = ArgumentParser(description="Simulate crashes, seed after seed.")
    parser.add_argument("--seeds", type=int, help="so many of every flow")
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument(
        "--flows", nargs="+", metavar="FLOW", choices=FLOWS, default=list(FLOWS)
    )
    options = parser.parse_args()
    with pool() as executor:
        for begin in count(0, ROUND_SEEDS):
            rest = ROUND_SEEDS if options.seeds is None else options.seeds - begin
            if rest <= 0:
                return 0
            first = options.first + begin
            seeds = range(first, first + min(rest, ROUND_SEEDS))
            failures = [
                failure
                for name in options.flows
                for failure in swarm(executor, FLOWS[name], seeds)
            ]
            done = (begin + len(seeds)) * len(options.flows)
            sys.stdout.write(f"{done} runs, up to seed {seeds[-1]}\n")
            sys.stdout.flush()
            if failures:
                sys.stdout.write("\n".join(failures) + "\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
